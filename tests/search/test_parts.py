"""What one part of a memory says is found among all that the others say."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind.embedding import HashingEmbedder, MiniLM, pack
from hivemind.embedding.embedder import TextVectors
from hivemind.embedding.local import is_installed
from hivemind.longterm import MemoryEntry, MemoryStore, open_store
from hivemind.search import PARTS, embed_question, embed_texts, store_parts
from hivemind.search.parts import compare_parts, sentences_of
from tests.durability import relaxed

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
            "SELECT e.key, length(p.vectors) FROM parts p LEFT JOIN entries e ON e.seq = p.seq ORDER BY e.key"
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


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=400) | st.lists(st.text("ab .!?\n", max_size=40), max_size=60).map(". ".join))
def test_of_however_many_sentences_there_are_only_so_many_sentences(content: str) -> None:
    found = sentences_of(content)
    assert len(found) <= 16
    assert len(found) != 1 or len(content) > len(found[0])
    words = content.split()
    assert all(word in words for passage in found for word in passage.split())


def test_the_nearest_sentence_counts(tmp_path: Path) -> None:
    with open_store(relaxed(tmp_path / "memory.db"), HashingEmbedder()) as store:
        store.put_many(TALK, {"two": SAID, "one": "We saw the harbour in the rain, and the cello was out of tune."})
        query = embed_question(HashingEmbedder(), "the cello was out of tune")
        with store.database.read() as sql:
            seqs = [seq for (seq,) in sql.execute("SELECT seq FROM entries ORDER BY seq")]
            (seq, near), *others = compare_parts(
                sql, HashingEmbedder().name, query, dict(zip(seqs, seqs, strict=True))
            ).items()
        assert (seq, near.position, near.word_similarity, others) == (seqs[0], 0.75, None, [])
        assert near.cosine == pytest.approx(1.0, abs=0.01)


def test_a_vector_loses_little_by_being_kept_small() -> None:
    (meaning,) = embed_texts(HashingEmbedder(), [SAID])
    assert len(meaning.parts) == 2 * len(meaning.vector) // 4


class Letters(HashingEmbedder):
    """Knows of each word its first letter: a dimension for each."""

    def __init__(self) -> None:
        super().__init__(32)
        self.name = "letters"

    def embed_finely(self, texts: list[str], *, is_query: bool = False) -> Sequence[TextVectors]:
        found = []
        for text in texts:
            rows = [[1.0 if ord(word[0]) % 32 == at else -1.0 for at in range(32)] for word in text.lower().split()]
            whole = [sum(column) + 0.01 for column in zip(*rows, strict=True)]
            signs = b"".join(
                int("".join("1" if value > 0 else "0" for value in row), 2).to_bytes(4, "big") for row in rows
            )
            found.append(TextVectors(pack(whole, 32), b"".join(pack(row, 32) for row in rows) if is_query else signs))
        return found


def test_each_word_that_is_asked_is_compared_with_those_of_an_item() -> None:
    texts = ["a b c d e f g h i j k l m", "n o p q r s t u v w x y z", "a", "z y"]
    with closing(sqlite3.connect(":memory:")) as sql:
        sql.execute(PARTS[0])
        for at, meaning in enumerate(embed_texts(Letters(), texts)):
            store_parts(sql, "letters", {at: meaning.parts})
        near = compare_parts(sql, "letters", embed_question(Letters(), "a z"), {key: key for key in range(4)})
    one_of_two = (1 + 1 - 4 / 32) / 2  # the other word differs from each in two dimensions
    assert [near[at].word_similarity for at in range(4)] == pytest.approx([one_of_two] * 4)
    assert [near[at].position for at in range(4)] == [pytest.approx(at) for at in (1 / 6, 5 / 6, 0.5, 0.5)]


def test_the_weakest_word_is_looked_for_where_all_words_are_near_each_other() -> None:
    together, apart = "a z " + "c " * 30, "a " + "c " * 30 + "z"
    with closing(sqlite3.connect(":memory:")) as sql:
        sql.execute(PARTS[0])
        for at, meaning in enumerate(embed_texts(Letters(), [together, apart, "a", together])):
            store_parts(sql, "letters", {at: meaning.parts})
        near = compare_parts(sql, "letters", embed_question(Letters(), "a z"), {key: key for key in range(4)})
    missing = 1 - 4 / 32
    assert [near[at].weakest_word for at in range(4)] == pytest.approx([1.0, missing, missing, 1.0])
    assert [near[at].word_similarity for at in range(2)] == pytest.approx([1.0, 1.0])


@pytest.mark.skipif(not is_installed(), reason="the extra embed is not installed")
def test_minilm_says_what_words_mean_where_they_stand() -> None:
    texts = ["The bank of the river was green. " * 60, "A bank has money.", ""]
    model = MiniLM()
    kept = model.embed_finely(texts)
    assert [one.vector for one in kept] == [bytes(memoryview(row)) for row in model.embed(texts)]  # type: ignore[arg-type]
    tokens = [60 * 8, 5, 2]  # of each text; a piece has 254 of them
    assert [len(one.parts) for one in kept] == [48 * (85 + -(-(tokens[0] - 254) // 3)), 48 * 2, 48]
    (asked,) = model.embed_finely(texts[1:2], is_query=True)
    assert len(asked.parts) == 4 * 384 * 5


def test_an_entry_has_the_sentences_of_what_it_says_now(tmp_path: Path) -> None:
    with open_store(relaxed(tmp_path / "memory.db"), Counting()) as store:
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
    with open_store(relaxed(tmp_path / "memory.db"), HashingEmbedder()) as store:
        store.put(TALK, "a", SAID)
        vector = tuple(HashingEmbedder().embed(["something else"])[0])
        store.put(TALK, "a", MemoryEntry(content=SAID, embedding=vector))
        assert kept(store) == []


def test_what_waited_for_the_embedder_gets_its_sentences_with_its_vector(tmp_path: Path) -> None:
    with open_store(relaxed(tmp_path / "memory.db"), None) as store:
        store.put(TALK, "a", SAID)
        assert kept(store) == []
    with open_store(relaxed(tmp_path / "memory.db"), HashingEmbedder()) as store:
        store.reindex()
        assert kept(store) == [("a", 2 * store.embeddings.dimension)]
        (hit,) = store.search(TALK, "cello out of tune")
        assert hit.key == "a"
