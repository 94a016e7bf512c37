"""A damaged database is set aside, its backup restored and knowledge imported again, for any damage and any crash."""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hivemind.documents import Docmem, Knowledge
from hivemind.fs.backup import REPORT_SUFFIX, back_up
from hivemind.fs.database import describe_damage
from hivemind.layout import Layout
from tests.program import Python

WORKER = Path(__file__).parent / "worker.py"
PAGE = 4_096


def fill(layout: Layout) -> dict[str, str]:
    """Import twenty files and create nodes without a file; return the texts of these by id."""
    for number in range(20):
        name = "kestrel" if number == 7 else f"bird{number}"
        paragraphs = f"The {name} engine weighs {number * 3} kilograms.\n\n" + "\n\n".join(
            f"Part {part} of it is made of metal {number}." for part in range(12)
        )
        (layout.knowledge / f"{number}.md").write_text(f"# Engine {number}\n\n{paragraphs}\n")
    own: dict[str, str] = {}
    with Docmem(layout.documents_db) as docmem:
        knowledge = Knowledge(docmem, layout)
        knowledge.sync()
        with docmem.transaction():
            for number in range(20):
                note = docmem.add_note(knowledge.locate(f"knowledge/{number}.md:5").id, f"Note {number}.", "me")
                own[note.id] = note.text
            root = docmem.create_root(text="The log")
            for number in range(200):
                node = docmem.append_child(root.id, "memory", "by", "me", f"Line {number} of the log, written by hand.")
                own[node.id] = node.text
            own[root.id] = root.text
            docmem.update_content(node.id, "The last line, changed.")
            own[node.id] = "The last line, changed."
    return own


@pytest.fixture
def own(layout: Layout) -> dict[str, str]:
    return fill(layout)


def ask(layout: Layout) -> str:
    with Docmem(layout.documents_db) as docmem:
        knowledge = Knowledge(docmem, layout)
        knowledge.sync()
        found = knowledge.search("What does the kestrel engine weigh?")
        assert docmem.check() == []
        assert len([root for root in docmem.roots() if docmem.source(root.id)]) == 20, "each file is there once"
        return found[0].text.split("\n")[0]


def kept(layout: Layout) -> list[Path]:
    return sorted(path for path in layout.aside.rglob("*") if path.is_file())


ANSWER = "The kestrel engine weighs 21 kilograms."


@pytest.mark.parametrize("content", [b"", b"\0", b"no database at all\n" * 400, b"SQLite format 3\0"])
def test_a_file_that_is_no_database_any_more_is_kept_and_made_anew(
    layout: Layout, own: dict[str, str], content: bytes
) -> None:
    layout.documents_db.write_bytes(content)
    assert ask(layout) == ANSWER
    damaged, report = kept(layout)
    assert damaged.read_bytes() == content
    assert "kept as" in report.read_text()


def test_a_database_that_is_gone_is_told_of_and_made_anew(layout: Layout, own: dict[str, str]) -> None:
    layout.documents_db.unlink()
    assert ask(layout) == ANSWER
    (report,) = kept(layout)
    assert "it is gone, though" in report.read_text()
    assert "copy of yours" in report.read_text()


@pytest.mark.parametrize("content", [b"", b"no database at all\n" * 400, None])
def test_what_is_in_no_file_comes_from_the_backup(layout: Layout, own: dict[str, str], content: bytes | None) -> None:
    assert back_up(layout.documents_db, layout.backups)
    if content is None:
        layout.documents_db.unlink()
    else:
        layout.documents_db.write_bytes(content)
    assert ask(layout) == ANSWER
    with Docmem(layout.documents_db) as docmem:
        assert {node_id: docmem.find(node_id).text for node_id in own} == own


def test_what_was_written_since_the_backup_is_taken_over_and_files_are_what_they_are_now(
    layout: Layout, own: dict[str, str]
) -> None:
    assert back_up(layout.documents_db, layout.backups)
    with Docmem(layout.documents_db) as docmem:
        newer = docmem.append_child(docmem.create_root(text="After").id, "memory", "by", "me", "Written since.")
    (layout.knowledge / "7.md").write_text("# Engine 7\n\nThe kestrel engine weighs 22 kilograms.\n")
    with closing(sqlite3.connect(layout.documents_db)) as sql:
        (root,) = sql.execute("SELECT rootpage FROM sqlite_master WHERE name = 'nodes_parent'").fetchone()
    with open(layout.documents_db, "r+b") as file:
        file.seek((root - 1) * PAGE)
        file.write(bytes(PAGE))
    assert ask(layout) == "The kestrel engine weighs 22 kilograms."
    with Docmem(layout.documents_db) as docmem:
        assert {node_id: docmem.find(node_id).text for node_id in own} == own
        assert docmem.find(newer.id).text == "Written since."


def test_what_stands_on_sound_pages_is_saved(layout: Layout, own: dict[str, str]) -> None:
    pages = layout.documents_db.stat().st_size // PAGE
    before = layout.documents_db.read_bytes()
    with open(layout.documents_db, "r+b") as file:
        file.seek(pages // 2 * PAGE)
        file.write(random.Random(1).randbytes(PAGE))
    spoilt = layout.documents_db.read_bytes()
    assert spoilt != before
    if describe_damage(layout.documents_db) is None:
        pytest.fail("the page was free: choose another")
    with Docmem(layout.documents_db) as docmem:
        assert Knowledge(docmem, layout).restore()
    assert ask(layout) == ANSWER
    assert next(path.read_bytes() for path in kept(layout) if path.name == "documents.db") == spoilt
    with Docmem(layout.documents_db) as docmem:
        saved = [node_id for node_id, text in own.items() if (node := docmem.find(node_id)) and node.text == text]
        assert len(saved) > len(own) * 0.7


@settings(max_examples=5, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from(["zero", "random", "cut"]))
@example(54099949, 2, "random")  # a length that no value has
@example(1830941901, 6, "random")  # a garbled name in the schema
def test_whatever_the_damage_questions_are_answered(seed: int, count: int, how: str) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout.at(Path(folder) / "hive")
        for path in layout.folders():
            path.mkdir(parents=True, exist_ok=True)
        fill(layout)
        raw = bytearray(layout.documents_db.read_bytes())
        for _ in range(count):
            at = chance.randrange(len(raw))
            length = chance.choice([1, 30, PAGE])
            if how == "cut":
                del raw[max(at, 1) :]
            else:
                raw[at : at + length] = bytes(length) if how == "zero" else chance.randbytes(length)
        layout.documents_db.write_bytes(raw)
        with Docmem(layout.documents_db) as docmem:
            knowledge = Knowledge(docmem, layout)
            knowledge.sync()
            knowledge.search("What does the kestrel engine weigh?")  # whatever it finds, it does not fail
            knowledge.restore()
        assert ask(layout) == ANSWER


def test_an_index_that_does_not_fit_is_rebuilt_in_place(layout: Layout, own: dict[str, str]) -> None:
    with closing(sqlite3.connect(layout.documents_db)) as sql:
        sql.execute("INSERT INTO words(words) VALUES ('delete-all')")
        sql.commit()
    with Docmem(layout.documents_db) as docmem:
        assert docmem.query("log") == []
        [done] = Knowledge(docmem, layout).restore()
        assert "was rebuilt (the full-text index does not match the texts" in done
        assert docmem.query("log")
    assert kept(layout) == []


def test_a_tree_that_was_cut_by_hand_is_as_the_backup_has_it(layout: Layout, own: dict[str, str]) -> None:
    assert back_up(layout.documents_db, layout.backups)
    with closing(sqlite3.connect(layout.documents_db)) as sql:
        sql.execute("PRAGMA foreign_keys = OFF")
        sql.execute("UPDATE nodes SET parent_id = 'nobody' WHERE text = 'Line 3 of the log, written by hand.'")
        sql.commit()
    with Docmem(layout.documents_db) as docmem:
        assert len(Knowledge(docmem, layout).restore()) == 1
        assert docmem.check() == []
        [log] = [root for root in docmem.roots() if root.text == "The log"]
        assert "Line 3 of the log, written by hand." in [node.text for node in docmem.serialize(log.id)]


def test_who_has_it_open_goes_on_with_the_new_one(layout: Layout, own: dict[str, str]) -> None:
    with Docmem(layout.documents_db) as user, Docmem(layout.documents_db) as other:
        root = next(root for root in user.roots() if root.text == "The log")
        with open(layout.documents_db, "r+b") as file:
            file.seek(100)
            file.write(bytes(PAGE - 100))
        other.close()
        assert Knowledge(other, layout).restore()
        user.append_child(user.create_root(text="After").id, "m", "n", "v", "written after it")
        assert [hit.node.text for hit in other.query("written after")] == ["written after it"]
        assert root.id


@pytest.mark.parametrize("point", ["documents.restore.saved", "documents.restore.unlogged"])
def test_restoring_that_is_killed_is_brought_to_its_end(layout: Layout, own: dict[str, str], point: str) -> None:
    with open(layout.documents_db, "r+b") as file:
        file.seek(2 * PAGE)
        file.write(bytes(3 * PAGE))
    assert describe_damage(layout.documents_db) is not None
    command = [WORKER, layout.documents_db, "mend", layout.root]
    assert Python(command, env={**os.environ, "HIVEMIND_CRASH_AT": point}).wait(timeout=60) == -9
    assert ask(layout) == ANSWER
    assert len([path for path in kept(layout) if path.name.endswith(REPORT_SUFFIX)]) == 1, "kept once"
    assert not list(layout.state.glob("*.restor*"))


def test_a_document_whose_root_was_lost_is_read_anew(tmp_path: Path) -> None:
    layout = Layout.at(tmp_path / "hive")
    for path in layout.folders():
        path.mkdir(parents=True, exist_ok=True)
    fill(layout)
    with closing(sqlite3.connect(layout.documents_db)) as damaged, damaged:
        damaged.execute("DELETE FROM nodes WHERE parent_id IS NULL")  # without foreign keys: no check of SQLite sees it
    for path in layout.knowledge.rglob("*.md"):
        path.write_text(f"{path.read_text()}\nMore.\n")
    with Docmem(layout.documents_db) as docmem:
        knowledge = Knowledge(docmem, layout)
        assert not knowledge.sync().skipped
        assert knowledge.search("More")
