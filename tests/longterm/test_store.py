"""The store's promises: its operations and validation rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hivemind.embedding import HashingEmbedder
from hivemind.longterm import (
    EntryInvalid,
    LongtermError,
    MemoryEntry,
    MemorySearchResult,
    MemoryStore,
    NamespaceInvalid,
    VersionConflict,
    open_store,
    provenance,
)
from hivemind.tokens import count_tokens

ME = ("memories", "u1")
OTHER = ("memories", "u2")


class Clock:
    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now

    def forward(self, **units):
        self.now += timedelta(**units)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(place, clock):
    with open_store(place, HashingEmbedder(), clock=clock) as found:
        yield found


# one operation each


def test_a_valid_entry_is_stored_with_all_fields(store):
    entry = MemoryEntry(content="tea", metadata={"mood": ["calm"]}, category="fact", importance=0.9)
    stored = store.put(ME, "drink", entry)
    found = store.get(ME, "drink")
    assert "embedding" not in repr(found)
    assert found.content == "tea"
    assert found.metadata == {"mood": ["calm"]}
    assert found.namespace == ME
    assert (found.key, found.category, found.importance, found.version) == ("drink", "fact", 0.9, 1)
    assert found.id == stored.id
    assert found.created_at == found.updated_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert len(found.embedding) == 384
    assert not found.pending


def test_content_over_2048_tokens_fails(store):
    fits = "tea " * 2047 + "tea"
    assert count_tokens(fits) <= 2048
    store.put(ME, "fits", fits)
    with pytest.raises(EntryInvalid, match="2048"):
        store.put(ME, "long", fits + " tea tea tea")
    assert store.list(ME) == ["fits"]


@pytest.mark.parametrize("content", ["", "  \n\t", None, 7, "\ud800"])
def test_content_that_is_blank_or_no_text_fails(store, content):
    with pytest.raises(EntryInvalid):
        store.put(ME, "k", {"content": content})
    with pytest.raises(EntryInvalid):
        store.upsert_memory(ME, content)


def test_missing_content_and_unknown_fields_fail(store):
    with pytest.raises(EntryInvalid, match="blank"):
        store.put(ME, "k", {"metadata": {}})
    with pytest.raises(EntryInvalid, match="colour"):
        store.put(ME, "k", {"content": "x", "colour": "red"})


@pytest.mark.parametrize(
    "namespace", [(), ("one",), ("a", ""), ("a", "  "), "ab", ("a", 1), ("a", None), ("a", "\udfff")]
)
def test_a_namespace_needs_two_parts_that_are_not_blank(store, namespace):
    for call in (
        lambda: store.put(namespace, "k", "x"),
        lambda: store.get(namespace, "k"),
        lambda: store.search(namespace, "x"),
        lambda: store.delete(namespace, "k"),
        lambda: store.list(namespace),
        lambda: store.upsert_memory(namespace, "x"),
    ):
        with pytest.raises(NamespaceInvalid):
            call()


@pytest.mark.parametrize("key", ["", "k" * 257, None, 3, "\ud800"])
def test_a_key_has_1_to_256_characters(store, key):
    with pytest.raises(EntryInvalid):
        store.put(ME, key, "x")
    store.put(ME, "k" * 256, "x")


@pytest.mark.parametrize(
    "value",
    [
        {"metadata": "no object"},
        {"metadata": {"big": "x" * 65_536}},
        {"metadata": {"nan": float("nan")}},
        {"metadata": {"set": {1}}},
        {"importance": 1.1},
        {"importance": True},
        {"category": " "},
        {"expires_at": "tomorrow"},
        {"parent_id": "nobody"},
        {"embedding": [1.0] * 383},
        {"embedding": [0.0] * 384},
        {"embedding": [float("nan")] * 384},
        {"links": {"next": ""}},
    ],
)
def test_a_field_that_breaks_its_rule_is_refused_and_nothing_is_stored(store, value):
    with pytest.raises(EntryInvalid):
        store.put(ME, "k", {"content": "x", **value})
    assert store.list(ME) == []


def test_put_creates_then_updates_id_and_creation_stay(store, clock):
    first = store.put(ME, "k", "green tea")
    clock.forward(hours=1)
    second = store.put(ME, "k", {"content": "black tea", "metadata": {"a": 1}})
    assert (second.id, second.created_at) == (first.id, first.created_at)
    assert second.updated_at == first.updated_at + timedelta(hours=1)
    assert second.version == 2
    assert [hit.content for hit in store.search(ME, "tea")] == ["black tea"]


def test_updated_at_moves_even_if_the_clock_is_set_back(store, clock):
    first = store.put(ME, "k", "x")
    clock.forward(days=-3)
    assert store.put(ME, "k", "y").updated_at > first.updated_at


def test_get_gives_none_for_what_is_not_there(store):
    assert store.get(ME, "k") is None
    assert store.get_many(ME, ["a", "b"]) == [None, None]


def test_search_gives_what_reaches_the_threshold(store):
    store.put(ME, "food", "the user is vegetarian and likes Italian food")
    store.put(ME, "zone", "the time zone is EST")
    hits = store.search(ME, "vegetarian food", 0.3, mode="vector")
    assert [hit.key for hit in hits] == ["food"]
    assert all(isinstance(hit, MemorySearchResult) for hit in hits)
    assert 0.3 <= hits[0].similarity <= 1
    assert hits[0].why
    assert store.search(ME, "vegetarian food", 0.99, mode="vector") == []


def test_what_reaches_the_threshold_is_found_behind_what_does_not(store):
    store.put(ME, "near", MemoryEntry(content="the old red boat", importance=0.0))
    for number in range(5):
        far = MemoryEntry(content=f"the old red boat of harbour {number}", importance=1.0)
        store.put(ME, f"far-{number}", far)
    store.put(ME, "other", "some boat or other, as there are many of them everywhere")
    assert store.search(ME, "the old red boat", limit=1)[0].key.startswith("far")
    assert [hit.key for hit in store.search(ME, "the old red boat", 0.9, limit=1)] == ["near"]


def test_delete_removes_the_entry_its_history_and_what_finds_it(store):
    store.put(ME, "k", "secret word")
    store.put(ME, "k", "secret words")
    assert store.delete(ME, "k") is True
    assert store.delete(ME, "k") is False
    assert store.get(ME, "k") is None
    assert store.search(ME, "secret word") == []
    assert store.history(ME, "k") == []
    assert store.put(ME, "k", "new").version == 1
    assert store.check() == []


def test_list_gives_the_keys_of_one_namespace(store):
    store.put_many(ME, {"b": "x", "a": "y"})
    store.put((*ME, "deeper"), "c", "z")
    assert store.list(ME) == ["a", "b"]
    assert store.list(OTHER) == []


def test_user_a_cannot_get_what_user_b_has(store):
    store.put(ME, "pref", "vegetarian")
    assert store.get(OTHER, "pref") is None
    assert not store.delete(OTHER, "pref")
    assert store.history(OTHER, "pref") == []


def test_search_stays_in_its_namespace_unless_it_is_asked_below_a_prefix(store):
    store.put(ME, "a", "likes tea")
    store.put(OTHER, "b", "likes tea")
    store.put((*ME, "more"), "c", "likes tea")
    assert [hit.key for hit in store.search(ME, "tea")] == ["a"]
    assert sorted(hit.key for hit in store.search(ME, "tea", prefix=True)) == ["a", "c"]
    assert sorted(hit.key for hit in store.search(("memories",), "tea", prefix=True)) == ["a", "b", "c"]


# several operations or openings


def test_a_memory_of_one_thread_is_there_in_another(tmp_path):
    open_store(tmp_path / "m.db", None).put(ME, "k", "said in thread A")
    assert open_store(tmp_path / "m.db", None).get(ME, "k").content == "said in thread A"


def test_two_writers_of_one_key_the_last_one_wins(tmp_path):
    one, two = open_store(tmp_path / "m.db", None), open_store(tmp_path / "m.db", None)
    one.put(ME, "k", "first")
    two.put(ME, "k", "second")
    assert one.get(ME, "k").content == "second"
    assert one.get(ME, "k").version == 2


# versions, searches and limits


def test_compare_and_set_refuses_what_has_changed(store):
    store.put(ME, "k", "a", expected_version=0)
    store.put(ME, "k", "b", expected_version=1)
    for wrong in (0, 1, 3):
        with pytest.raises(VersionConflict) as caught:
            store.put(ME, "k", "c", expected_version=wrong)
        assert caught.value.actual == 2
    assert store.get(ME, "k").content == "b"


def test_history_tells_all_versions_oldest_first(store):
    for number in range(1, 4):
        store.put(ME, "k", {"content": f"text {number}", "metadata": {"n": number}})
    assert [(one.version, one.content, one.metadata) for one in store.history(ME, "k")] == [
        (number, f"text {number}", {"n": number}) for number in range(1, 4)
    ]


def test_put_many_stores_all_or_none(store):
    with pytest.raises(EntryInvalid):
        store.put_many(ME, [("a", "fine"), ("b", " ")])
    assert store.list(ME) == []
    stored = store.put_many(ME, [("a", "one"), ("b", "two"), ("a", "three")])
    assert [entry.content for entry in store.get_many(ME, ["b", "a", "c"]) if entry] == ["two", "three"]
    assert len(stored) == 3


def test_an_expired_entry_is_gone_for_every_call(store, clock):
    first = store.put(ME, "k", {"content": "the parking spot is 12", "expires_at": clock.now + timedelta(hours=1)})
    assert store.get(ME, "k") is not None
    clock.forward(hours=1)
    assert store.get(ME, "k") is None
    assert store.list(ME) == []
    assert store.history(ME, "k") == []
    assert all(store.search(ME, "parking spot", mode=mode) == [] for mode in ("hybrid", "vector", "text"))
    again = store.put(ME, "k", "the parking spot is 14")
    assert again.id != first.id
    assert again.version == 1
    assert store.put(ME, "gone", {"content": "x", "expires_at": clock.now}).content == "x"
    assert (store.get(ME, "gone"), store.purge()) == (None, 0)
    assert store.check() == []


def test_what_has_expired_is_counted_nowhere(store, clock):
    soon = clock.now + timedelta(hours=1)
    store.put(ME, "stays", "the parking spot is 12")
    store.put(ME, "goes", {"content": "the door code is 4711", "expires_at": soon})
    store.put(OTHER, "goes", {"content": "the gate code is 4712", "expires_at": soon}, embed=False)
    parent = store.put(ME, "parent", {"content": "the house", "expires_at": soon})
    child = store.put(ME, "child", {"content": "the roof", "parent_id": parent.id})
    assert (store.status().entries, store.status().namespaces) == (5, 2)
    clock.forward(hours=2)
    assert (store.status().entries, store.status().namespaces) == (2, 1)
    assert store.namespaces() == [ME]
    assert store.search(("memories",), "code", prefix=True) == []
    assert store.next_expiry() == soon
    assert store.put(ME, "child", replace(child, content="the red roof")).version == 2  # though it names its parent
    with pytest.raises(EntryInvalid, match="no entry of this namespace"):
        store.put(ME, "new", {"content": "the cellar", "parent_id": parent.id})
    assert store.check() == []


def test_what_has_expired_is_not_there_to_be_deleted(store, clock):
    store.put(ME, "goes", {"content": "the door code is 4711", "expires_at": clock.now + timedelta(hours=1)})
    clock.forward(hours=2)
    assert not store.delete(ME, "goes")


def test_what_has_expired_waits_for_no_embedding(tmp_path, clock):
    with open_store(tmp_path / "plain.db", None, clock=clock) as store:
        store.put(ME, "goes", {"content": "the door code is 4711", "expires_at": clock.now + timedelta(hours=1)})
        clock.forward(hours=2)
    with open_store(tmp_path / "plain.db", HashingEmbedder(), clock=clock) as store:
        assert (store.status().pending, store.reindex(), store.embed_pending()) == (0, 0, 0)


def test_every_write_forgets_some_of_what_has_expired_with_all_that_it_said(store, clock):
    soon = clock.now + timedelta(hours=1)
    for text in ("first", "second"):
        store.put_many(ME, {f"k{number}": {"content": f"{text} {number}", "expires_at": soon} for number in range(40)})
    clock.forward(hours=2)
    writes = (
        lambda: store.upsert_memory(ME, "something else", key="new"), lambda: store.put(ME, "newer", "and more"),
        lambda: store.delete(ME, "new"), lambda: store.expire(ME, "newer", None),
    )  # fmt: skip
    for number, write in enumerate(writes):
        write()
        with store.database.read() as sql:
            counts = [
                sql.execute("SELECT count(*) FROM entries WHERE content LIKE '%second%'").fetchone()[0],
                store.database.words.count_entries(sql, ["second"], [1], 100)[0],
            ]
            old = sql.execute("SELECT count(*) FROM versions WHERE content LIKE 'first%'").fetchone()[0]
            vectors = sql.execute("SELECT count(*) FROM vectors").fetchone()[0]
        left = max(0, 40 - 32 * (number + 1))
        assert (*counts, old) == (left, left, left)
        assert vectors == left + len(store.list(ME))
    assert store.check() == []


def test_forgetting_what_has_expired_may_be_bounded(store, clock):
    soon = clock.now + timedelta(hours=1)
    store.put_many(ME, {f"k{number}": {"content": f"text {number}", "expires_at": soon} for number in range(7)})
    clock.forward(hours=1)
    assert [store.purge(limit) for limit in (0, 3, None, None)] == [0, 3, 4, 0]
    assert store.next_expiry() is None


def test_importance_weighs_in_the_score(store):
    store.put(ME, "low", {"content": "the door code is 1234", "importance": 0.0})
    store.put(ME, "high", {"content": "the door code is 1234", "importance": 1.0})
    for mode in ("hybrid", "vector", "text"):
        assert [hit.key for hit in store.search(ME, "door code", mode=mode)] == ["high", "low"], mode


def test_filters_narrow_by_metadata_category_importance_and_time(store, clock):
    store.put(ME, "a", {"content": "tea one", "metadata": {"n": 1, "tag": "x"}, "category": "fact", "importance": 0.2})
    clock.forward(days=1)
    store.put(ME, "b", {"content": "tea two", "metadata": {"n": 2, "on": True}, "category": "goal", "importance": 0.8})

    def keys(**filters):
        found = {
            tuple(sorted(hit.key for hit in store.search(ME, "tea", mode=mode, **filters)))
            for mode in ("hybrid", "text", "vector")
        }
        found.add(tuple(sorted(hit.key for hit in store.search(ME, "", **filters))))
        assert len(found) == 1, found
        return "".join(found.pop())

    assert keys(metadata={"n": 1}) == "a"
    assert keys(metadata={"n": {"$gte": 1, "$lt": 2}}) == "a"
    assert keys(metadata={"n": {"$gt": 0}}) == "ab"
    assert keys(metadata={"n": True}) == ""
    assert keys(metadata={"on": 1}) == ""
    assert keys(metadata={"tag": {"$exists": False}}) == "b"
    assert keys(metadata={"tag": {"$ne": "x"}}) == "b"
    assert keys(metadata={"n": {"$in": [2, 3]}}) == "b"
    assert keys(metadata={"n": {"$nin": [2]}}) == "a"
    assert keys(category="goal") == "b"
    assert keys(min_importance=0.5) == "b"
    assert keys(since=clock.now) == "b"
    assert keys(until=clock.now) == "a"
    with pytest.raises(EntryInvalid, match="where"):
        keys(metadata={"n": {"$where": "1"}})


def test_links_and_parents_stay_within_the_namespace(store):
    parent = store.put(ME, "trip", {"content": "the trip to Rome"})
    store.put(ME, "day-1", {"content": "the Forum", "parent_id": parent.id, "links": {"next": "day-2"}})
    assert store.get(ME, "day-1").links == {"next": "day-2"}
    with pytest.raises(EntryInvalid):
        store.put(OTHER, "x", {"content": "y", "parent_id": parent.id})
    store.delete(ME, "trip")
    assert store.get(ME, "day-1").parent_id is None


def test_a_given_embedding_is_kept_as_it_was_given(store):
    vector = [float(number) for number in range(384)]
    store.put(ME, "k", MemoryEntry(content="x", embedding=tuple(vector)))
    assert list(store.get(ME, "k").embedding) == vector
    assert store.put(ME, "k", "another text").version == 2
    assert list(store.get(ME, "k").embedding) != vector
    assert store.check() == []


def test_an_entry_that_was_read_said_anew_and_put_back_means_what_it_says_now(store):
    store.put(ME, "k", "the user likes pizza")
    read = store.get(ME, "k")
    store.put(ME, "k", replace(read, content="motorcycles are in the garage"))
    store.put(ME, "other", replace(store.get(ME, "k"), content="a train to Rome"))
    assert [hit.key for hit in store.search(ME, "motorcycles garage", mode="vector")] == ["k"]
    assert [hit.key for hit in store.search(ME, "train Rome", mode="vector")] == ["other"]
    assert store.search(ME, "pizza", mode="vector") == []


def test_what_was_read_is_said_anew_though_another_has_changed_it_meanwhile(store):
    store.put(ME, "k", "the user likes pizza")
    read = store.get(ME, "k")
    store.put(ME, "k", "a train to Rome")
    store.put(ME, "k", replace(read, content="motorcycles are in the garage"))
    assert [hit.key for hit in store.search(ME, "motorcycles garage", mode="vector")] == ["k"]
    assert store.search(ME, "pizza", mode="vector") == []


def test_what_was_read_and_put_back_unchanged_is_still_the_stores_to_embed(tmp_path):
    with open_store(tmp_path / "m.db", HashingEmbedder()) as before:
        before.put(ME, "k", "the user likes pizza")
        before.put(ME, "k", replace(before.get(ME, "k"), category="fact"))
    with open_store(tmp_path / "m.db", HashingEmbedder(96)) as after:
        assert after.put(ME, "k", replace(after.get(ME, "k"), importance=1.0)).pending is False
        assert len(after.get(ME, "k").embedding) == 96
        assert [hit.key for hit in after.search(ME, "pizza", mode="vector")] == ["k"]


def test_what_was_read_is_put_back_with_the_embedding_that_was_given(store):
    vector = [float(number) for number in range(384)]
    store.put(ME, "k", MemoryEntry(content="x", embedding=tuple(vector)))
    store.put(ME, "k", replace(store.get(ME, "k"), category="fact"))
    assert list(store.get(ME, "k").embedding) == vector
    mine = tuple(reversed(vector))
    store.put(ME, "k", replace(store.get(ME, "k"), content="y", embedding=mine))
    assert store.get(ME, "k").embedding == mine


def test_what_some_database_cannot_keep_is_refused_by_all_in_contents_names_relations_and_filters(store):
    store.put(ME, "k", {"content": "tea", "metadata": {"a": "\\u0000"}})  # a backslash and five letters
    for wrong, said in (("\ud800", "half a character"), ("a\0b", "a NUL character")):
        for refused in (
            lambda wrong: store.put(ME, "other", wrong),
            lambda wrong: store.put(ME, wrong, "tea"),
            lambda wrong: store.put(("memories", wrong), "k", "tea"),
            lambda wrong: store.put(ME, "other", {"content": "tea", "metadata": {"a": [{"b": wrong}]}}),
            lambda wrong: store.create_user(wrong),
            lambda wrong: store.put(ME, "k", {"content": "tea", "links": {wrong: "k"}}),
            lambda wrong: store.search(ME, "tea", category=wrong),
            lambda wrong: store.search(ME, "tea", metadata={"a": wrong}),
            lambda wrong: store.search(ME, "", metadata={wrong: 1}),
        ):
            with pytest.raises(EntryInvalid, match=f"{said}|no part of a namespace"):
                refused(wrong)
    assert store.list(ME) == ["k"]
    assert [hit.key for hit in store.search(ME, "", metadata={"a": "\\u0000"})] == ["k"]


def test_users_have_ids_and_may_share_a_name(store):
    one, two = store.create_user("demo"), store.create_user("demo")
    assert one.id != two.id
    assert [user.name for user in store.users()] == ["demo", "demo"]
    store.put(one.namespace, "k", "x")
    assert store.namespaces(("memories",)) == [("memories", one.id)]
    assert store.list(two.namespace) == []


def test_namespaces_are_listed_below_a_prefix_part_by_part(store):
    for namespace in (("a", "b"), ("a", "bc"), ("a", "b", "c"), ("ab", "c")):
        store.put(namespace, "k", "x")
    assert store.namespaces(("a",)) == [("a", "b"), ("a", "b", "c"), ("a", "bc")]
    assert store.namespaces(("a", "b")) == [("a", "b"), ("a", "b", "c")]
    assert len(store.namespaces()) == 4


def test_a_blank_query_gives_the_newest(store, clock):
    for key in "abc":
        store.put(ME, key, f"text {key}")
        clock.forward(minutes=1)
    assert [hit.key for hit in store.search(ME, "", limit=2)] == ["c", "b"]


def test_a_mode_that_is_none_is_refused(store):
    with pytest.raises(EntryInvalid, match="fuzzy"):
        store.search(ME, "x", mode="fuzzy")


# opening


def test_a_store_opens_anywhere_and_by_url(tmp_path):
    open_store(f"sqlite:///{tmp_path}/m.db", None).put(ME, "k", "x")
    assert isinstance(open_store(str(tmp_path / "m.db"), None), MemoryStore)
    assert open_store(tmp_path / "m.db", None).list(ME) == ["k"]
    memory = open_store(":memory:", HashingEmbedder())
    memory.put(ME, "k", "tea")
    assert memory.search(ME, "tea")[0].key == "k"


@pytest.mark.parametrize("where", ["mysql://host/db", "{tmp}", "{tmp}/no/such/folder.db"])
def test_what_cannot_be_opened_is_said_in_words(tmp_path, where):
    with pytest.raises(LongtermError):
        open_store(where.format(tmp=tmp_path), None)


def test_many_at_once_are_found_by_their_words_whatever_was_there(store, clock):
    store.put_many(ME, {"a": "an apple", "b": "a banana"})
    store.put_many(ME, {"b": "a blueberry", "c": "a cherry"})  # one is changed, one is new
    store.put_many(ME, [("d", "a date"), ("d", "a damson"), ("e", "an elderberry")])  # one is said twice
    gone = clock.now - timedelta(days=1)
    store.put_many(ME, [("f", {"content": "a fig", "expires_at": gone}), ("g", "a grape")])
    store.put_many(ME, {"f": "a feijoa", "g": "a guava"})  # what has expired is a new entry
    store.put(ME, "h", "a honeydew")
    for word, found in {"blueberry": ["b"], "damson": ["d"], "feijoa": ["f"], "honeydew": ["h"]}.items():
        assert [hit.key for hit in store.search(ME, word, mode="text")] == found
    assert [store.search(ME, word, mode="text") for word in ("banana", "date", "fig", "grape")] == [[]] * 4
    assert store.check() == []


def test_many_that_fail_leave_nothing_behind(store):
    with pytest.raises(EntryInvalid):
        store.put_many(ME, [("a", "an apple"), ("b", {"content": "a banana", "parent_id": "nobody"})])
    store.put(ME, "c", "a cherry")
    assert [hit.key for hit in store.search(ME, "cherry apple", mode="text")] == ["c"]
    assert store.check() == []


def test_entries_of_a_session_are_linked_in_the_order_in_which_they_are_made(store, clock):
    for key, session in (("a", "s"), ("b", "s"), ("x", "t"), ("c", "s"), ("d", 7), ("e", 7)):
        store.upsert_memory(ME, f"said {key}", key=key, provenance={"session": session})
    assert [dict(store.get(ME, key).links) for key in "abcxde"] == [
        {"next": "b"}, {"previous": "a", "next": "c"}, {"previous": "b"}, {}, {"next": "e"}, {"previous": "d"},
    ]  # fmt: skip
    store.put(ME, "own", {"content": "said own", "metadata": {"session": "s"}, "links": {"previous": "a"}})
    assert (store.get(ME, "own").links, store.get(ME, "c").links) == ({"previous": "a"}, {"previous": "b"})
    store.upsert_memory(ME, "said otherwise", key="b", provenance={"session": "t", "speaker": "ann"})
    assert (store.get(ME, "b").metadata, store.get(ME, "b").version) == ({"session": "s"}, 2)
    assert store.check() == []


def test_an_entry_without_a_time_is_of_the_day_on_which_it_was_made(store, clock):
    clock.now = datetime(2025, 5, 3, tzinfo=UTC)
    store.put(ME, "may", "We sailed to the island")
    clock.now = datetime(2025, 8, 3, tzinfo=UTC)
    store.put(ME, "august", "We sailed to the island again")
    assert store.search(ME, "Where did we sail to in May 2025?")[0].key == "may"
    assert "its date" in store.search(ME, "Where did we sail to in May 2025?")[0].why


def test_who_says_it_is_told_by_a_label_before_it_unless_it_is_known():
    assert provenance("The oars are new", "analyst", session="t1") == {"speaker": "analyst", "session": "t1"}
    assert provenance("Ann: I like tea", "analyst") == {}
    assert provenance("Ann: I like tea", "analyst", author="ann", time="2026-01-31") == {
        "speaker": "ann", "time": "2026-01-31",
    }  # fmt: skip
