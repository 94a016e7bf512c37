"""Vectors of nodes: created, kept up to date, deleted and rebuilt, in the tables that memories use too."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.documents import Docmem, Knowledge
from hivemind.documents.node import DamagedError
from hivemind.documents.search import Units, score_units
from hivemind.embedding import EmbedderUnavailable, HashingEmbedder, pack, unpack
from hivemind.fs.database import describe_damage
from hivemind.layout import Layout
from hivemind.search import Query
from tests.durability import relaxed


class Counting(HashingEmbedder):
    """Says what it was asked."""

    __slots__ = ("asked", "background")

    def __init__(self) -> None:
        super().__init__(64)
        self.asked: list[str] = []

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        self.asked += texts
        return super().embed(texts)


def open_at(path: Path) -> Docmem:
    return Docmem(relaxed(path), embedder=Counting())


def nearest(docmem: Docmem, sql: sqlite3.Connection, asked: Query, limit: int) -> list[tuple[int, float]]:
    """(seq, cosine) of what is nearest in meaning alone."""
    assert asked.vectors is not None
    return docmem._engine.nearest(sql, Units(sql, docmem._engine.stemmer, asked.text), asked, limit)


def near(docmem: Docmem, text: str, limit: int = 3) -> list[str]:
    """The texts nearest in meaning alone."""
    asked = docmem.prepare_query(text)
    with docmem.database.read() as sql:
        found = nearest(docmem, sql, asked, limit)
        rows = [sql.execute("SELECT text FROM nodes WHERE seq = ?", (seq,)).fetchone() for seq, _ in found]
    return [text for (text,) in rows]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "documents.db"
    with open_at(found) as docmem:
        root = docmem.create_root(text="birds")
        for text in ("kestrels hover", "owls hunt at night", "swifts sleep in flight"):
            docmem.append_child(root.id, "m", "n", "v", text)
        docmem.embed_pending()
    return found


def test_what_another_process_has_written_is_found_at_once(path: Path) -> None:
    code = (
        "import sys; from hivemind.documents import Docmem; from hivemind.embedding import HashingEmbedder\n"
        "with Docmem(sys.argv[1], embedder=HashingEmbedder(64)) as docmem:\n"
        "    docmem.create_root(text='penguins swim'); docmem.embed_pending(); docmem.query('penguins')\n"
        "    docmem.delete(next(n.id for n in docmem.serialize(docmem.roots()[0].id) if 'owls' in n.text))\n"
    )
    with open_at(path) as docmem:
        assert "owls hunt at night" in near(docmem, "owls at night")
        subprocess.run([sys.executable, "-c", code, os.fspath(path)], check=True, timeout=60)
        assert near(docmem, "penguins swim")[0] == "penguins swim"
        assert "owls hunt at night" not in near(docmem, "owls at night", 10)
        assert docmem.check() == []


def test_who_only_counts_what_has_a_meaning_loads_nothing_that_searches(path: Path) -> None:
    with open_at(path) as docmem:
        docmem.create_root(text="penguins swim")
        known, total = docmem.embedded_counts()
    code = (
        "import sys; from hivemind.documents import read_progress; from hivemind.embedding import HashingEmbedder\n"
        "told = read_progress(sys.argv[1], HashingEmbedder(64))\n"
        "print(*told, *(name for name in sys.modules if name in ('hivemind.search', 'hivemind.documents.docmem')))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, os.fspath(path)], check=True, timeout=60, capture_output=True, text=True
    )
    assert (found.stdout.split()[:2], found.stdout.split()[3:], known, total) == (["4", "5"], [], 4, 5)


def test_a_number_that_is_used_again_has_the_new_nodes_meaning(path: Path) -> None:
    with open_at(path) as docmem:
        root = docmem.roots()[0]
        last = docmem.serialize(root.id)[-1]
        docmem.delete(last.id)
        new = docmem.append_child(root.id, "m", "n", "v", "rain falls")
        with docmem.database.read() as sql:
            assert sql.execute("SELECT count(*), max(key) FROM vectors").fetchone() == (3, 3)
            assert sql.execute("SELECT seq FROM nodes WHERE id = ?", (new.id,)).fetchone() == (4,)
        assert near(docmem, "rain falls")[0] == "rain falls"
        assert last.text not in near(docmem, "swifts sleep in flight", 10)


def test_a_transaction_is_answered_with_the_nodes_that_it_sees(path: Path) -> None:
    with open_at(path) as reader, open_at(path) as writer:
        asked = reader.prepare_query("swifts sleep in flight")
        with reader.database.read() as sql:
            sql.execute("SELECT count(*) FROM nodes").fetchone()  # its state is this one from here on
            root = writer.roots()[0]
            last = writer.serialize(root.id)[-1]
            writer.delete(last.id)
            writer.append_child(root.id, "m", "n", "v", "swifts")  # under the same number
            assert near(writer, "swifts")[0] == "swifts"
            assert last.id in {node_id for (node_id,) in sql.execute("SELECT id FROM nodes")}
            hits = {unit.ancestry[0].id: unit for unit in score_units(reader._engine, sql, asked, None, 10)}
            assert "(1.00)" in hits[last.id].reason


def test_another_model_is_another_index(path: Path) -> None:
    with Docmem(relaxed(path), embedder=HashingEmbedder(32)) as docmem:
        assert docmem.embed_pending() == 4
        assert near(docmem, "kestrels")[0] == "kestrels hover"
    with open_at(path) as docmem:
        assert docmem.embed_pending() == 4


def test_an_embedder_that_gives_no_vectors_is_done_without(tmp_path: Path) -> None:
    class Nothing(HashingEmbedder):
        def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
            return [[0.0] * self.dimension for _ in texts]

    with Docmem(relaxed(tmp_path / "documents.db"), embedder=Nothing(8)) as docmem:
        docmem.create_root(text="zebra")
        (hit,) = docmem.query("zebra")
        assert "meaning" not in hit.why
        with docmem.database.read() as sql:
            assert sql.execute("SELECT count(*) FROM vectors").fetchone() == (0,)


def test_vectors_that_belong_to_no_node_are_taken_out(layout: Layout) -> None:
    with open_at(layout.documents_db) as docmem:
        docmem.create_root(text="kestrels hover")
        docmem.embed_pending()
    with closing(sqlite3.connect(layout.documents_db)) as sql:
        sql.execute("INSERT INTO vectors SELECT 99, grp, model, vector FROM vectors")
        sql.commit()
    with open_at(layout.documents_db) as docmem:
        assert near(docmem, "kestrels") == ["kestrels hover"]
        assert docmem.check() == ["1 vectors have no node"]
        [done] = Knowledge(docmem, layout).restore()
        assert "was rebuilt (1 vectors have no node)" in done
        assert docmem.check() == []


def test_vectors_that_lost_their_source_are_damage_and_mended(layout: Layout) -> None:
    (layout.knowledge / "a.md").write_text("# Birds\n\nkestrels hover\n")
    with open_at(layout.documents_db) as docmem:
        Knowledge(docmem, layout).sync()
        docmem.embed_pending()
    with closing(sqlite3.connect(layout.documents_db)) as sql:
        sql.execute("DELETE FROM vectors_source")
        sql.commit()
    with open_at(layout.documents_db) as docmem:
        assert docmem.check() == ["the vectors have 0 sources"]
        with pytest.raises(DamagedError):
            docmem.query("kestrels")
        assert Knowledge(docmem, layout).search("What do kestrels do?")[0].text == "kestrels hover"
        assert docmem.check() == []


def test_a_restored_database_is_searched_by_meaning_again(layout: Layout) -> None:
    for number in range(60):
        text = "kestrels wait above the sea" if number == 7 else f"bird{number} " + "hovers long " * 40
        (layout.knowledge / f"{number}.md").write_text(f"# Bird {number}\n\n{text}\n")
    with open_at(layout.documents_db) as docmem:
        Knowledge(docmem, layout).sync()
        docmem.embed_pending()
        assert near(docmem, "kestrels wait above")[0] == "kestrels wait above the sea"
    with open(layout.documents_db, "r+b") as file:
        file.seek(3 * 4_096)
        file.write(bytes(4_096))
    assert describe_damage(layout.documents_db) is not None
    with open_at(layout.documents_db) as docmem:
        knowledge = Knowledge(docmem, layout)
        assert knowledge.restore()
        knowledge.sync()
        docmem.embed_pending()
        assert near(docmem, "kestrels wait above")[0] == "kestrels wait above the sea"
        assert docmem.check() == []


class Picky(Counting):
    """Refuses texts that have a word in them; `down`: all texts."""

    __slots__ = ("down", "refused")

    def __init__(self, refused: str) -> None:
        super().__init__()
        self.refused, self.down = refused, False

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        if self.down or any(self.refused in text for text in texts):
            raise RuntimeError("input is too strange")
        return super().embed(texts)


def test_a_text_that_the_embedder_refuses_does_not_hold_up_the_others(tmp_path: Path) -> None:
    embedder = Picky("poison")
    with Docmem(relaxed(tmp_path / "documents.db"), embedder=embedder) as docmem:
        root = docmem.create_root(text="birds")
        for number in range(80):
            text = f"poison {number}" if number in (0, 3, 70) else f"bird {number} sings"
            docmem.append_child(root.id, "m", "n", "v", text)
        assert docmem.embed_pending() == 78
        assert "bird 79 sings" in near(docmem, "bird 79 sings", 5)
        asked = len(embedder.asked)
        assert (docmem.embed_pending(), len(embedder.asked)) == (0, asked)  # what it refused is not asked again
        embedder.refused = "nothing"
        for node in docmem.query("poison"):
            docmem.update_content(node.node.id, node.node.text + "!")
        assert docmem.embed_pending() == 3


def test_an_embedder_that_takes_no_text_at_all_is_down_and_no_text_is_to_blame(tmp_path: Path) -> None:
    embedder = Picky("poison")
    with Docmem(relaxed(tmp_path / "documents.db"), embedder=embedder) as docmem:
        docmem.create_root(text="one bird")
        embedder.down = True
        with pytest.raises(EmbedderUnavailable, match="input is too strange"):
            docmem.embed_pending()
        assert "by words only: " in docmem.query("bird")[0].why
        embedder.down = False
        assert docmem.embed_pending() == 1
        assert "by words only" not in docmem.query("bird")[0].why


def test_what_is_asked_is_embedded_first_and_kept(layout: Layout) -> None:
    for number in range(90):
        (layout.knowledge / f"{number:02}.md").write_text(
            f"# Bird {number}\n\nBird {number} sings of rain. It eats seeds.\n"
        )
    with open_at(layout.documents_db) as docmem:
        knowledge = Knowledge(docmem, layout)
        knowledge.sync()
        assert docmem.embedded_counts() == (0, 90)
        found = knowledge.search("What does bird 77 sing?", 1)[0]
        assert "77" in found.text
        assert "meaning" in found.why
        known = docmem.embedded_counts()[0]
        assert known == 40
        assert isinstance(docmem.meanings.embedder, Counting)
        asked = len(docmem.meanings.embedder.asked)
        knowledge.search("What does bird 77 sing?", 1)
        assert len(docmem.meanings.embedder.asked) == asked + 1, "only the question is embedded again"
        assert docmem.embed_pending() == 90 - known
        assert docmem.embedded_counts() == (90, 90)


def test_passages_of_a_question_do_not_wait_in_the_background_and_others_do(layout: Layout) -> None:
    for number in range(50):
        text = "Birds sing of rain." if number < 10 else "Bees make honey."
        (layout.knowledge / f"{number:02}.md").write_text(f"# File {number}\n\n{text}\n")
    with open_at(layout.documents_db) as docmem:
        background = Counting()
        assert isinstance(docmem.meanings.embedder, Counting)
        docmem.meanings.embedder.background = background
        knowledge = Knowledge(docmem, layout)
        knowledge.sync()
        knowledge.search("What do birds sing of?", 1)
        assert (docmem.embedded_counts()[0], background.asked) == (40, []), "ten that match, and thirty others"
        assert (docmem.embed_pending(), len(background.asked) > 0) == (10, True)


def test_what_is_embedded_of_a_passage_has_no_markup_and_its_quote_has(layout: Layout) -> None:
    told = 'Owls [hunt at night](https://birds.example/a?b=1), **never** by day: see {% page "x" %}owls.'
    (layout.knowledge / "owls.md").write_text(f"# Owls\n\n{told}\n")
    (layout.knowledge / "swifts.rst").write_text("Swifts\n======\n\nThey sleep in :ref:`flight <up>`, ``always``.\n")
    with open_at(layout.documents_db) as docmem:
        knowledge = Knowledge(docmem, layout)
        knowledge.sync()
        docmem.embed_pending()
        assert isinstance(docmem.meanings.embedder, Counting)
        assert sorted(docmem.meanings.embedder.asked) == [
            "Owls hunt at night, never by day: see owls.",
            "They sleep in flight, always.",
        ]
        assert knowledge.search("When do owls hunt?", 1)[0].cite().text == told


_WORDS = st.lists(
    st.sampled_from(["kestrel", "owl", "swift", "rain", "hover", "sleep", "night", "sea"]), min_size=1, max_size=4
)
_STEPS = st.lists(st.tuples(st.sampled_from(["add", "change", "delete", "embed"]), st.integers(0, 99), _WORDS))


@settings(max_examples=15, deadline=None)
@given(_STEPS, _WORDS)
def test_whatever_was_done_it_finds_what_a_comparison_with_all_finds(
    steps: list[tuple[str, int, list[str]]], query: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder, open_at(Path(folder) / "documents.db") as docmem:
        root = docmem.create_root(text="birds")
        for what, number, words in steps:
            leaves = docmem.serialize(root.id)[1:]
            if what == "add":
                docmem.append_child(root.id, "m", "n", "v", " ".join(words))
            elif what == "change" and leaves:
                docmem.update_content(leaves[number % len(leaves)].id, " ".join(words))
            elif what == "delete" and leaves:
                docmem.delete(leaves[number % len(leaves)].id)
            elif what == "embed":
                near(docmem, "owl")
        docmem.embed_pending()
        asked = docmem.prepare_query(" ".join(query))
        assert asked.vectors is not None
        wanted = unpack(asked.vectors.vector)
        model = HashingEmbedder(64)
        with docmem.database.read() as sql:
            ids = dict(sql.execute("SELECT seq, id FROM nodes").fetchall())
            found = [(ids[seq], cosine) for seq, cosine in nearest(docmem, sql, asked, 1_000)]
        nodes = {node.id: unpack(pack(model.embed([node.text])[0], 64)) for node in docmem.serialize(root.id)}
        assert {node_id for node_id, _ in found} == nodes.keys()
        for node_id, cosine in found:
            assert cosine == pytest.approx(sum(map(float.__mul__, nodes[node_id], wanted)), abs=1e-5)
        assert [cosine for _, cosine in found] == sorted((cosine for _, cosine in found), reverse=True)
