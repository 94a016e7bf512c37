"""The machine below the hive: its file system, its room, its inotify limits, its encodings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient
from hivemind.fs.filesystem import mounts, needs_polling
from hivemind.fs.watch.folders import Inotify
from hivemind.swarm.idle import is_full

__all__ = ["check_encodings", "check_file_system", "check_inotify"]

_LIMITS = Path("/proc/sys/fs/inotify")
_ROOM_BYTES = 64 * 1024 * 1024
_TEXTS = (".md", ".markdown", ".txt", ".text", ".rst", ".org", ".yaml", ".yml")
_KNOWLEDGE_BYTES = 4 * 1024 * 1024


def check_file_system(patient: Patient) -> Iterator[Finding]:
    """Its type, its free room, whether it can be written."""
    root = patient.layout.root
    kind = needs_polling(root, mounts())
    if kind is not None:
        yield Finding(
            "file system",
            str(root),
            f"lies on {kind}: changes made on other machines are not reported, so folders are polled and mail takes up to "
            "a tenth of a second; locks hold only if every machine mounts it with locking",
            "nothing, if that is wanted; a local disk is faster",
            note=True,
        )
    found = os.statvfs(root)
    if patient.read_only:
        yield Finding(
            "file system",
            str(root),
            "is mounted read-only: it can be looked at (status, log, view, task show), nothing can be delivered or done",
            "mount it for writing, or work in a copy: cp -a",
        )
    elif is_full(patient.layout):
        yield Finding("file system", str(root), "disk full: all work rests until there is room", "make room")
    elif found.f_bavail * found.f_frsize < _ROOM_BYTES:
        left = found.f_bavail * found.f_frsize // 1024
        yield Finding(
            "file system", str(root), f"has {left} KiB of room left: deliveries and results will fail", "make room"
        )
    elif found.f_files and found.f_favail < 1000:
        yield Finding("file system", str(root), f"has {found.f_favail} inodes left: no new files soon", "remove files")


def check_inotify(patient: Patient) -> Iterator[Finding]:
    """Whether the hive's one watcher gets what it needs: an instance, and a watch for each mailbox and folder."""
    if patient.config is not None and patient.config.watch == "poll":
        return
    try:
        Inotify().close()
    except OSError as error:
        yield Finding(
            "inotify",
            str(_LIMITS / "max_user_instances"),
            f"there is no inotify instance left ({error.strerror}; the limit is {_limit('max_user_instances')} for a user): the "
            "hive polls, which is slower and costs processor time",
            "end what holds them, or: sysctl fs.inotify.max_user_instances=512",
        )
    needed = len(patient.names) + sum(len(folders) for _, folders, _ in os.walk(patient.layout.knowledge)) + 16
    limit = _limit("max_user_watches")
    if limit is not None and needed > limit:
        yield Finding(
            "inotify",
            str(_LIMITS / "max_user_watches"),
            f"{needed} folders are to be watched and a user may watch {limit}: the rest is polled each second",
            f"sysctl fs.inotify.max_user_watches={4 * needed}",
        )


def _limit(name: str) -> int | None:
    try:
        return int((_LIMITS / name).read_text())
    except (OSError, ValueError):
        return None


def check_encodings(patient: Patient) -> Iterator[Finding]:
    """File names and texts that are no UTF-8, and the vocabulary that tokens are counted with."""
    if sys.getfilesystemencoding().lower() not in ("utf-8", "utf8"):
        encoding = sys.getfilesystemencoding()
        yield Finding(
            "encodings", "the environment", f"file names are taken for {encoding}, not UTF-8", "export LC_ALL=C.UTF-8"
        )
    layout = patient.layout
    for top, what_of_it in (
        (layout.rom, "it is not read"),
        (layout.knowledge, "its letters are guessed, and may be wrong"),
    ):
        for folder, folders, names in os.walk(top):
            for name in sorted([*folders, *names]):
                path = Path(folder, name)
                if not _is_utf8(os.fsencode(name)):
                    shown = os.fsencode(layout.relative(path)).decode("utf-8", "backslashreplace")
                    yield Finding("encodings", shown, "has a name that is no UTF-8: it cannot be cited", "rename it")
                elif name in names and path.suffix.lower() in _TEXTS and (at := _first_bad_byte(path)) is not None:
                    yield Finding(
                        "encodings",
                        layout.relative(path),
                        f"is no UTF-8 (byte {at}): {what_of_it}",
                        "save it as UTF-8 text",
                    )


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _first_bad_byte(path: Path) -> int | None:
    if not path.is_file() or path.is_symlink() or path.stat().st_size > _KNOWLEDGE_BYTES:
        return None
    try:
        path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None
