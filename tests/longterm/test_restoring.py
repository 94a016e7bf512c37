"""A damaged memory database: kept as it is; its last backup takes its place, with the newer rows that can be read."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hivemind.embedding import HashingEmbedder
from hivemind.fs.backup import REPORT_SUFFIX, back_up, next_backup, restore
from hivemind.fs.database import describe_damage
from hivemind.longterm import MemoryStore, StoreDamaged, open_store
from tests.longterm.test_processes import start

PAGE = 4_096
USERS = [("memories", f"u{number}") for number in range(3)]
SAID = {
    (user, f"k{number}"): f"text {number} of {user[1]}, {'word ' * (number % 30)}"
    for user in USERS
    for number in range(80)
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound database: entries, versions, an embedding that was given, links between entries."""
    path = tmp_path_factory.mktemp("whole") / "memory.db"
    with open_store(path, HashingEmbedder()) as store:
        for user in USERS:
            store.put_many(user, {key: "at first" for space, key in SAID if space == user})
            store.put_many(user, {key: text for (space, key), text in SAID.items() if space == user})
        parent = store.get(USERS[0], "k0")
        store.put(USERS[0], "k1", {"content": SAID[USERS[0], "k1"], "parent_id": parent.id, "links": {"next": "k2"}})
        store.put(USERS[1], "k1", {"content": SAID[USERS[1], "k1"], "embedding": [1.0, *[0.0] * 383]})
        store.create_user("ann")
    return path.read_bytes()


@pytest.fixture
def database(tmp_path: Path, whole: bytes) -> Path:
    path = tmp_path / "memory.db"
    path.write_bytes(whole)
    return path


def restored(database: Path) -> tuple[dict, str]:
    """All that is there after restoring, and what was said of it."""
    damaged, folder = database.read_bytes(), database.parent
    with open_store(database, HashingEmbedder()) as store:
        done = restore(store, folder / "backups", folder / "aside", print)
        assert store.check() == []
        assert describe_damage(database) is None
        assert restore(store, folder / "backups", folder / "aside", print) == []
        found = {(space, key): store.get(space, key) for space in store.namespaces() for key in store.list(space)}
    if any("was damaged" in line for line in done):
        assert next((folder / "aside").glob("*/memory.db")).read_bytes() == damaged
        assert next((folder / "aside").glob(f"*/*{REPORT_SUFFIX}")).read_text().strip() == done[0]
    return found, "; ".join(done)


def contents(found: dict) -> dict:
    return {place: entry.content for place, entry in found.items()}


def say_since(database: Path) -> dict:
    """What is remembered after the backup: new entries, and one that says something else."""
    said = {(USERS[0], f"new{number}"): f"said since, number {number}, {'word ' * 20}" for number in range(30)}
    said[USERS[0], "k7"] = "changed since"
    with open_store(database, HashingEmbedder()) as store:
        store.put_many(USERS[0], {key: text for (_, key), text in said.items()})
    return said


def spoil(database: Path, index: str = "entries_digest") -> None:
    """Damage the pages of an index: the rows themselves can be read."""
    with closing(sqlite3.connect(database)) as sql:
        (root,) = sql.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)).fetchone()
    raw = bytearray(database.read_bytes())
    raw[(root - 1) * PAGE : root * PAGE] = b"\xff" * PAGE
    database.write_bytes(raw)


def test_what_is_sound_is_left_alone(database: Path) -> None:
    found, said = restored(database)
    assert (len(found), said) == (len(SAID), "")


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_damage_all_that_was_backed_up_is_there(database: Path, seed: int) -> None:
    assert back_up(database, database.parent / "backups")
    chance, raw = random.Random(seed), bytearray(database.read_bytes())
    for _ in range(1 + seed % 3):
        at = chance.randrange(1, len(raw) // PAGE) * PAGE
        raw[at : at + PAGE] = chance.choice([bytes(PAGE), chance.randbytes(PAGE)])
    database.write_bytes(raw)
    found, said = restored(database)
    assert contents(found) == SAID, said


@pytest.mark.parametrize(
    "content", [b"no database at all\n" * 400, b"SQLite format 3\0", b"SQLite format 3\0" + bytes(8_000), b""]
)
def test_the_backup_takes_the_place_of_what_is_no_database_any_more(database: Path, content: bytes) -> None:
    with open_store(database, HashingEmbedder()) as store:  # notes that a database was made here
        store.check()
    assert back_up(database, database.parent / "backups")
    database.write_bytes(content)
    found, said = restored(database)
    assert contents(found) == SAID
    assert "replaces it" in said


def test_without_a_backup_it_is_begun_anew_and_said_so(database: Path) -> None:
    database.write_bytes(b"no database at all\n" * 400)
    found, said = restored(database)
    assert found == {}
    assert "no backup exists, and an empty database replaces it" in said
    assert "copy of yours" in said
    with open_store(database, HashingEmbedder()) as store:
        store.put(USERS[0], "new", "after the damage")
        assert [hit.key for hit in store.search(USERS[0], "damage")] == ["new"]


def test_newer_rows_are_taken_over_as_far_as_they_can_be_read(database: Path) -> None:
    assert back_up(database, database.parent / "backups")
    since = say_since(database)
    spoil(database)
    found, said = restored(database)
    assert contents(found) == SAID | since, said
    assert "newer rows were recovered" in said
    with open_store(database, HashingEmbedder()) as store:
        assert [hit.key for hit in store.search(USERS[0], "said since number 3")][:1] == ["new3"]
        assert [one.content for one in store.history(USERS[0], "k7")][-2:] == [SAID[USERS[0], "k7"], "changed since"]
        assert store.put(USERS[0], "more", "and goes on").version == 1
        assert store.check() == []


def test_without_a_backup_all_that_can_be_read_is_there(database: Path) -> None:
    spoil(database)
    found, _ = restored(database)
    assert contents(found) == SAID
    child = found[USERS[0], "k1"]
    assert (child.parent_id, child.links, child.version) == (found[USERS[0], "k0"].id, {"next": "k2"}, 3)
    assert found[USERS[1], "k1"].embedding[:2] == (1.0, 0.0)
    with open_store(database, HashingEmbedder()) as store:
        assert [version.content for version in store.history(USERS[0], "k5")] == ["at first", SAID[USERS[0], "k5"]]
        assert [user.name for user in store.users()] == ["ann"]


def test_a_backup_that_is_damaged_itself_is_passed_over(database: Path) -> None:
    backups = database.parent / "backups"
    assert back_up(database, backups)
    since = say_since(database)
    newest = back_up(database, backups)
    assert newest is not None
    spoil(newest)
    database.write_bytes(b"no database at all")
    found, _ = restored(database)
    assert contents(found) == SAID
    assert since


def test_the_last_two_backups_are_kept_each_with_the_time_of_its_state(database: Path) -> None:
    backups, made = database.parent / "backups", []
    for number in range(4):
        with open_store(database, HashingEmbedder()) as store:
            store.put(USERS[0], "k", f"number {number}")
        os.utime(database, (1_000_000_000 + number, 1_000_000_000 + number))
        assert next_backup(database, backups) == (0.0 if not number else 1_000_000_000 + number - 1 + 3_600)
        made.append(back_up(database, backups))
        assert next_backup(database, backups) is None
    assert [path.name for path in sorted(backups.iterdir()) if "lock" not in path.name] == [
        path.name for path in made[2:]
    ]
    assert made[3].stat().st_mtime == 1_000_000_003


def test_of_a_damaged_database_no_backup_is_made(database: Path) -> None:
    backups = database.parent / "backups"
    good = back_up(database, backups)
    spoil(database)
    assert back_up(database, backups) is None
    assert [path for path in backups.iterdir() if "lock" not in path.name] == [good]


def test_a_row_that_makes_no_sense_is_told_as_damage_and_the_backup_has_it(database: Path) -> None:
    assert back_up(database, database.parent / "backups")
    with closing(sqlite3.connect(database)) as sql:
        sql.execute("UPDATE entries SET created_at = 9e18, links = '[' WHERE key = 'k3' AND space = 1")
        sql.commit()
    with (
        open_store(database, HashingEmbedder()) as store,
        pytest.raises(StoreDamaged, match="'k3': is a row that cannot be read"),
    ):
        store.get(USERS[0], "k3")
    found, said = restored(database)
    assert contents(found) == SAID
    assert "unreadable" in said


def test_who_has_it_open_goes_on_with_the_new_one(database: Path) -> None:
    with open_store(database, HashingEmbedder()) as reader:
        assert len(reader.list(USERS[0])) == 80
        database.write_bytes(b"no database any more")
        restored(database)
        assert reader.list(USERS[0]) == []
        assert reader.put(USERS[0], "k", "after").version == 1


@pytest.mark.parametrize("point", ["longterm.restore.saved", "longterm.restore.unlogged"])
def test_restoring_that_is_killed_is_brought_to_its_end(database: Path, point: str) -> None:
    assert back_up(database, database.parent / "backups")
    spoil(database)
    killed = start(database, "mend", crash_at=point)
    assert killed.wait(timeout=60) == -signal.SIGKILL
    assert start(database, "mend").wait(timeout=60) == 0
    with MemoryStore(database) as store:
        assert store.check() == []
        assert sum(len(store.list(user)) for user in USERS) == len(SAID)
    assert len(list((database.parent / "aside").glob("*/memory.db"))) == 1
    assert {path.name for path in database.parent.iterdir()} <= {
        "memory.db", "memory.db.lock", "memory.db-wal", "memory.db-shm", "aside", "backups",
    }  # fmt: skip


NONSENSE = {
    "metadata": ("UPDATE entries SET metadata = ? WHERE key = 'k3'", "[" * 100_000),
    "a number": ("UPDATE entries SET metadata = ? WHERE key = 'k3'", '{"a": ' + "9" * 10_000 + "}"),
    "no object": ("UPDATE entries SET metadata = ? WHERE key = 'k3'", "[1]"),
    "links": ("UPDATE entries SET links = ? WHERE key = 'k3'", "{"),
    "a version": ("UPDATE versions SET metadata = ? WHERE version = 1", "[" * 100_000),
    "a version's time": ("UPDATE versions SET updated_at = ? WHERE version = 1", 10**17),
    "a namespace": ("UPDATE namespaces SET path = ? WHERE id = 1", "[" * 100_000),
    "a vector": ("UPDATE given SET vector = ?", b"123"),
    "parts": ("UPDATE parts SET vectors = ?", b"123"),
    "a time": ("UPDATE entries SET created_at = ? WHERE key = 'k3'", 10**17),
}


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_a_row_that_makes_no_sense_is_damage_and_restored_whatever_reads_it(database: Path, nonsense: str) -> None:
    assert back_up(database, database.parent / "backups")
    statement, value = NONSENSE[nonsense]
    with open_store(database, HashingEmbedder()) as store:
        for number in range(3):
            store.put(
                USERS[0], f"long{number}", "Bees make honey in hives each year. They dance to tell of flowers in bloom."
            )
        with store.database.write() as sql:
            sql.execute("DROP INDEX entries_session")
            sql.execute("DROP INDEX entries_speaker")  # they would refuse nonsense, as a damaged page does not
            assert sql.execute(statement, (value,)).rowcount
        uses = (
            lambda: store.get(USERS[0], "k3"), lambda: store.history(USERS[0], "k3"), lambda: store.get(USERS[1], "k1"),
            lambda: store.search(USERS[0], "text 3 of bees", limit=400), store.namespaces, store.check,
            lambda: store.search(USERS[0], "text", metadata={"a": 1}, limit=400), lambda: store.list(USERS[0]),
        )  # fmt: skip
        for use in uses:
            with contextlib.suppress(StoreDamaged):
                use()
        restore(store, database.parent / "backups", database.parent / "aside", print)
        for use in uses:
            use()
        assert store.get(USERS[2], "k3").content == SAID[USERS[2], "k3"]
