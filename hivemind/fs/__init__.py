"""Use of the file system: atomic writes, locks, versioned records, paths confined to given folders, watching."""

from __future__ import annotations

from hivemind.fs.atomic import (
    create,
    fsync_file,
    fsync_folder,
    is_durable,
    make_folder,
    move,
    open_regular,
    set_durability,
    write,
)
from hivemind.fs.crash import crash_point
from hivemind.fs.deadly_inputs import DeadlyInputs
from hivemind.fs.doorbell import Doorbell, ring
from hivemind.fs.filesystem import is_settled, is_timestamp_reliable
from hivemind.fs.lines import LogDamaged, Record, records_of
from hivemind.fs.locks import Lock, LockBusy
from hivemind.fs.log import Log, LogBookmark, ReadPosition
from hivemind.fs.paths import file_below, folder_below, folder_inside, open_inside, resolve_inside
from hivemind.fs.postponed import flush_postponed, postponing
from hivemind.fs.records import DamagedRecord, load_dataclass, load_record, save_dataclass, save_record, set_aside
from hivemind.fs.sockets import make_socket_folder, socket_paths
from hivemind.fs.trees import copy_tree, remove_tree, walk
from hivemind.fs.watch import Watcher, open_watcher

__all__ = [
    "DamagedRecord",
    "DeadlyInputs",
    "Doorbell",
    "Lock",
    "LockBusy",
    "Log",
    "LogBookmark",
    "LogDamaged",
    "ReadPosition",
    "Record",
    "Watcher",
    "copy_tree",
    "crash_point",
    "create",
    "file_below",
    "flush_postponed",
    "folder_below",
    "folder_inside",
    "fsync_file",
    "fsync_folder",
    "is_durable",
    "is_settled",
    "is_timestamp_reliable",
    "load_dataclass",
    "load_record",
    "make_folder",
    "make_socket_folder",
    "move",
    "open_inside",
    "open_regular",
    "open_watcher",
    "postponing",
    "records_of",
    "remove_tree",
    "resolve_inside",
    "ring",
    "save_dataclass",
    "save_record",
    "set_aside",
    "set_durability",
    "socket_paths",
    "walk",
    "write",
]
