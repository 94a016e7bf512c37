"""What a terminal shows that a pipe does not: Markdown with colours, progress."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind import Hive

COMMAND = (sys.executable, "-m", "hivemind")
RESULT = "# Answer\n\nThe tide is **high**.\n\n```diff\n- low\n+ high\n```\n\n[a page](https://example.org/tide)\n"
_SGR = re.compile(r"\x1b\[([\d;]*)m")


@pytest.fixture
def hive(tmp_path: Path) -> Path:
    hive = Hive.init(tmp_path / "hive")
    hive.tasks.add("How high is the tide?", id="tide")
    task = hive.tasks.claim("researcher")
    assert task is not None
    hive.tasks.finish(task, RESULT)
    return hive.layout.root


def shown(hive: Path, *words: str, **environment: str) -> str:
    """Return what a terminal receives from a command."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment}
    process = subprocess.Popen(
        [*COMMAND, "--hive", os.fspath(hive), *words], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    output = b""
    try:
        while block := os.read(controller, 65_536):
            output += block
    except OSError:  # the process has ended
        pass
    os.close(controller)
    assert process.wait() == 0
    return output.decode()


def test_a_result_is_shown_as_markdown_and_nothing_steers_the_terminal(hive: Path) -> None:
    text = shown(hive, "task", "show", "tide")
    assert "**" not in text
    assert "```" not in text
    assert "https://example.org/tide" in text
    colours = {code for codes in _SGR.findall(text) for code in codes.split(";") if 30 <= int(code or 0) < 98}
    assert colours
    assert "\x1b" not in _SGR.sub("", text)


def test_without_colours_the_emphasis_stays(hive: Path) -> None:
    text = shown(hive, "task", "show", "tide", NO_COLOR="1")
    codes = {code for codes in _SGR.findall(text) for code in codes.split(";")}
    assert codes <= {"", "0", "1", "2", "3", "4", "22", "24"}
    assert "**" not in text


def test_a_pipe_has_the_result_as_it_is_in_its_file(hive: Path) -> None:
    output = subprocess.run(
        [*COMMAND, "--hive", os.fspath(hive), "task", "show", "tide"], capture_output=True, text=True
    )
    assert output.stdout.endswith((hive / "tasks/done/tide/result.md").read_text())
