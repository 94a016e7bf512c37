"""`hivemind top`: in a real terminal of tmux, in a pipe, for a script."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.cli.text import width
from hivemind.cli.top import up_lines
from hivemind.outcome import ENDED
from hivemind.web.index import PageIndex
from hivemind.web.snapshot import take_snapshot
from hivemind.web.subscriptions import SnapshotWatch
from tests.fs.small_disk import fill, small_disk
from tests.program import Program, run
from tests.web.conftest import claimed, filled

in_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not here")


@pytest.fixture
def hive(tmp_path: Path) -> Hive:
    return filled(tmp_path / "hive")


class Terminal:
    """A terminal with `hivemind top` in it."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-S", os.fspath(socket)]

    def tmux(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", "top", *keys)

    def until(self, is_so: Callable[[str], bool]) -> str:
        end = time.monotonic() + 60
        while not is_so(shown := self.tmux("capture-pane", "-p", "-t", "top")):
            assert time.monotonic() < end, shown
            time.sleep(0.05)
        return shown


@contextmanager
def terminal(hive: Hive, tmp_path: Path, columns: int, rows: int) -> Iterator[Terminal]:
    found = Terminal(tmp_path / "tmux")
    words = f"{sys.executable} -m hivemind --hive {hive.layout.root} top; echo ended; sleep 60"
    found.tmux("-f", "/dev/null", "new-session", "-d", "-s", "top", "-x", str(columns), "-y", str(rows), words)
    try:
        yield found
    finally:
        found.tmux("kill-server")


@in_tmux
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 60)])
def test_the_list_fits_the_terminal_and_follows_keys_and_changes(
    hive: Hive, tmp_path: Path, columns: int, rows: int
) -> None:
    with terminal(hive, tmp_path, columns, rows) as top:
        wanted = ("2 need you", "analyst", "lease", "count", "paint", "later", "q: end")
        shown = top.until(lambda text: all(word in text for word in wanted))
        assert all(width(line) <= columns for line in shown.splitlines())
        top.press("p")
        top.until(lambda text: "p: all" in text and "later" not in text)
        top.press("p", "s")
        top.until(lambda text: "by name" in text and "later" in text)
        top.press("/", "l", "e", "a", "s", "e", "Enter")
        top.until(lambda text: "1 of 1 " in text and "/lease" in text and "count" not in text)
        top.press("Enter")
        top.until(lambda text: "task lease" in text and "A lease is a right." in text)
        top.press("q", "/", "Enter")
        top.until(lambda text: "later" in text and "/: filter" in text)
        hive.tasks.add("Something new", id="fresh")
        top.until(lambda text: "fresh" in text)
        top.press("?")
        top.until(lambda text: "filter by words" in text)
        top.press("q", "q")
        top.until(lambda text: text.startswith("ended"))


def test_once_and_plain_are_lines_without_anything_that_steers_a_terminal(hive: Hive) -> None:
    words = ["--hive", os.fspath(hive.layout.root), "top", "--once", "--plain"]
    said = run(words, capture_output=True, text=True, check=True).stdout
    assert said.startswith("hive: 2 need you; 0 of 3 agents up")
    assert "! need   paint" in said
    assert "TOKENS" in said
    assert re.search(r"task +lease +done .* 3,150 +What is a lease", said), "what it used stands beside it"
    assert "\x1b" not in said


def test_in_a_pipe_the_list_is_printed_again_when_it_has_changed(hive: Hive) -> None:
    words = ["--hive", os.fspath(hive.layout.root), "top", "--plain"]
    process = Program(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("hive: 2 need you")
        hive.tasks.add("Something new", id="fresh")
        for line in process.stdout:
            if "fresh" in line:
                break
        assert "fresh" in line
        assert "\x1b" not in line
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_full_disk_is_shown_though_the_index_has_no_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=8m"):
        hive = filled(tmp_path / "disk" / "hive")
        with closing(PageIndex(hive.layout.root)) as index, closing(SnapshotWatch(hive.layout.root, index)) as watch:
            watch.snapshot()
            finished = claimed(hive, "analyst", "Is there room?", id="room")
            hive.tasks.finish(finished, "x" * 200_000)
            ballast = fill(tmp_path / "disk")
            watch.invalidate()
            assert "disk" in {need.kind for need in watch.snapshot().needs}
            assert "room" not in {task.id for task in index.ended_tasks(ENDED, "", "newest", 50, 0)[0]}
            ballast.unlink()
            watch.invalidate()
            watch.snapshot()
            assert "room" in {task.id for task in index.ended_tasks(ENDED, "", "newest", 50, 0)[0]}


def test_what_up_draws_fits_any_terminal_and_says_how_much_is_left_out(hive: Hive) -> None:
    snapshot = take_snapshot(hive)
    for columns, rows in itertools.product((1, 20, 80, 200), (1, 2, 3, 5, 24, 60)):
        lines = up_lines(snapshot, columns, rows)
        assert len(lines) <= rows
        assert all(width(line) <= columns for line in lines)
    assert up_lines(snapshot, 80, 5)[3:] == ["… and 4 more: hivemind top", "Ctrl-C ends the swarm in order."]
    assert any("researcher" in line for line in up_lines(snapshot, 80, 24))
