"""Polling, where nothing tells of changes: the times of folders, and the files of trees."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["PollWatcher"]

_YOUNG_NS = 2_000_000_000  # a folder's time may be this coarse: it is called again until its time is older
_SHARE = 20  # looking may take one part in so many of the time


class PollWatcher:
    """Calls `on_change(folder)` for a flat folder whose time has changed and `on_change(file)` for files in trees.

    Folders are looked at every `interval_s`, trees every `tree_s`, more seldom where a look takes long (it never uses
    more than a twentieth of a processor). Times are compared for being equal, never for being later, so a clock that is
    set back does no harm. `on_change` must not raise: that would end the thread.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        trees: Iterable[Path],
        on_change: Callable[[Path], None],
        *,
        interval_s: float = 0.1,
        tree_s: float = 2.0,
    ) -> None:
        self._folders: dict[Path, tuple[int, int] | None] = dict.fromkeys(folders)
        self._trees = {tree: _look(tree) for tree in trees}
        self._on_change = on_change
        self._interval_s = interval_s
        self._tree_s = tree_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hivemind-poll", daemon=True)
        self._thread.start()

    def add(self, folder: Path) -> None:
        """Look at one more flat folder; it need not exist yet."""
        self._folders = {folder: None, **self._folders}  # a new dict: the thread may be walking over the old one

    def close(self) -> None:
        """End the thread. Not from `on_change`. A second call does nothing."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        trees_due = time.monotonic() + self._tree_s
        wait = 0.0
        while not self._closing.wait(wait):
            began = time.monotonic()
            self._look_at_folders()
            wait = max(self._interval_s, _SHARE * (time.monotonic() - began))
            if self._trees and began >= trees_due:
                walk = time.monotonic()
                self._look_at_trees()
                trees_due = time.monotonic() + max(self._tree_s, _SHARE * (time.monotonic() - walk))

    def _look_at_folders(self) -> None:
        seen = self._folders
        for folder, before in list(seen.items()):
            try:
                found = os.stat(folder)
            except OSError:  # not there (yet): coming into being will show as a change
                seen[folder] = None
                continue
            now = (found.st_ino, found.st_mtime_ns)
            if now != before or abs(time.time_ns() - found.st_mtime_ns) < _YOUNG_NS:
                seen[folder] = now
                self._on_change(folder)

    def _look_at_trees(self) -> None:
        for tree, before in self._trees.items():
            now = _look(tree)
            self._trees[tree] = now
            for path in sorted(dict(set(now.items()) ^ set(before.items()))):
                self._on_change(Path(path))


def _look(tree: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, time and size of each file below `tree`; symbolic links are not followed."""
    found: dict[str, tuple[int, int, int]] = {}
    todo = [os.fspath(tree)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    else:
                        state = entry.stat(follow_symlinks=False)
                        found[entry.path] = (state.st_ino, state.st_mtime_ns, state.st_size)
        except OSError:  # removed while we looked: the next look settles it
            continue
    return found
