"""A memory database that is gone or empty is known to have been there; one that met a full disk gives its log's room back."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from hivemind.fs.backup import restore
from hivemind.longterm import LongtermError, StoreDamaged, open_store
from tests.fs.small_disk import fill, small_disk

ME = ("memories", "u1")


def begun(path: Path) -> None:
    with open_store(path, None) as store:
        store.put(ME, "k", "Bees make honey.")


LOSSES = {
    "removed": lambda path: path.unlink(),
    "truncated": lambda path: path.write_bytes(b""),
    "removed with its log": lambda path: [
        one.unlink() for one in path.parent.glob("memory.db*") if "lock" not in one.name
    ],
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_store_that_was_lost_is_no_new_one(tmp_path, loss):
    path = tmp_path / "memory.db"
    begun(path)
    LOSSES[loss](path)
    with open_store(path, None) as store:
        for use in (
            lambda: store.get(ME, "k"),
            lambda: store.put(ME, "k", "x"),
            store.status,
            lambda: store.search(ME, "bees"),
        ):
            with pytest.raises(StoreDamaged, match=r"memory\.db: is (gone|empty), though .* was created"):
                use()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_store_that_is_lost_while_it_is_open_is_no_new_one(tmp_path, loss):
    path = tmp_path / "memory.db"
    with open_store(path, None) as store:
        store.put(ME, "k", "Bees make honey.")
        LOSSES[loss](path)
        with contextlib.suppress(StoreDamaged):  # else its log had all of it, which is written back when it is closed
            assert store.get(ME, "k").content == "Bees make honey."
            assert store.check() == []


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_store_is_begun_anew_by_restoring_which_says_so(tmp_path, loss):
    path = tmp_path / "memory.db"
    begun(path)
    LOSSES[loss](path)
    with open_store(path, None) as store:
        (said,) = restore(store, tmp_path / "backups", tmp_path / "aside", print)
        assert "though" in said
        assert "copy of yours" in said
        store.put(ME, "k", "anew")
        assert restore(store, tmp_path / "backups", tmp_path / "aside", print) == []
    assert [one.read_text().strip() for one in (tmp_path / "aside").glob("*/*.txt")] == [said]


def test_a_store_that_was_put_back_is_as_it_was(tmp_path):
    path = tmp_path / "memory.db"
    begun(path)
    path.rename(tmp_path / "copy")
    with open_store(path, None) as store:
        with pytest.raises(StoreDamaged):
            store.status()
        (tmp_path / "copy").rename(path)
        assert store.get(ME, "k").content == "Bees make honey."


def test_a_store_that_was_never_made_is_a_new_one(tmp_path):
    (tmp_path / "memory.db").touch()
    (tmp_path / "memory.db.lock").touch()
    with open_store(tmp_path / "memory.db", None) as store:
        assert store.status().entries == 0


@pytest.fixture
def disk(tmp_path):
    """A small file system of its own."""
    with small_disk(tmp_path / "disk", "size=12m"):
        yield tmp_path / "disk"


def write_on(store):
    for number in range(100_000):
        store.put(ME, "k", f"{number} " + "word " * 1_500)


def test_after_a_full_disk_the_log_gives_its_room_back(disk):
    with open_store(disk / "memory.db", None) as store, open_store(disk / "memory.db", None) as other:
        with pytest.raises(LongtermError, match="the disk is full"):
            write_on(store)
        assert other.get(ME, "k") is not None
        assert (disk / "memory.db-wal").stat().st_size > 4 << 20
        subprocess.run(["mount", "-o", "remount,size=60m", disk], check=True)
        store.put(ME, "k", "Bees make honey.")
        assert (disk / "memory.db-wal").stat().st_size < 1 << 20
        assert store.check() == []


@pytest.mark.parametrize("beside", [True, False])
def test_a_full_disk_is_what_is_said_and_nothing_is_called_damaged(disk, beside):
    begun(disk / "memory.db")
    opened = open_store(disk / "memory.db", None)
    if beside:
        opened.get(ME, "k")
    ballast = fill(disk)
    with open_store(disk / "memory.db", None) as store:
        for use in (lambda: store.put(ME, "k2", "word " * 2_000), lambda: opened.put(ME, "k2", "word " * 2_000)):
            with pytest.raises(LongtermError, match="the disk is full") as refused:
                use()
            assert not isinstance(refused.value, StoreDamaged)
        ballast.unlink()
        store.put(ME, "k2", "x")
        assert store.check() == []
    opened.close()
