"""The file system, used one way: atomic writes, locks, versioned records, paths that stay inside, watching."""

from __future__ import annotations

from hivemind.fs.atomic import create, fsync_file, fsync_folder, make_folder, move, open_own, write, write_at
from hivemind.fs.crash import reached
from hivemind.fs.crash_count import CrashCount
from hivemind.fs.doorbell import Doorbell, ring
from hivemind.fs.filesystem import is_settled, time_tells
from hivemind.fs.lines import LogDamaged, Record, records_of
from hivemind.fs.locks import HeldLock, Lock
from hivemind.fs.log import Log, LogBookmark, ReadPosition
from hivemind.fs.paths import file_below, folder_below, folder_inside, inside, open_inside
from hivemind.fs.records import DamagedRecord, load_record, load_value, save_record, save_value, set_aside
from hivemind.fs.sockets import make_socket_folder, socket_places
from hivemind.fs.trees import copy_tree, remove_tree, walk
from hivemind.fs.watch import Watcher, open_watcher

__all__ = [
    "CrashCount",
    "DamagedRecord",
    "Doorbell",
    "HeldLock",
    "Lock",
    "Log",
    "LogBookmark",
    "LogDamaged",
    "ReadPosition",
    "Record",
    "Watcher",
    "copy_tree",
    "create",
    "file_below",
    "folder_below",
    "folder_inside",
    "fsync_file",
    "fsync_folder",
    "inside",
    "is_settled",
    "load_record",
    "load_value",
    "make_folder",
    "make_socket_folder",
    "move",
    "open_inside",
    "open_own",
    "open_watcher",
    "reached",
    "records_of",
    "remove_tree",
    "ring",
    "save_record",
    "save_value",
    "set_aside",
    "socket_places",
    "time_tells",
    "walk",
    "write",
    "write_at",
]
