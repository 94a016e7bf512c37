"""Choosing how to watch, and saying why when it is not the usual way (spec 1, *Watching*)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, Protocol

from hivemind.errors import UserError
from hivemind.fs.filesystem import mounts, needs_polling
from hivemind.fs.watch.folders import FolderWatcher
from hivemind.fs.watch.poll import PollWatcher
from hivemind.fs.watch.trees import TreeWatcher

__all__ = ["Kind", "Watcher", "open_watcher"]

Kind = Literal["inotify", "poll"]


class _Folders(Protocol):
    def add(self, folder: Path, /) -> None: ...

    def close(self) -> None: ...


class Watcher:
    """What watches: `kind` is how the flat folders are watched, `reason` why it is not the usual way (or None)."""

    def __init__(self, kind: Kind, reason: str | None, folders: _Folders, others: Iterable[_Folders] = ()) -> None:
        self.kind: Kind = kind
        self.reason = reason
        self._folders = folders
        self._others = tuple(others)

    def add(self, folder: Path) -> None:
        """Watch one more flat folder; it need not exist yet."""
        self._folders.add(folder)

    def close(self) -> None:
        """End all watching; `on_change` is not called any more afterwards. A second call does nothing."""
        for part in (self._folders, *self._others):
            part.close()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_watcher(
    mode: str, folders: Iterable[Path], trees: Iterable[Path], on_change: Callable[[Path], None]
) -> Watcher:
    """Watch flat `folders` and recursive `trees`; `mode` is `auto`, `inotify` or `poll` (`watch:` in hive.yaml).

    `on_change` is called from a thread of the watcher's: with the folder when something appeared in a flat folder or
    has been written there, with the file when it happened in a tree; it must be quick, and must not raise. Each flat
    folder is called once at the beginning: what came before the watch is seen as well.
    `auto` polls on network file systems; `inotify` watches there too. Both poll, and say so in `reason`, when the
    kernel has no inotify instance left. Raises UserError for another mode.
    """
    flat, deep = list(folders), list(trees)
    if mode not in ("auto", "inotify", "poll"):
        raise UserError(f"{mode!r} is no way of watching", where="watch", mend="one of auto, inotify, poll")
    if mode == "poll":
        return Watcher("poll", "hive.yaml says watch: poll", PollWatcher(flat, deep, on_change))
    if mode == "auto":
        mounted = mounts()
        for folder in (*flat, *deep):
            kind = needs_polling(folder, mounted)
            if kind is not None:
                reason = f"{folder} lies on {kind}, where changes made elsewhere are not reported"
                return Watcher("poll", reason, PollWatcher(flat, deep, on_change))
    return _open_native(flat, deep, on_change)


def _open_native(flat: list[Path], deep: list[Path], on_change: Callable[[Path], None]) -> Watcher:
    reason = None
    others: list[TreeWatcher | PollWatcher] = []
    trees: TreeWatcher | None = None
    if deep:
        try:
            trees = TreeWatcher(deep, on_change)
            others.append(trees)
        except OSError as error:
            reason = f"{_shown(deep)} are polled: {error.strerror or error}"
            others.append(PollWatcher([], deep, on_change))
    try:
        watcher = FolderWatcher(flat, on_change, None if trees is None else trees.check)
    except OSError as error:
        for other in others:
            other.close()
        reason = f"no inotify instance to be had: {error.strerror or error}"
        return Watcher("poll", reason, PollWatcher(flat, deep, on_change))
    return Watcher("inotify", reason, watcher, others)


def _shown(paths: list[Path]) -> str:
    return ", ".join(os.fspath(path) for path in paths)
