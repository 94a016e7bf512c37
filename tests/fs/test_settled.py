from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import hivemind.fs.filesystem as settled
from hivemind.fs import is_settled

from .children import run_child, start_child

_SIGNALS = (signal.SIGIO, signal.SIGURG)
_WRITE = """
import sys
file = open(sys.argv[1], "w")
file.write("half")
file.flush()
print("half", flush=True)
sys.stdin.readline()
file.write(" and half")
file.close()
print("whole", flush=True)
sys.stdin.readline()
"""


def _no_lease(file: int) -> None:
    return None


def test_a_file_is_settled_when_its_writer_has_closed_it_not_before(tmp_path: Path) -> None:
    child = start_child(_WRITE, tmp_path / "a")
    assert child.stdout is not None
    assert child.stdin is not None
    child.stdout.readline()
    assert not is_settled(tmp_path / "a", 0, time.time() + 3600)
    child.stdin.write("\n")
    child.stdin.flush()
    child.stdout.readline()
    assert is_settled(tmp_path / "a", 3_600_000, datetime.now(UTC))
    child.communicate("\n")


def test_a_writer_that_comes_while_the_lease_is_held_does_not_end_our_process(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    got: list[int] = []
    before = {number: signal.signal(number, lambda number, _: got.append(number)) for number in _SIGNALS}
    file = os.open(tmp_path / "a", os.O_RDONLY)
    try:
        settled._take_lease(file)
        code = "import os, sys\ntry: os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)\nexcept BlockingIOError: print('broken')"
        assert run_child(code, tmp_path / "a") == "broken\n"
    finally:
        os.close(file)
        for number, handler in before.items():
            signal.signal(number, handler)
    assert got == [signal.SIGURG]  # ignored by default; SIGIO would be the end


def test_a_file_that_is_gone_is_not_settled(tmp_path: Path) -> None:
    assert not is_settled(tmp_path / "a", 0, time.time())


def test_an_empty_file_must_rest_although_nobody_has_it_open(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    now = (tmp_path / "a").stat().st_mtime
    assert not is_settled(tmp_path / "a", 250, now + 0.1)
    assert is_settled(tmp_path / "a", 250, now + 0.3)


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    assert is_settled(tmp_path / "a", 0, time.time() + 1)


def test_without_leases_a_file_must_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "_has_no_writer", _no_lease)
    (tmp_path / "a").write_text("x")
    now = (tmp_path / "a").stat().st_mtime
    assert not is_settled(tmp_path / "a", 250, now + 0.2)
    assert is_settled(tmp_path / "a", 250, now + 0.26)


def test_a_clock_set_back_does_not_keep_a_file_unread_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "_has_no_writer", _no_lease)
    (tmp_path / "a").write_text("x")
    assert is_settled(tmp_path / "a", 1, time.time() - 86_400)
