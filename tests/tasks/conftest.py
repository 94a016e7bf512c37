"""A hive's folders, its tasks, and a way to let a real process die at a crash point."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hivemind.coordination import Journal
from hivemind.fs import crash
from hivemind.layout import Layout
from hivemind.tasks import Tasks
from tests.durability import relaxed

AGENTS = {"scout": "finder", "clerk": None, "smith": "maker"}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout.at(tmp_path / "hive")
    for folder in layout.folders():
        folder.mkdir(parents=True)
    return layout


@pytest.fixture
def tasks(layout: Layout) -> Tasks:
    return opened(layout)


def opened(layout: Layout, **options: object) -> Tasks:
    """A Tasks as another process would open it, without a cache."""
    journal = Journal(relaxed(layout.root) / ".hive/journal")
    defaults = {"agents": lambda: AGENTS, "settle_ms": 20, "grace_s": 0.05, "journal": journal, **options}
    return Tasks(layout, **defaults)  # type: ignore[arg-type]


def in_process(work: Callable[[], object], crash_at: str | None = None) -> int:
    """Run `work` in a separate process, which dies at the crash point; the signal that ended it, or 0.

    Raises AssertionError if the work failed in any other way.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if crash_at is not None:
                crash._remaining_passes = crash._armed_points(crash_at)
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    assert os.WEXITSTATUS(status) == 0, "the child failed"
    return 0


def killed_at(point: str, work: Callable[[], object]) -> None:
    """Run `work` in a process that is killed at the point; fails if it never gets there."""
    assert in_process(work, point) == signal.SIGKILL, f"{point} was never reached"


def drop(layout: Layout, name: str, content: str | bytes) -> Path:
    """A file moved into the inbox, as a person's file manager does."""
    draft = layout.root / f"elsewhere-{name}"
    draft.write_bytes(content if isinstance(content, bytes) else content.encode())
    target = layout.inbox / name
    draft.rename(target)
    return target


def age(path: Path, seconds: float) -> None:
    """Give a file an older modification time."""
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


def texts(layout: Layout, marker: bytes) -> list[Path]:
    """Every file below tasks/ that is a task's text with the marker in it."""
    paths = (path for path in layout.tasks.rglob("*") if path.is_file() and path.suffix in (".md", ".yaml"))
    return [path for path in paths if path.name not in ("result.md", "error.md") and marker in path.read_bytes()]
