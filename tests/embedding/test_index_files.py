"""An index in files: shared by processes, killed anywhere, believed only for its own source."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind.embedding import VectorIndex, VectorTable, pack
from tests.embedding.test_index import DIMENSION, vector

ROW = DIMENSION * 4


def test_another_process_finds_what_was_just_added(tmp_path: Path) -> None:
    mine, other = (VectorIndex(DIMENSION, folder=tmp_path, source="s") for _ in range(2))
    assert other.search(vector(1), 1) == []
    mine.put(1, vector(1))
    assert other.search(vector(1), 1) == [(1, 1.0)]
    other.apply([(1, 0, None)], seen=9)
    assert mine.search(vector(1), 1) == []
    assert mine.seen == 9


def test_an_index_of_another_source_is_begun_anew(tmp_path: Path) -> None:
    VectorIndex(DIMENSION, folder=tmp_path, source="one").apply([(1, 0, pack(vector(1), DIMENSION))], seen=5)
    other = VectorIndex(DIMENSION, folder=tmp_path, source="two")
    assert (len(other), other.seen) == (0, 0)
    assert len(list(tmp_path.glob("*.keys"))) == 1


def test_who_has_the_old_files_open_reads_the_new_ones_next(tmp_path: Path) -> None:
    mine, other = (VectorIndex(DIMENSION, folder=tmp_path, source="s") for _ in range(2))
    mine.put(1, vector(1))
    assert len(other) == 1
    mine.clear()
    mine.put(2, vector(2))
    assert other.search(vector(2), 5) == [(2, 1.0)]


def test_an_index_that_is_dropped_gives_its_files_back_also_one_that_was_found_damaged(tmp_path: Path) -> None:
    def use() -> None:
        VectorIndex(DIMENSION, folder=tmp_path, source="s").put(1, vector(1))
        rows = next(tmp_path.glob("*.rows"))
        rows.write_bytes(b"cut off")
        assert len(VectorIndex(DIMENSION, folder=tmp_path, source="s")) == 0

    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        use()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("damage", ["header", "no header", "count", "no count", "short", "gone"])
def test_what_is_damaged_is_begun_anew(tmp_path: Path, damage: str) -> None:
    VectorIndex(DIMENSION, folder=tmp_path, source="s").apply([(1, 0, pack(vector(1), DIMENSION))], seen=5)
    header, rows = tmp_path / "index-3.json", next(tmp_path.glob("*.rows"))
    if damage == "header":
        header.write_text("{")
    elif damage == "no header":
        header.unlink()
    elif damage == "count":
        next(tmp_path.glob("*.count")).write_bytes(bytes(40))
    elif damage == "no count":
        next(tmp_path.glob("*.count")).unlink()
    elif damage == "short":
        os.truncate(rows, 3)
    else:
        rows.unlink()
    index = VectorIndex(DIMENSION, folder=tmp_path, source="s")
    assert (len(index), index.seen) == (0, 0)
    index.put(1, vector(1))
    assert index.search(vector(1), 5) == [(1, 1.0)]


def test_the_files_of_an_earlier_format_are_swept_away(tmp_path: Path) -> None:
    left = [tmp_path / name for name in ("index-1.json", "v1-0123abcd.keys", "v1-0123abcd.bits", "v1-0123abcd.rows")]
    for path in left:
        path.write_bytes(b"{}")
    (tmp_path / "notes.txt").write_text("not ours")

    VectorIndex(DIMENSION, folder=tmp_path, source="s").put(1, vector(1))

    assert not any(path.exists() for path in left)
    assert (tmp_path / "notes.txt").exists()


def test_pages_of_an_earlier_start_of_the_machine_are_not_believed(tmp_path: Path) -> None:
    VectorIndex(DIMENSION, folder=tmp_path, source="s").apply([(1, 0, pack(vector(1), DIMENSION))], seen=5)
    header = tmp_path / "index-3.json"
    record = json.loads(header.read_text())
    record["source"] = record["source"].rpartition(" ")[0] + " another-boot"
    header.write_text(json.dumps(record))
    assert VectorIndex(DIMENSION, folder=tmp_path, source="s").seen == 0


def test_changes_that_somebody_else_took_in_first_are_left(tmp_path: Path) -> None:
    index = VectorIndex(DIMENSION, folder=tmp_path, source="s")
    assert index.apply([(1, 0, pack(vector(1), DIMENSION))], seen=5, since=0)
    assert not index.apply([(1, 0, pack(vector(2), DIMENSION))], seen=4, since=0)
    assert index.search(vector(1), 1) == [(1, 1.0)]


@pytest.mark.parametrize("point", ["embedding.index.written", "embedding.index.killed", "embedding.index.begun"])
def test_killed_in_the_middle_the_same_changes_give_the_same_index(tmp_path: Path, point: str) -> None:
    index = VectorIndex(DIMENSION, folder=tmp_path, source="s")
    if point != "embedding.index.begun":
        index.apply([(1, 0, pack(vector(1), DIMENSION)), (2, 0, pack(vector(2), DIMENSION))], seen=2)
    code = (
        "from tests.embedding.test_index_files import *\n"
        f"VectorIndex(DIMENSION, folder={str(tmp_path)!r}, source='s').apply(CHANGE, seen=4)"
    )
    environ = {**os.environ, "HIVEMIND_CRASH_AT": point}
    done = subprocess.run([sys.executable, "-c", code], env=environ, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    assert index.seen == (0 if point == "embedding.index.begun" else 2)
    index.apply(CHANGE, seen=4)
    assert index.search(vector(3), 9)[0] == (3, 1.0)
    assert index.search(vector(5), 1) == [(1, 1.0)]
    assert len(index) == (2 if point == "embedding.index.begun" else 3)


CHANGE = [(1, 0, pack(vector(5), DIMENSION)), (3, 0, pack(vector(3), DIMENSION))]


def _database(path: Path) -> sqlite3.Connection:
    sql = sqlite3.connect(path, isolation_level=None, timeout=60)
    sql.execute("PRAGMA journal_mode = WAL")
    return sql


def _fill(path: Path, folder: Path, first: int) -> None:
    sql, table = _database(path), VectorTable()
    for key in range(first, first + 40):
        table.put(sql, "m", [(key, 0, pack(vector(key), DIMENSION))])
        found = table.search(sql, folder, "m", pack(vector(key), DIMENSION), 1)
        assert found == [(key, 1.0)], found


def test_processes_find_their_own_rows_at_once_while_all_write(tmp_path: Path) -> None:
    path, folder = tmp_path / "a.db", tmp_path / "a.vectors"
    sql = _database(path)
    for statement in VectorTable().schema:
        sql.execute(statement)
    running = [
        multiprocessing.get_context("spawn").Process(target=_fill, args=(path, folder, 100 * number))
        for number in range(3)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join()
    assert [process.exitcode for process in running] == [0, 0, 0]
    assert len(VectorTable().search(sql, folder, "m", pack(vector(1), DIMENSION), 500)) == 120


def test_a_table_is_followed_through_updates_deletions_and_other_models(tmp_path: Path) -> None:
    sql, table = _database(tmp_path / "a.db"), VectorTable("mine")
    for statement in table.schema:
        sql.execute(statement)

    def keys(model: str) -> list[int]:
        return [key for key, _ in table.search(sql, tmp_path / "v", model, pack(vector(1), DIMENSION), 9)]

    table.put(sql, "m", [(key, 0, pack(vector(key), DIMENSION)) for key in (1, 2, 3)])
    assert sorted(keys("m")) == [1, 2, 3]
    sql.execute("DELETE FROM mine WHERE key = 2")
    table.put(sql, "m", [(3, 0, pack(vector(1), DIMENSION))])
    assert keys("m") == [1, 3]
    assert keys("another") == []
    table.put(sql, "another", [(1, 0, pack(vector(1), DIMENSION))])
    assert (keys("m"), keys("another")) == ([3], [1])


def test_a_database_put_back_from_a_copy_is_read_anew(tmp_path: Path) -> None:
    path, table = tmp_path / "a.db", VectorTable()
    sql = sqlite3.connect(path, isolation_level=None)
    for statement in table.schema:
        sql.execute(statement)
    table.put(sql, "m", [(1, 0, pack(vector(1), DIMENSION))])
    copy = path.read_bytes()
    table.put(sql, "m", [(2, 0, pack(vector(2), DIMENSION))])
    assert table.search(sql, tmp_path / "v", "m", pack(vector(2), DIMENSION), 1) == [(2, 1.0)]
    sql.close()
    (tmp_path / "b.db").write_bytes(copy)
    os.replace(tmp_path / "b.db", path)
    sql = sqlite3.connect(path, isolation_level=None)
    assert table.search(sql, tmp_path / "v", "m", pack(vector(2), DIMENSION), 9)[0][0] == 1
