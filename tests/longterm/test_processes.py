"""Many processes at one store, killed at any moment: whole or not at all, and nothing that was said to be stored is lost."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.doctor.context import DoctorContext
from hivemind.doctor.databases import check_databases
from hivemind.embedding import HashingEmbedder
from hivemind.errors import UnknownVersion, UserError
from hivemind.longterm import LongtermError, open_store
from tests.longterm.worker import SHARED
from tests.program import Python

_WORKER = Path(__file__).with_name("worker.py")


def start(
    database: Path, operation: str, argument: str = "", crash_at: str = "", stdout: int | None = None
) -> subprocess.Popen[bytes]:
    environment = os.environ | {"HIVEMIND_CRASH_AT": crash_at}
    return Python([_WORKER, database, operation, argument], env=environment, stdout=stdout)


def run(database: Path, operation: str, argument: str = "", crash_at: str = "") -> int:
    return start(database, operation, argument, crash_at).wait(timeout=120)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def test_of_eight_processes_that_upsert_and_are_killed_nothing_is_lost(database: Path) -> None:
    told: list[list[str]] = []
    workers = [start(database, "upserts", name, stdout=subprocess.PIPE) for name in "abcdefgh"]
    try:
        for worker in workers[:3]:  # killed in the middle of what they do
            assert worker.stdout is not None
            told += [worker.stdout.readline().decode().split() for _ in range(5)]
            worker.kill()
        for worker in workers:
            told += [line.decode().split() for line in worker.communicate(timeout=120)[0].splitlines()]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(timeout=60)
    assert [worker.returncode for worker in workers[3:]] == [0] * 5
    with open_store(database, HashingEmbedder()) as store:
        history = store.history(SHARED, "one")
        assert [entry.version for entry in history] == list(range(1, len(history) + 1))
        assert len({entry.id for entry in history}) == 1
        assert all(earlier.updated_at < later.updated_at for earlier, later in itertools.pairwise(history))
        keys = set(store.list(SHARED))
        assert len(told) >= 5 * 15 + 3 * 5
        for name, number, version in (line for line in told if len(line) == 3):
            assert history[int(version) - 1].content == f"said by {name} in turn {number}"
            assert f"{name}-{number}" in keys
        assert store.search(SHARED, "own text 7 of h", mode="vector")[0].key == "h-7"
        assert store.check() == []


def test_what_several_say_at_once_without_a_key_is_stored_once(database: Path) -> None:
    workers = [start(database, "same") for _ in range(3)]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0]
    with open_store(database, None) as store:
        contents = [hit.content for hit in store.search(SHARED, "", limit=100)]
        assert len(contents) == len(set(contents)) == 20


def test_compare_and_set_counts_every_turn(database: Path) -> None:
    workers = [start(database, "count") for _ in range(3)]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0]
    assert open_store(database, None).get(SHARED, "count").metadata == {"n": 60}


def test_what_one_process_stores_another_finds_at_once(database: Path) -> None:
    store = open_store(database, HashingEmbedder())
    store.put(SHARED, "first", "something else")
    searching = start(database, "searching")
    store.put(SHARED, "found-me", "zebra crossing")
    assert searching.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("operation", "argument", "point", "happened"),
    [
        ("put", "new", "longterm.schema.written", False),
        ("put", "new", "longterm.write.before_commit", False),
        ("put", "new", "longterm.write.committed", True),
        ("put_many", "new", "longterm.write.before_commit", False),
        ("put_many", "new", "longterm.write.committed", True),
        ("delete", "k", "longterm.write.before_commit", False),
        ("delete", "k", "longterm.write.committed", True),
    ],
)
def test_a_killed_write_happened_whole_or_not_at_all(
    database: Path, operation: str, argument: str, point: str, happened: bool
) -> None:
    if "schema" not in point:
        assert run(database, "put", "old") == 0
    assert run(database, operation, argument, point) == -signal.SIGKILL
    with open_store(database, HashingEmbedder()) as store:
        assert store.check() == []
        entry, many = store.get(SHARED, "k"), [key for key in store.list(SHARED) if key.startswith("many")]
        if operation == "put":
            assert (entry and entry.content) == ("new" if happened else None if "schema" in point else "old")
        elif operation == "put_many":
            assert len(many) == (500 if happened else 0)
        else:
            assert (entry is None) is happened
    assert run(database, "put", "after") == 0  # nobody waits for the dead
    assert open_store(database, None).get(SHARED, "k").content == "after"


def test_a_killed_reindex_goes_on_where_it_stopped(database: Path) -> None:
    assert run(database, "put_many", "text") == 0
    assert run(database, "reindex", "other-model", "search.embed.batch:3") == -signal.SIGKILL
    embedder = HashingEmbedder()
    embedder.name = "other-model"  # type: ignore[misc]
    store = open_store(database, embedder)
    assert store.status().pending == 500 - 3 * 64
    assert store.reindex() == 500 - 3 * 64
    assert store.check() == []


def test_a_store_is_used_on_after_a_fork(database: Path) -> None:
    store = open_store(database, HashingEmbedder())
    store.put(SHARED, "parent", "before the fork")
    store.search(SHARED, "fork")
    child = os.fork()
    if child == 0:
        store.put(SHARED, "child", "in the fork")
        os._exit(0 if len(store.search(SHARED, "fork")) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert {hit.key for hit in store.search(SHARED, "fork")} == {"parent", "child"}
    assert store.check() == []


# files that are not as they should be


@pytest.mark.parametrize("version", [6, 8])
def test_a_database_of_another_version_is_refused_and_kept(database: Path, version: int) -> None:
    with open_store(database, None) as store:
        store.put(SHARED, "k", "x")
        with store.database.write() as sql:
            sql.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(UnknownVersion, match=f"version {version}"):
        open_store(database, None).list(SHARED)


@pytest.mark.parametrize("content", [b"no database at all, but a text", b"\0" * 5000])
def test_what_is_no_database_is_refused_and_kept(database: Path, content: bytes) -> None:
    database.write_bytes(content)
    with pytest.raises(UserError, match="is not a database"):
        open_store(database, None).put(SHARED, "k", "x")
    assert database.read_bytes() == content


def test_a_damaged_database_is_said_to_be_damaged(database: Path) -> None:
    with open_store(database, None) as store:
        store.put_many(SHARED, {f"k{number}": "text " * 50 for number in range(200)})
    with database.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(database.stat().st_size - 4096))
    with pytest.raises(LongtermError, match="damaged"):
        open_store(database, None).search(SHARED, "text")


def test_a_lost_index_is_made_anew_and_a_restored_copy_is_believed(database: Path, tmp_path: Path) -> None:
    with open_store(database, HashingEmbedder()) as store:
        store.put(SHARED, "old", "zebra crossing")
        store.search(SHARED, "zebra", mode="vector")
        with store.database.read() as sql:
            sql.execute("SELECT 1")
    store.close()
    copy = database.read_bytes()
    with open_store(database, HashingEmbedder()) as store:
        store.put_many(SHARED, {f"k{number}": "zebra crossing" for number in range(5)})
        assert len(store.search(SHARED, "zebra", mode="vector")) == 6
    for name in (database.with_name("memory.db-wal"), database.with_name("memory.db-shm"), database):
        name.unlink(missing_ok=True)
    database.write_bytes(copy)  # an older state of the same database, beside an index that has seen more
    with open_store(database, HashingEmbedder()) as store:
        assert [hit.key for hit in store.search(SHARED, "zebra", mode="vector")] == ["old"]
        store.put(SHARED, "new", "zebra crossing")
        assert len(store.search(SHARED, "zebra", mode="vector")) == 2


def test_what_was_changed_behind_the_programs_back_is_named_and_mended(tmp_path: Path) -> None:
    hive = Hive.init(tmp_path / "hive")
    database = hive.layout.memory_db
    with open_store(database, HashingEmbedder()) as store:
        store.put_many(SHARED, {"a": "zebra crossing", "b": "green tea"})
    with closing(sqlite3.connect(database, isolation_level=None)) as sql:
        sql.execute("DROP TRIGGER entries_reworded")
        sql.execute("UPDATE entries SET content = 'lorries' WHERE key = 'a'")
        sql.execute("UPDATE namespaces SET entries = 7")
    found = [
        finding
        for finding in check_databases(DoctorContext(hive.layout))
        if str(finding.location).endswith("memory.db")
    ]
    assert found
    assert all("is inconsistent" in finding.message for finding in found)
    with open_store(database, HashingEmbedder()) as store:
        store.rebuild()
        assert store.check() == []
        assert [hit.key for hit in store.search(SHARED, "lorries", mode="text")] == ["a"]
        assert store.embed_pending() == 1
