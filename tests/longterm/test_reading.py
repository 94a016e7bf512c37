"""What was read in an entry is never shown when the entry says something else meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime

from hivemind.embedding import HashingEmbedder
from hivemind.longterm import MemoryEntry, MemoryStore, open_store
from tests.durability import relaxed

TALK = ("shared", "talk")


def found(store: MemoryStore, query: str) -> list[tuple[str, str]]:
    return [(hit.key, hit.content) for hit in store.search(TALK, query)]


def test_what_another_program_changed_is_read_anew(place) -> None:
    with open_store(relaxed(place), HashingEmbedder()) as one, open_store(relaxed(place), HashingEmbedder()) as other:
        other.put(TALK, "a", "the cello is old")
        other.put(TALK, "b", "the cello is new")
        assert sorted(found(one, "cello")) == [("a", "the cello is old"), ("b", "the cello is new")]
        other.put(TALK, "a", "the drum is old")
        other.delete(TALK, "b")
        assert found(one, "cello") == []
        assert found(one, "drum") == [("a", "the drum is old")]


def test_a_change_of_what_is_said_about_it_is_read_anew(place) -> None:
    with open_store(relaxed(place), HashingEmbedder()) as store:
        for speaker in ("Ann", "Bob"):
            store.put(TALK, "a", MemoryEntry(content="I bought a boat", metadata={"speaker": speaker}))
            (hit,) = store.search(TALK, "What did Bob buy, a boat?")
            assert ("its speaker" in hit.why) == (speaker == "Bob")


def test_an_expiry_that_was_set_meanwhile_is_shown(place) -> None:
    with open_store(relaxed(place), HashingEmbedder()) as store:
        for key in ("a", "b"):
            store.put(TALK, key, f"the cello is {key}")
        assert [hit.links for hit in store.search(TALK, "cello")] == [{}, {}]
        store.expire(TALK, "a", datetime(2100, 1, 1, tzinfo=UTC))
        hits = {hit.key: hit for hit in store.search(TALK, "cello")}
        assert hits["a"].expires_at == datetime(2100, 1, 1, tzinfo=UTC)


def test_who_changes_a_hit_changes_no_other(place) -> None:
    with open_store(relaxed(place), HashingEmbedder()) as store:
        store.put(TALK, "a", MemoryEntry(content="the cello is old", metadata={"of": {"place": "attic"}}))
        for _ in range(2):
            (hit,) = store.search(TALK, "cello")
            assert hit.metadata == {"of": {"place": "attic"}}
            hit.metadata["of"]["place"] = "cellar"


def test_a_memory_that_was_embedded_meanwhile_waits_no_longer(place) -> None:
    with open_store(relaxed(place), None) as without:
        without.put(TALK, "a", "the cello is old")
    with open_store(relaxed(place), HashingEmbedder()) as store:
        (hit,) = store.search(TALK, "cello")
        assert hit.pending
        store.reindex()
        (hit,) = store.search(TALK, "cello")
        assert not hit.pending
