"""Memories are copied from one database into another, of either kind, whole or not at all."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from hivemind.embedding import HashingEmbedder
from hivemind.errors import UnknownVersion
from hivemind.longterm import LongtermError, copy_memories, open_store

ANN, ALL = ("memories", "ann"), ("shared", "hive")
VECTOR = [0.5, *[0.25] * 383]


class Clock:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def filled(place, clock):
    """A store with all that an entry can have."""
    store = open_store(place, HashingEmbedder(), clock=clock)
    parent = store.put(ANN, "boats", "boats are what Ann knows best")
    child = {
        "content": "Ann's boat is blue, and ä and 😀.", "parent_id": parent.id, "metadata": {"session": "s", "a": [1.50]},
        "links": {"about": "boats"}, "category": "fact", "importance": 0.25, "expires_at": clock.now + timedelta(days=9),
    }  # fmt: skip
    store.put(ANN, "boat", {**child, "content": "Ann's boat was red."})
    clock.now += timedelta(hours=2)
    store.put(ANN, "boat", child)
    store.put(ANN, "own", {"content": "a vector of the caller", "embedding": VECTOR})
    store.put(ALL, "plain", "what needs no meaning", embed=False)
    store.put_many(ALL, {f"k{number}": f"text number {number}" for number in range(450)})
    store.delete(ALL, "k7")
    store.create_user("Ann")
    gone = store.put(ANN, "gone", {"content": "the code is 4711", "expires_at": clock.now + timedelta(hours=1)})
    store.put(ANN, "orphan", {"content": "its parent has expired", "parent_id": gone.id})
    clock.now += timedelta(hours=2)
    return store


def content(store):
    """All that callers can learn of a store."""
    spaces = store.namespaces()
    return {
        "entries": {
            space: store.get_many(space, [key for key in store.list(space) if key != "orphan"]) for space in spaces
        },
        "history": [store.history(ANN, key) for key in store.list(ANN) if key != "orphan"],
        "users": store.users(),
        "found": [[(hit.key, hit.similarity) for hit in store.search(ALL, "number 440", mode="vector", limit=3)]],
        "words": [hit.key for hit in store.search(ALL, "440", mode="text")],
        "pending": store.status().pending,
    }


@pytest.mark.shows("promise: P73")
@pytest.mark.parametrize("way", ["in", "out"])
def test_what_is_copied_is_the_same_in_every_part_and_goes_on_as_before(way, tmp_path, database):
    places = (tmp_path / "memory.db", database)
    clock, told = Clock(), []
    one, other = places if way == "in" else reversed(places)
    with filled(one, clock) as store, open_store(other, HashingEmbedder(), clock=clock) as target:
        copied = copy_memories(store, target, progress=lambda *done: told.append(done))
        assert copied == {"entries": 454, "namespaces": 2, "versions": 1, "embeddings": 453, "users": 1}
        assert [done for done, _ in told][-1] == 454
        assert content(target) == content(store)
        assert target.get(ANN, "orphan").parent_id is None
        assert target.check() == []
        with pytest.raises(LongtermError, match="memories/ann already; nothing was copied"):
            copy_memories(store, target)
        target.put(ALL, "new", "after the copy")
        assert target.put(ANN, "boat", "Ann's boat is green.").version == 3


@pytest.mark.shows("promise: P73")
def test_a_copy_that_fails_leaves_nothing_and_says_why(tmp_path, database):
    with open_store(tmp_path / "memory.db", None) as store, open_store(database, None) as target:
        store.put(ANN, "k", "tea")
        store.put(ALL, "k", "cars")
        target.put(ALL, "other", "bicycles")
        with pytest.raises(LongtermError, match="shared/hive already; nothing was copied"):
            copy_memories(store, target)
        assert target.namespaces() == [ALL]
        moved = {ANN: ("memories", "bob"), ALL: ("shared", "other")}
        copy_memories(store, target, moved.get)
        again = {ANN: ("memories", "eve"), ALL: ("shared", "third")}
        with pytest.raises(LongtermError, match="as 'k' in memories/bob; nothing was copied"):
            copy_memories(store, target, again.get)
        assert target.namespaces() == [("memories", "bob"), ALL, ("shared", "other")]
    with (
        pytest.raises(LongtermError, match="there are no memories"),
        open_store(tmp_path / "none.db", None) as nothing,
        open_store(database, None) as target,
    ):
        copy_memories(nothing, target)


def test_memories_of_an_earlier_version_are_copied_and_embedded_anew(tmp_path):
    clock = Clock()
    with filled(tmp_path / "old.db", clock) as store:
        old = content(store)
    with closing(sqlite3.connect(tmp_path / "old.db")) as sql:
        sql.execute("DROP TABLE parts")
        sql.execute("PRAGMA user_version = 4")
    bytes_before = (tmp_path / "old.db").read_bytes()
    source = open_store(tmp_path / "old.db", None, clock=clock)
    target = open_store(tmp_path / "new.db", HashingEmbedder(), clock=clock)
    with pytest.raises(UnknownVersion, match="hivemind help hives of another version"):
        source.get(ANN, "boat")
    with source, target:
        assert copy_memories(source, target)["embeddings"] == 1  # the one that a caller has passed
        target.embed_pending()
        new = content(target)
        assert {name: new[name] for name in ("entries", "history", "users", "found", "words")} == {
            name: old[name] for name in ("entries", "history", "users", "found", "words")
        }
    assert (tmp_path / "old.db").read_bytes() == bytes_before
