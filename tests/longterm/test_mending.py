"""A damaged memory database: kept as it is, and what can be read of it stands in a new one, whatever the damage."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hivemind.embedding import HashingEmbedder
from hivemind.fs.mending import REPORT
from hivemind.fs.soundness import unsound
from hivemind.longterm import MemoryStore, StoreDamaged, check_namespace, open_store
from hivemind.longterm.mending import mend
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
    with open_store(path, HashingEmbedder(), durable=False) as store:
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


def mended(database: Path) -> tuple[dict, str]:
    """All that is there after mending, and what was said of it."""
    damaged = database.read_bytes()
    aside = database.parent / "aside"
    with open_store(database, HashingEmbedder(), durable=False) as store:
        done = mend(store, aside)
        assert store.check() == []
        assert unsound(database) is None
        assert mend(store, aside) == []
        found = {(space, key): store.get(space, key) for space in store.namespaces() for key in store.list(space)}
    if any("was damaged" in line for line in done):
        assert next(aside.glob("*/memory.db")).read_bytes() == damaged
        assert next(aside.glob(f"*/*{REPORT}")).read_text().strip() == done[0]
    return found, "; ".join(done)


def test_what_is_sound_is_left_alone(database: Path, whole: bytes) -> None:
    found, said = mended(database)
    assert (len(found), said) == (len(SAID), "")


@pytest.mark.parametrize("seed", range(12))
def test_pages_that_are_gone_take_only_what_stood_on_them(database: Path, whole: bytes, seed: int) -> None:
    chance, raw = random.Random(seed), bytearray(whole)
    for _ in range(1 + seed % 3):
        at = chance.randrange(1, len(raw) // PAGE) * PAGE
        raw[at : at + PAGE] = chance.choice([bytes(PAGE), chance.randbytes(PAGE)])
    database.write_bytes(raw)
    found, said = mended(database)
    assert len(found) >= len(SAID) / 2, said
    for (space, key), entry in found.items():
        if space[0] != "recovered":
            assert entry.content == SAID[space, key]  # behind its own wall, with its own words
    missing = len(SAID) - len(found)
    assert not missing or f"{missing} could not be:" in said, said


def test_of_a_file_that_was_cut_off_the_rest_is_saved(database: Path, whole: bytes) -> None:
    database.write_bytes(whole[: len(whole) * 3 // 4])
    found, said = mended(database)
    assert len(found) > len(SAID) / 4
    assert f"{len(found)} memories of" in said


@pytest.mark.parametrize(
    "content", [b"no database at all\n" * 400, b"SQLite format 3\0", b"SQLite format 3\0" + bytes(8_000)]
)
def test_what_is_no_database_any_more_is_kept_and_a_new_one_begun(database: Path, content: bytes) -> None:
    database.write_bytes(content)
    assert mended(database)[0] == {}
    with open_store(database, HashingEmbedder()) as store:
        store.put(USERS[0], "new", "after the damage")
        assert [hit.key for hit in store.search(USERS[0], "damage")] == ["new"]


def test_versions_links_parents_users_and_given_embeddings_are_saved_and_vectors_made_anew(
    database: Path, whole: bytes
) -> None:
    database.write_bytes(whole + b"\0" * PAGE)  # a page too many: SQLite does not mind, so let one tree be damaged
    with closing(sqlite3.connect(database)) as sql:
        (root,) = sql.execute("SELECT rootpage FROM sqlite_master WHERE name = 'entries_digest'").fetchone()
    raw = bytearray(database.read_bytes())
    raw[(root - 1) * PAGE : root * PAGE] = b"\xff" * PAGE
    database.write_bytes(raw)
    found, said = mended(database)
    assert {place: entry.content for place, entry in found.items()} == SAID
    assert f"{len(SAID) + 2} earlier versions" in said
    child = found[USERS[0], "k1"]
    assert (child.parent_id, child.links, child.version) == (found[USERS[0], "k0"].id, {"next": "k2"}, 3)
    assert found[USERS[1], "k1"].embedding[:2] == (1.0, 0.0)
    with open_store(database, HashingEmbedder()) as store:
        assert [version.content for version in store.history(USERS[0], "k5")] == ["at first", SAID[USERS[0], "k5"]]
        assert [user.name for user in store.users()] == ["ann"]
        assert store.status().pending == len(SAID) - 1
        assert store.reindex() == len(SAID) - 1
        assert store.put(USERS[0], "more", "said since").version == 1


def test_entries_whose_namespace_is_lost_are_nobodys(database: Path) -> None:
    with closing(sqlite3.connect(database)) as sql:
        sql.execute("PRAGMA foreign_keys = OFF")
        sql.execute("UPDATE namespaces SET path = 'garbled' WHERE path LIKE '%u1%'")
        sql.commit()
    found, said = mended(database)
    assert {space for space, _ in found} == {USERS[0], USERS[2], ("recovered", "namespace-2")}
    assert f"{len(SAID) // 3} have lost their namespace" in said
    assert all(check_namespace(space) for space, _ in found)


def test_a_row_that_makes_no_sense_is_told_as_damage_and_saved_as_far_as_it_goes(database: Path) -> None:
    with closing(sqlite3.connect(database)) as sql:
        sql.execute("UPDATE entries SET created_at = 9e18, links = '[' WHERE key = 'k3' AND space = 1")
        sql.commit()
    with (
        open_store(database, HashingEmbedder()) as store,
        pytest.raises(StoreDamaged, match="'k3': is a row that cannot be read"),
    ):
        store.get(USERS[0], "k3")
    found, said = mended(database)
    assert {place: entry.content for place, entry in found.items()} == SAID
    assert "makes no sense" in said


def test_who_has_it_open_goes_on_with_the_new_one(database: Path) -> None:
    with open_store(database, HashingEmbedder()) as reader:
        assert len(reader.list(USERS[0])) == 80
        database.write_bytes(b"no database any more")
        mended(database)
        assert reader.list(USERS[0]) == []
        assert reader.put(USERS[0], "k", "after").version == 1


@pytest.mark.parametrize("point", ["longterm.mend.saved", "longterm.mend.unlogged"])
def test_mending_that_is_killed_is_brought_to_its_end(database: Path, point: str) -> None:
    raw = bytearray(database.read_bytes())
    with closing(sqlite3.connect(database)) as sql:
        (root,) = sql.execute("SELECT rootpage FROM sqlite_master WHERE name = 'entries_digest'").fetchone()
    raw[(root - 1) * PAGE : root * PAGE] = bytes(PAGE)
    database.write_bytes(raw)
    killed = start(database, "mend", crash_at=point)
    assert killed.wait(timeout=60) == -signal.SIGKILL
    again = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("worker.py")), str(database), "mend", ""], timeout=60, check=True
    )
    assert again.returncode == 0
    with MemoryStore(database) as store:
        assert store.check() == []
        assert sum(len(store.list(user)) for user in USERS) == len(SAID)
    assert len(list((database.parent / "aside").glob("*/memory.db"))) == 1
    assert {path.name for path in database.parent.iterdir()} <= {
        "memory.db", "memory.db.lock", "memory.db-wal", "memory.db-shm", "aside",
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
    "sentences": ("UPDATE sentences SET vectors = ?", b"123"),
    "a time": ("UPDATE entries SET created_at = ? WHERE key = 'k3'", 10**17),
}


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_a_row_that_makes_no_sense_is_damage_and_mended_whatever_reads_it(database: Path, nonsense: str) -> None:
    statement, value = NONSENSE[nonsense]
    with open_store(database, HashingEmbedder(), durable=False) as store:
        for number in range(3):
            store.put(
                USERS[0],
                f"long{number}",
                "Bees make honey in hives each year. They dance to tell of flowers in bloom.",
            )
        with store.database.write() as sql:
            sql.execute("DROP INDEX entries_speaker")  # it would refuse nonsense, as a damaged page does not
            assert sql.execute(statement, (value,)).rowcount
        uses = (
            lambda: store.get(USERS[0], "k3"), lambda: store.history(USERS[0], "k3"), lambda: store.get(USERS[1], "k1"),
            lambda: store.search(USERS[0], "text 3 of bees", limit=400), store.namespaces, store.check,
            lambda: store.search(USERS[0], "text", metadata={"a": 1}, limit=400), lambda: store.list(USERS[0]),
        )  # fmt: skip
        for use in uses:
            with contextlib.suppress(StoreDamaged):
                use()
        mend(store, database.parent / "aside")
        for use in uses:
            use()
        assert store.get(USERS[2], "k3").content == SAID[USERS[2], "k3"]
