"""The file system, used one way: atomic writes, locks, versioned records, paths that stay inside, watching."""

from __future__ import annotations

from hivemind.fs.atomic import create, fsync_folder, move, write
from hivemind.fs.crash import reached
from hivemind.fs.locks import HeldLock, Lock
from hivemind.fs.paths import inside, open_inside
from hivemind.fs.records import load_record, save_record

__all__ = [
    "HeldLock",
    "Lock",
    "create",
    "fsync_folder",
    "inside",
    "load_record",
    "move",
    "open_inside",
    "reached",
    "save_record",
    "write",
]
