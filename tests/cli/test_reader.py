"""Whoever reads the output may go before the end, or never have been there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind import Hive

COMMAND = f"{sys.executable} -m hivemind"
EVERY_COMMAND = (
    "status",
    "log",
    "task list",
    "task show t",
    "mail list",
    "agent list --json",
    "view resume t",
    "context researcher",
    "lease list",
    "--help",
    "task add --help",
)


def _shell(words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60, check=False)


def _status_before(pipe: str) -> subprocess.CompletedProcess[str]:
    """How the first command of a pipe ended, on standard output; standard error as it was."""
    return _shell(f"{pipe}; echo ${{PIPESTATUS[0]}}")


@pytest.fixture
def task(hive: Path) -> Path:
    opened = Hive.open(hive)
    opened.tasks.add("Look", id="t")
    return hive


def test_a_follower_ends_as_soon_as_its_reader_has_gone(hive: Path) -> None:
    Hive.open(hive).journal.append("only.one")
    ended = _status_before(f"{COMMAND} log --follow | head -1 > /dev/null")  # no second event ever comes
    assert (ended.stdout, ended.stderr) == ("0\n", "")


def test_the_doctor_s_verdict_is_the_exit_status_whoever_reads(hive: Path) -> None:
    Hive.open(hive)
    for number in range(400):  # more findings than a pipe's buffer takes before its reader is found to be gone
        (hive / "agents" / f"bad-{number}.yaml").write_text("rle: x\n")
    for reader in ("head -1", "true"):
        ended = _status_before(f"{COMMAND} doctor | {reader} > /dev/null")
        assert (ended.stdout, ended.stderr) == ("1\n", "")


@pytest.mark.parametrize("command", EVERY_COMMAND)
def test_a_closed_pipe_ends_a_command_without_a_word(task: Path, command: str) -> None:
    ended = _status_before(f"{COMMAND} {command} | true")
    assert (ended.stdout, ended.stderr) == ("0\n", "")


def test_an_error_that_nobody_reads_is_still_an_error(hive: Path) -> None:
    assert _status_before(f"{COMMAND} task show nothing 2>&1 | true").stdout == "2\n"
    assert _shell(f"{COMMAND} task show nothing 2>&-; echo $?").stdout == "2\n"


def test_an_error_that_cannot_be_written_anywhere_is_still_an_error(hive: Path) -> None:
    """Found by tests/faults: EIO at the words of a refusal became a traceback, and another exit status."""
    assert _shell(f"{COMMAND} task show nothing 2> /dev/full; echo $?").stdout == "2\n"


def test_without_an_output_a_command_works_all_the_same(hive: Path) -> None:
    ended = _shell(f"{COMMAND} task add 'Look about' >&- <&- ; echo $?")
    assert (ended.stdout, ended.stderr) == ("0\n", "")
    assert os.listdir(hive / "tasks" / "inbox") == ["look-about.md"]
    assert _shell(f"{COMMAND} task add - <&-; echo $?").stdout == "2\n"
