"""Embedders that fail, and models that change: nothing that was stored is lost, and the status says what waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hivemind.embedding import EmbedderUnavailable, HashingEmbedder
from hivemind.longterm import EntryInvalid, LongtermError, MemoryStore, open_store
from tests.longterm.faulty import Faulty

ME = ("memories", "u1")
FAULTS = ("down", "broken", "fewer", "dimension", "nan", "zero")


@pytest.fixture
def embedder() -> Faulty:
    return Faulty()


@pytest.fixture
def store(place, embedder: Faulty):
    with open_store(place, embedder) as found:
        yield found
        assert found.check() == []


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_embedded_is_stored_marked_and_found_by_its_words(store, embedder, fault: str) -> None:
    embedder.fault = fault
    assert store.put(ME, "k", "green tea").pending
    result = store.upsert_memory(ME, "black coffee", key="c")
    assert result.success
    assert "words only" in result.message
    [hit] = store.search(ME, "tea")
    assert (hit.key, hit.similarity, hit.pending) == ("k", 0.0, True)
    assert "by words only" in hit.why
    assert store.status().pending == 2
    with pytest.raises(EmbedderUnavailable):
        store.search(ME, "coffee", mode="vector")


@pytest.mark.parametrize("fault", FAULTS)
def test_what_waited_is_embedded_when_the_embedder_is_back(store, embedder, fault: str) -> None:
    embedder.fault = fault
    store.put_many(ME, {f"k{number}": f"text {number}" for number in range(5)})
    assert store.embed_pending() == 0
    embedder.fault = None
    store.put(ME, "new", "another text")  # a write embeds some of what waits
    assert store.status().pending == 0
    assert {hit.key for hit in store.search(ME, "text 3", 0.5, mode="vector")} >= {"k3"}


def test_a_text_that_the_embedder_cannot_take_does_not_hold_up_the_others(store, embedder) -> None:
    embedder.fault = "poison"
    store.put_many(ME, {f"k{number}": f"text {number}" for number in range(80)} | {"bad": "poison"})
    assert store.status().pending > 1
    assert store.embed_pending() > 0
    assert [key for key in store.list(ME) if store.get(ME, key).pending] == ["bad"]


def test_many_texts_that_the_embedder_cannot_take_hold_up_nobody_and_are_not_asked_for_again(store, embedder) -> None:
    embedder.fault = "poison"
    for number in range(20):  # the oldest of all that wait
        store.put(ME, f"bad{number}", f"poison {number}")
    store.put_many(ME, {f"k{number}": f"text {number}" for number in range(9)} | {"bad": "poison"})
    assert [store.embed_pending(4) for _ in range(4)] == [0, 4, 4, 1]
    assert all(store.get(ME, key).pending is key.startswith("bad") for key in store.list(ME))
    asked = len(embedder.asked)
    assert (store.embed_pending(), len(embedder.asked)) == (0, asked)
    embedder.fault = None
    store.put(ME, "bad0", "water and wine")
    assert not store.get(ME, "bad0").pending


def test_identical_contents_and_queries_are_embedded_once(store, embedder, place) -> None:
    store.put(ME, "a", "green tea")
    store.put(("memories", "u2"), "b", "green tea")
    store.upsert_memory(ME, "green tea", key="c")
    assert embedder.asked == ["green tea"]
    for _ in range(3):
        store.search(ME, "tea")
    assert embedder.asked == ["green tea", "tea"]
    again = Faulty()
    with open_store(place, again) as other:
        other.put(ME, "d", "green tea")  # another process
    assert again.asked == []


def test_an_embedding_that_a_caller_gave_serves_no_other_entry(store, embedder) -> None:
    store.put(ME, "mine", {"content": "green tea", "embedding": [1.0] + [0.0] * 383})
    store.put(("memories", "u2"), "theirs", "green tea")
    assert embedder.asked == ["green tea"]
    assert store.get(ME, "mine").embedding != store.get(("memories", "u2"), "theirs").embedding


def test_an_entry_whose_meaning_does_not_matter_is_never_embedded(store, embedder) -> None:
    store.put(ME, "k", "green tea", embed=False)
    assert (embedder.asked, store.status().pending, store.embed_pending()) == ([], 0, 0)
    assert [hit.key for hit in store.search(ME, "tea")] == ["k"]


def test_a_near_duplicate_under_another_key_is_named_and_without_a_key_not_stored(store) -> None:
    first = store.upsert_memory(ME, "the user likes green tea with honey", key="a")
    second = store.upsert_memory(ME, "The user likes green tea, with honey!")
    assert (second.success, second.action, second.memory_id, second.similar_key) == (
        False, "duplicate", first.memory_id, "a",
    )  # fmt: skip
    third = store.upsert_memory(ME, "The user likes green tea, with honey!", key="b")
    assert (third.success, third.action, third.similar_key) == (True, "created", "a")
    assert "'a'" in third.message
    assert store.upsert_memory(ME, "the user likes green tea with honey", key="a").similar_key == "b"
    assert store.upsert_memory(ME, "the user likes green tea with honey", allow_duplicate=True).success
    assert store.upsert_memory(("memories", "u2"), "the user likes green tea with honey").success
    assert len(store.list(ME)) == 3


def test_a_near_duplicate_is_found_behind_many_that_have_expired(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with open_store(tmp_path / "memory.db", HashingEmbedder(), clock=lambda: now) as store:
        text = "the user likes green tea with honey"
        for number in range(12):
            store.upsert_memory(ME, text + "!" * (number + 1), key=f"old-{number}", expires_at=now + timedelta(days=1))
        store.upsert_memory(ME, text, key="alive")
        now += timedelta(days=2)
        found = store.upsert_memory(ME, text + "?")
        assert (found.action, found.key) == ("duplicate", "alive")


def test_updating_an_entry_is_no_duplicate_of_itself(store) -> None:
    first = store.upsert_memory(ME, "green tea", {"a": 1}, key="k", category="fact", importance=0.9)
    again = store.upsert_memory(ME, "green tea", key="k")
    assert (again.success, again.action, again.memory_id, again.similar_key) == (True, "updated", first.memory_id, None)
    entry = store.get(ME, "k")
    assert (entry.metadata, entry.category, entry.importance, entry.version) == ({"a": 1}, "fact", 0.9, 2)


def test_without_an_embedder_words_are_searched_and_the_status_says_so(tmp_path: Path) -> None:
    with open_store(tmp_path / "m.db", None) as plain:
        plain.put(ME, "k", "green tea")
        assert plain.upsert_memory(ME, "green tea").action == "duplicate"
        assert [hit.key for hit in plain.search(ME, "tea")] == ["k"]
        assert "hivemind-swarm[embed]" in (plain.status().note or "")
        with pytest.raises(LongtermError, match=r"no embedder.*HIVEMIND_EMBEDDER.*open_store\(path\)"):
            plain.reindex()
    with open_store(tmp_path / "m.db", HashingEmbedder()) as found:
        assert found.status().pending == 1
        assert found.status().note == "1 entry waits for its embedding and is found by its words meanwhile"
        assert found.reindex() == 1
        assert found.search(ME, "tea", mode="vector")[0].key == "k"


# another model


@pytest.mark.parametrize("other", [Faulty(384, "other-model"), Faulty(96)])
def test_another_model_is_noticed_and_its_vectors_are_not_compared(tmp_path: Path, other: Faulty) -> None:
    with open_store(tmp_path / "m.db", HashingEmbedder()) as before:
        before.put_many(ME, {f"k{number}": f"text {number}" for number in range(150)})
        before.search(ME, "text", mode="vector")
    store = open_store(tmp_path / "m.db", other)
    status = store.status()
    assert (status.model, status.dimension, status.pending, status.other) == (other.name, other.dimension, 150, 150)
    assert "reindex" in (status.note or "")
    assert store.search(ME, "text 7", mode="vector") == []
    assert "k7" in [hit.key for hit in store.search(ME, "7")]
    with pytest.raises(EntryInvalid):
        store.put(ME, "given", {"content": "x", "embedding": [1.0] * (other.dimension + 1)})
    told: list[tuple[int, int]] = []
    assert store.reindex(lambda done, total: told.append((done, total))) == 150
    assert told == [(64, 150), (128, 150), (150, 150)]
    assert (store.status().pending, store.status().other) == (0, 0)
    hits = store.search(ME, "text 7", mode="vector")
    assert "k7" in [hit.key for hit in hits if hit.similarity == hits[0].similarity]
    assert store.reindex() == 0
    assert store.check() == []


def test_a_reindex_that_fails_says_how_many_are_left_and_goes_on_later(tmp_path: Path) -> None:
    with open_store(tmp_path / "m.db", HashingEmbedder()) as before:
        before.put_many(ME, {f"k{number}": f"text {number}" for number in range(10)})
    embedder = Faulty(name="other")
    store = MemoryStore(tmp_path / "m.db", embedder)
    embedder.fault = "down"
    with pytest.raises(LongtermError, match="10 of 10"):
        store.reindex()
    embedder.fault = None
    assert store.reindex() == 10


def test_a_content_that_changes_while_it_is_embedded_keeps_its_own_meaning(tmp_path: Path) -> None:
    class Slow(Faulty):
        def embed(self, texts: list[str]):
            if texts == ["old text"] and not self.fault:
                open_store(tmp_path / "m.db", HashingEmbedder()).put(ME, "k", "new words")
            return super().embed(texts)

    embedder = Slow()
    store = open_store(tmp_path / "m.db", embedder)
    embedder.fault = "down"
    store.put(ME, "k", "old text")
    embedder.fault = None
    store.embed_pending()
    assert store.search(ME, "new words", 0.9, mode="vector")[0].key == "k"
    assert store.check() == []
