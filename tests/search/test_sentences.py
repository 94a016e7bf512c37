"""What one sentence of a memory says is found among all that the others say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.embedding import HashingEmbedder, embed_packed
from hivemind.longterm import MemoryEntry, MemoryStore, open_store
from hivemind.search.sentences import nearest_sentences, packed_sentences, sentences_of

TALK = ("shared", "talk")
SAID = "We saw the harbour in the rain, all of us. The cello was out of tune."


class Counting(HashingEmbedder):
    """Counts what it is asked."""

    asked = 0

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        self.asked += len(texts)
        return super().embed(texts)


def kept(store: MemoryStore) -> list[tuple[str, int]]:
    """(key, bytes of its sentences) of each entry that has some."""
    with store.database.read() as sql:
        return sql.execute(
            "SELECT e.key, length(p.vectors) FROM sentences p LEFT JOIN entries e ON e.seq = p.seq ORDER BY e.key"
        ).fetchall()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("One sentence that says it all.", []),
        ("Thanks, Ann! We moved to the harbour.", []),
        ("We moved to the harbour. The boat is red!", ["We moved to the harbour.", "The boat is red!"]),
        ("a line that\ngoes on in the next", []),
        ("- the first point\n- the second point", ["- the first point", "- the second point"]),
    ],
)
def test_sentences_are_those_that_say_something(content: str, found: list[str]) -> None:
    assert sentences_of(content) == found


@given(st.text(max_size=400) | st.lists(st.text("ab .!?\n", max_size=40), max_size=60).map(". ".join))
def test_of_however_many_sentences_there_are_only_so_many_sentences(content: str) -> None:
    found = sentences_of(content)
    assert len(found) <= 16
    assert len(found) != 1 or len(content) > len(found[0])
    words = content.split()
    assert all(word in words for passage in found for word in passage.split())


def test_the_nearest_sentence_counts(tmp_path: Path) -> None:
    with open_store(tmp_path / "memory.db", HashingEmbedder(), durable=False) as store:
        store.put_many(TALK, {"two": SAID, "one": "We saw the harbour in the rain, and the cello was out of tune."})
        query = embed_packed(HashingEmbedder(), ["the cello was out of tune"])[0]
        with store.database.read() as sql:
            seqs = [seq for (seq,) in sql.execute("SELECT seq FROM entries ORDER BY seq")]
            (seq, (cosine, place)), *others = nearest_sentences(sql, HashingEmbedder().name, query, seqs).items()
        assert (seq, place, others) == (seqs[0], 1, [])
        assert cosine == pytest.approx(1.0, abs=0.01)


def test_a_vector_loses_little_by_being_kept_small() -> None:
    whole = embed_packed(HashingEmbedder(), [SAID])[0]
    assert len(packed_sentences([whole, whole])) == 2 * len(whole) // 4


def test_an_entry_has_the_sentences_of_what_it_says_now(tmp_path: Path) -> None:
    with open_store(tmp_path / "memory.db", Counting(), durable=False) as store:
        size = store.embeddings.dimension
        store.put(TALK, "a", SAID)
        store.put(TALK, "b", SAID)
        assert kept(store) == [("a", 2 * size), ("b", 2 * size)]
        assert isinstance(store.embeddings.embedder, Counting)
        assert store.embeddings.embedder.asked == 3  # the same content is embedded once
        store.put(TALK, "a", SAID + " The harbour was empty.")
        assert kept(store) == [("a", 3 * size), ("b", 2 * size)]
        store.put(TALK, "a", "One sentence that says it all")
        store.delete(TALK, "b")
        assert kept(store) == []


def test_a_vector_that_is_given_has_no_sentences(tmp_path: Path) -> None:
    with open_store(tmp_path / "memory.db", HashingEmbedder(), durable=False) as store:
        store.put(TALK, "a", SAID)
        vector = tuple(HashingEmbedder().embed(["something else"])[0])
        store.put(TALK, "a", MemoryEntry(content=SAID, embedding=vector))
        assert kept(store) == []


def test_what_waited_for_the_embedder_gets_its_sentences_with_its_vector(tmp_path: Path) -> None:
    with open_store(tmp_path / "memory.db", None, durable=False) as store:
        store.put(TALK, "a", SAID)
        assert kept(store) == []
    with open_store(tmp_path / "memory.db", HashingEmbedder(), durable=False) as store:
        store.reindex()
        assert kept(store) == [("a", 2 * store.embeddings.dimension)]
        (hit,) = store.search(TALK, "cello out of tune")
        assert hit.key == "a"
