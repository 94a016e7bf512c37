"""An input is refused after two processes died reading it. Other deaths do not count."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind.boundary import Unreadable
from hivemind.fs import DeadlyInputs

_READER = """
import os, signal, sys
from pathlib import Path
from hivemind.fs import DeadlyInputs
count = DeadlyInputs(Path(sys.argv[1]))
with count.reading("letter", sys.argv[2]):
    if sys.argv[3] == "inside":
        os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def _die(folder: Path, name: str, where: str) -> None:
    ended = subprocess.run([sys.executable, "-c", _READER, os.fspath(folder), name, where], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_an_input_that_killed_two_processes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    for _ in range(2):
        _die(tmp_path, "bad", "inside")
    reached = False
    with pytest.raises(Unreadable, match="2 processes died"), DeadlyInputs(tmp_path).reading("letter", "bad"):
        reached = True
    assert not reached


def test_one_death_is_forgiven(tmp_path: Path) -> None:
    _die(tmp_path, "bad", "inside")
    with DeadlyInputs(tmp_path).reading("letter", "bad"):
        pass


def test_deaths_after_the_reading_count_against_no_input(tmp_path: Path) -> None:
    for _ in range(3):
        _die(tmp_path, "good", "after")
    with DeadlyInputs(tmp_path).reading("letter", "good"):
        pass


def test_a_process_that_lives_already_learns_of_the_deaths_of_others(tmp_path: Path) -> None:
    count = DeadlyInputs(tmp_path)
    with count.reading("letter", "bad"):
        pass
    for _ in range(2):
        _die(tmp_path, "bad", "inside")
    with pytest.raises(Unreadable), count.reading("letter", "bad"):
        pass


def test_a_changed_input_is_read_again(tmp_path: Path) -> None:
    for _ in range(2):
        _die(tmp_path, "bad", "inside")
    with DeadlyInputs(tmp_path).reading("letter", "bad", version="another size"):
        pass


def test_who_ends_in_order_leaves_no_mark(tmp_path: Path) -> None:
    count = DeadlyInputs(tmp_path)
    with count.reading("letter", "good"):
        pass
    count.close()
    assert list(tmp_path.iterdir()) == []
