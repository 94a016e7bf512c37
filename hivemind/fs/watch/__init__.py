"""Watching folders: inotify where it works, polling where it does not. An event is a hint and never the truth."""

from __future__ import annotations

from hivemind.fs.watch.watcher import Watcher, open_watcher

__all__ = ["Watcher", "open_watcher"]
