"""Several processes at one database."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from hivemind.documents import Docmem, DocmemError, Knowledge
from hivemind.errors import UnknownVersion
from hivemind.layout import Layout
from tests.program import Python

_WORKER = Path(__file__).with_name("worker.py")


def start(database: Path, name: str, argument: object = "") -> subprocess.Popen[str]:
    return Python([_WORKER, database, name, str(argument)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return output


def test_writers_wait_for_each_other_and_lose_nothing(tmp_path: Path) -> None:
    database = tmp_path / "documents.db"
    with Docmem(database) as docmem:
        docmem.create_root("other")
        for process in [start(database, "append", 100) for _ in range(4)]:
            finish(process)
        nodes = docmem.serialize("other")[1:]
        assert len({node.text for node in nodes}) == 400
        assert [node.order_value for node in nodes] == [float(number) for number in range(1, 401)]


def test_two_processes_that_move_sections_under_each_other_never_make_a_cycle(tmp_path: Path) -> None:
    database = tmp_path / "documents.db"
    with Docmem(database) as docmem:
        docmem.create_root("big")
        for section in ("s0", "s1"):
            docmem.append_child("big", "m", "n", "v", section, id=section)
        for process in [start(database, "swap", 100) for _ in range(2)]:
            finish(process)
        assert docmem.check() == []
        assert len(docmem.serialize("big")) == 3


def test_two_processes_that_make_the_database_at_once_make_one(tmp_path: Path) -> None:
    database = tmp_path / "new.db"
    for process in [start(database, "serve") for _ in range(4)]:
        output, _ = process.communicate('["create_root"]\n', timeout=60)
        assert json.loads(output)["id"]
    with Docmem(database) as docmem:
        assert len(docmem.roots()) == 4


def test_two_agents_that_sync_at_once_import_each_file_once(layout: Layout) -> None:
    for number in range(30):
        (layout.knowledge / f"{number}.md").write_text(f"# Title {number}\n\nText {number}.\n")
    reports = [json.loads(finish(p)) for p in [start(layout.documents_db, "sync", layout.root) for _ in range(3)]]
    assert sum(imported for imported, _, _ in reports) == 30
    assert sum(changed for _, changed, _ in reports) == 0
    with Docmem(layout.documents_db) as docmem:
        assert len(docmem.roots()) == 30


def test_an_unchanged_file_is_not_opened(layout: Layout) -> None:
    for number in range(5):
        path = layout.knowledge / f"{number}.md"
        path.write_text(f"Text {number}.\n")
    with Docmem(layout.documents_db) as docmem:
        Knowledge(docmem, layout).sync()
        with docmem.transaction() as edit:  # as if they had been read long after they were written
            edit.sql.execute("UPDATE files SET seen_ns = seen_ns + 60000000000")
    assert json.loads(finish(start(layout.documents_db, "count_reads", layout.root))) == []
    (layout.knowledge / "3.md").write_text("Another text.\n")
    opened = json.loads(finish(start(layout.documents_db, "count_reads", layout.root)))
    assert opened == ["3.md"]


def test_a_forked_child_uses_a_connection_of_its_own(tmp_path: Path) -> None:
    with Docmem(tmp_path / "documents.db") as docmem:
        docmem.create_root("mine")
        inherited = docmem.database._connection
        child = os.fork()
        if child == 0:
            status = 1
            try:
                docmem.append_child("mine", "m", "n", "v", "from the child")
                status = int(docmem.database._connection is inherited)
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        docmem.append_child("mine", "m", "n", "v", "from the parent")
        assert [node.text for node in docmem.serialize("mine")] == ["", "from the child", "from the parent"]
        assert docmem.check() == []


def test_threads_of_one_process_take_turns(tmp_path: Path) -> None:
    with Docmem(tmp_path / "documents.db") as docmem:
        docmem.create_root("mine")

        def work() -> None:
            for _ in range(25):
                docmem.append_child("mine", "m", "n", "v", "x")
                docmem.serialize("mine")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(docmem.serialize("mine")) == 101


def test_readers_see_the_last_state_while_someone_writes(tmp_path: Path) -> None:
    writer, reader = Docmem(tmp_path / "documents.db"), Docmem(tmp_path / "documents.db")
    writer.create_root("mine")
    with writer.transaction():
        writer.append_child("mine", "m", "n", "v", "not yet")
        assert len(reader.serialize("mine")) == 1
    assert len(reader.serialize("mine")) == 2
    writer.close()
    reader.close()


def test_a_part_that_fails_is_undone_alone(tmp_path: Path) -> None:
    with Docmem(tmp_path / "documents.db") as docmem:
        root = docmem.create_root()
        with docmem.transaction():
            docmem.append_child(root.id, "m", "n", "v", "kept")
            with pytest.raises(DocmemError):
                docmem.import_toml(
                    '[[node]]\ncontext_type="a"\ncontext_name="b"\ncontext_value="c"\n'
                    '[[node]]\ndepth=1\norder=1\ncontext_type="a"\ncontext_name="b"\ncontext_value="c"\n'
                    '[[node]]\ndepth=1\norder=1\ncontext_type="a"\ncontext_name="b"\ncontext_value="c"\n'
                )
        assert [node.text for node in docmem.serialize(root.id)] == ["", "kept"]
        assert len(docmem.roots()) == 1
        with contextlib.suppress(ZeroDivisionError), docmem.transaction():
            docmem.append_child(root.id, "m", "n", "v", "gone")
            raise ZeroDivisionError
        assert len(docmem.serialize(root.id)) == 2


@pytest.mark.parametrize("version", [5, 99])
def test_a_database_of_another_version_is_refused_and_kept(tmp_path: Path, version: int) -> None:
    path = tmp_path / "documents.db"
    with Docmem(path) as docmem:
        docmem.create_root()
    with sqlite3.connect(path) as sql:
        sql.execute(f"PRAGMA user_version = {version}")
    sql.close()
    kept = path.read_bytes()
    with pytest.raises(UnknownVersion, match=f"version {version}"):
        Docmem(path).roots()
    assert path.read_bytes() == kept


@pytest.mark.parametrize("content", [b"no database at all", b"SQLite format 3\0 but nothing more" + b"x" * 5000])
def test_a_damaged_file_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "documents.db"
    path.write_bytes(content)
    with pytest.raises((DocmemError, UnknownVersion), match=r"documents\.db"):
        Docmem(path).roots()
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "documents.db"
    with sqlite3.connect(path) as sql:
        sql.execute("CREATE TABLE theirs (x)")
    sql.close()
    with pytest.raises(DocmemError, match="another program"):
        Docmem(path).roots()
    with sqlite3.connect(path) as sql:
        assert [row[0] for row in sql.execute("SELECT name FROM sqlite_master")] == ["theirs"]
    sql.close()


def test_a_missing_folder_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(DocmemError, match="nowhere"):
        Docmem(tmp_path / "nowhere" / "documents.db").roots()


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    with Docmem(tmp_path / "documents.db") as docmem:
        root = docmem.create_root()
        with docmem.database.read() as sql:
            (pages,) = sql.execute("PRAGMA page_count").fetchone()
        with docmem.database.read() as sql:
            sql.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(DocmemError, match="disk is full"):
            docmem.append_child(root.id, "m", "n", "v", "word " * 100_000)
        assert len(docmem.serialize(root.id)) == 1
        docmem.append_child(root.id, "m", "n", "v", "small")
        assert docmem.check() == []
