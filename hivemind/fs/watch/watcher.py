"""Choosing how to watch, and saying why when it is not the usual way (spec 1, *Watching*)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from hivemind.errors import UserError
from hivemind.fs.filesystem import mounts, needs_polling
from hivemind.fs.watch.folders import FolderWatcher

__all__ = ["Kind", "PollWatcher", "Watcher", "open_watcher"]

_YOUNG_NS = 2_000_000_000  # a folder's time may be this coarse: it is called again until its time is older
_SHARE = 20  # looking may take one part in so many of the time


class PollWatcher:
    """Calls `on_change(folder)` for a folder whose time has changed, of a `growing` one also if a file in it has.

    They are looked at every `interval_s`, more seldom where that takes long (it never uses more than a twentieth of a
    processor). Times are compared for being equal, never for being later, so a clock that is set back does no harm.
    `on_change` must not raise: that would end the thread.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        on_change: Callable[[Path], None],
        growing: Iterable[Path] = (),
        *,
        interval_s: float = 0.1,
    ) -> None:
        self._growing = frozenset(growing)
        self._folders: dict[Path, tuple[int, ...] | None] = dict.fromkeys([*folders, *self._growing])
        self._on_change = on_change
        self._interval_s = interval_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hivemind-poll", daemon=True)
        self._thread.start()

    def add(self, folder: Path) -> None:
        """Look at one more folder; it need not exist yet."""
        self._folders = {folder: None, **self._folders}  # a new dict: the thread may be walking over the old one

    def close(self) -> None:
        """End the thread. Not from `on_change`. A second call does nothing."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        wait = 0.0
        while not self._closing.wait(wait):
            began = time.monotonic()
            self._look()
            wait = max(self._interval_s, _SHARE * (time.monotonic() - began))

    def _look(self) -> None:
        seen = self._folders
        for folder, before in list(seen.items()):
            try:
                found = os.stat(folder)
                now = (found.st_ino, found.st_mtime_ns, *(_files(folder) if folder in self._growing else ()))
            except OSError:  # not there (yet): coming into being will show as a change
                seen[folder] = None
                continue
            if now != before or abs(time.time_ns() - found.st_mtime_ns) < _YOUNG_NS:
                seen[folder] = now
                self._on_change(folder)


def _files(folder: Path) -> list[int]:
    """Inode, time and size of each file in a folder. Raises OSError."""
    with os.scandir(folder) as entries:
        found = sorted((one.inode(), one.stat(follow_symlinks=False)) for one in entries)
    return [number for inode, one in found for number in (inode, one.st_mtime_ns, one.st_size)]


Kind = Literal["inotify", "poll"]


class Watcher:
    """What watches: `kind` is how, `reason` why it is not the usual way (or None)."""

    def __init__(self, kind: Kind, reason: str | None, folders: FolderWatcher | PollWatcher) -> None:
        self.kind: Kind = kind
        self.reason = reason
        self._folders = folders

    def add(self, folder: Path) -> None:
        """Watch one more folder; it need not exist yet."""
        self._folders.add(folder)

    def close(self) -> None:
        """End all watching; `on_change` is not called any more afterwards. A second call does nothing."""
        self._folders.close()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_watcher(
    mode: str, folders: Iterable[Path], growing: Iterable[Path], on_change: Callable[[Path], None]
) -> Watcher:
    """Watch flat folders; `mode` is `auto`, `inotify` or `poll` (`watch:` in hive.yaml).

    `on_change` is called with the folder, from a thread of the watcher's, when a file appeared in it or was closed after
    writing; of a `growing` one (of logs) also when a file in it was written to. It must be quick, and must not raise. Each
    folder is called once at the beginning: what came before the watch is seen as well.
    `auto` polls on network file systems; `inotify` watches there too. Both poll, and say so in `reason`, when the
    kernel has no inotify instance left. Raises UserError for another mode.
    """
    flat, logs = list(folders), list(growing)
    if mode not in ("auto", "inotify", "poll"):
        raise UserError(f"{mode!r} is no way of watching", where="watch", mend="one of auto, inotify, poll")
    reason = "hive.yaml says watch: poll" if mode == "poll" else None
    if mode == "auto":
        mounted = mounts()
        kinds = ((folder, needs_polling(folder, mounted)) for folder in (*flat, *logs))
        remote = next((one for one in kinds if one[1] is not None), None)
        reason = remote and f"{remote[0]} lies on {remote[1]}, where changes made elsewhere are not reported"
    if reason is None:
        try:
            return Watcher("inotify", None, FolderWatcher(flat, on_change, logs))
        except OSError as error:
            reason = f"no inotify instance to be had: {error.strerror or error}"
    return Watcher("poll", reason, PollWatcher(flat, on_change, logs))
