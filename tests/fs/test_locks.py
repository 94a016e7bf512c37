from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from hivemind.fs import Lock
from hivemind.fs.locks import describe_holder

from .children import start_child

_HOLD = """
import sys
from hivemind.fs import Lock
lock = Lock(sys.argv[1])
lock.acquire(name="child")
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_lock_held_by_another_process_is_not_had_and_names_its_holder(tmp_path: Path) -> None:
    child = start_child(_HOLD, tmp_path / "lock")
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    lock = Lock(tmp_path / "lock")
    assert not lock.acquire(wait=False)
    holder = lock.holder()
    assert holder is not None
    assert (holder["pid"], holder["name"]) == (child.pid, "child")
    child.kill()
    child.communicate()


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    child = start_child(_HOLD, tmp_path / "lock")
    assert child.stdout is not None
    child.stdout.readline()
    child.kill()
    child.communicate()
    lock = Lock(tmp_path / "lock")
    assert lock.holder() is None
    assert lock.acquire(wait=True)
    lock.release()


def test_a_released_lock_can_be_taken_again_and_its_file_stays(tmp_path: Path) -> None:
    with Lock(tmp_path / "lock") as lock:
        assert lock.is_held
    assert not lock.is_held
    assert os.path.exists(tmp_path / "lock")
    with Lock(tmp_path / "lock") as again:
        assert again.holder() == {}


def test_a_lock_knows_whether_its_name_still_leads_to_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with Lock(path) as lock:
        assert lock.is_current()
        path.rename(tmp_path / "moved")
        assert not lock.is_current()
        path.touch()
        assert not lock.is_current()


def test_a_holder_without_a_record_is_an_empty_record(tmp_path: Path) -> None:
    with Lock(tmp_path / "lock"):
        assert Lock(tmp_path / "lock").holder() == {}
    assert "starting" in describe_holder({}), "of three `up` at once a loser said: process ?, since ?"
    assert Lock(tmp_path / "nobody").holder() is None


def test_a_damaged_holder_record_does_not_hide_that_the_lock_is_held(tmp_path: Path) -> None:
    with Lock(tmp_path / "lock"):
        (tmp_path / "lock").write_bytes(b"\xff{not json")
        assert Lock(tmp_path / "lock").holder() == {}
        assert not Lock(tmp_path / "lock").acquire(wait=False)


def test_a_lock_is_refused_where_it_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Lock(tmp_path / "no" / "lock").acquire()


def looks_for_ever(path, ready):
    lock = Lock(path)
    lock.holder()
    ready.set()
    while True:
        lock.holder()


def test_looking_who_holds_a_lock_keeps_nobody_from_taking_it(tmp_path):
    path = tmp_path / "x.lock"
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    looker = context.Process(target=looks_for_ever, args=(path, ready))
    looker.start()
    try:
        assert ready.wait(30)
        lock = Lock(path)
        for _ in range(5000):
            assert lock.acquire(wait=False)
            lock.release()
    finally:
        looker.kill()
        looker.join()
