"""The program's own small records: JSON with a kind and a version that this program knows."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient
from hivemind.errors import UnknownVersion, UserError
from hivemind.tasks.record import load

__all__ = ["check_places", "check_records"]

VERSIONS = {"workspace": 2}
"""The version of a record that this program writes, by its kind, where it is not 1; the rooms' READMEs say what each holds."""


_FILES = ("heartbeat", "line", "lock", "mail-taken", "memory", "synced")
"""Files under .hive whose names have no ending."""
_KINDS = {
    "task.json": "task",
    "format.json": "journal",
    "workspace.json": "workspace",
}
"""What each record's `kind` is; of others any will do."""
_READERS: dict[str, Callable[[Path], object]] = {"task.json": load}
"""What reads the records of a task, from its folder."""


def check_records(patient: Patient) -> Iterator[Finding]:
    """Records of agents and tasks. Those that are damaged are set aside; those of another version only told of."""
    for path in _records(patient):
        where = patient.layout.relative(path)
        try:
            wrong = _wrong(path)
        except UnknownVersion as error:
            yield Finding("records", where, error.what, "use the hivemind that wrote it; it is refused and kept")
            continue
        if wrong is not None:
            yield Finding(
                "records",
                where,
                f"{wrong}: what it said is lost to its owner",
                "put it back from a copy, or hivemind doctor --fix sets it aside",
                partial(patient.aside.take, path),
                quiet=True,
            )


def check_places(patient: Patient) -> Iterator[Finding]:
    """What lies below .hive in the place of a file and is none: a folder, a pipe. Whoever needs the file makes a new one."""
    layout = patient.layout
    for folder in (layout.state, layout.journal, layout.locks, layout.logs, *_entries(layout.state / "agents")):
        for path in _entries(folder):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISSOCK(mode) or _may_be_folder(path, mode):
                continue
            truth = (folder == layout.journal and path.suffix == ".jsonl") or path.suffix == ".db"
            yield Finding(
                "records",
                layout.relative(path),
                "is no regular file, and what needs it there stands still",
                "put the file back from a copy" if truth else "hivemind doctor --fix sets it aside",
                None if truth else partial(patient.aside.take, path),
                quiet=True,
            )


def _may_be_folder(path: Path, mode: int) -> bool:
    return (
        stat.S_ISDIR(mode) and path.name not in _FILES and path.suffix.partition("-")[0] in ("", ".vectors", ".damaged")
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # told by the check of folders
        return []


def _wrong(path: Path) -> str | None:
    """What is wrong with a record, or None. Raises UnknownVersion."""
    try:
        with boundary("record", path):
            record = json.loads(read_input(path))
    except FileNotFoundError:
        return None  # moved on while we looked
    except Unreadable as error:
        return error.what
    kind = _KINDS.get(path.name)
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str) or kind not in (None, record["kind"]):
        return f"is no {kind or 'such'} record"
    known = VERSIONS.get(record["kind"], 1)
    if (version := record.get("version")) != known:
        raise UnknownVersion(f"is a {record['kind']} record of version {version!r}, this program knows version {known}")
    return _unread(path)


def _unread(path: Path) -> str | None:
    """What whoever reads the record finds wrong with its fields."""
    read = _READERS.get(path.name)
    if read is None:
        return None
    try:
        read(path.parent)
    except UserError as error:
        return error.what
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"is damaged ({type(error).__name__}: {error})"
    return None


def _records(patient: Patient) -> Iterator[Path]:
    layout = patient.layout
    for pattern in ("agents/*/*.json", "*.json", "journal/format.json"):
        yield from sorted(layout.state.glob(pattern))
    for place in (layout.inbox, layout.active, layout.done, layout.failed):
        for name in _READERS:
            yield from sorted(place.glob(f"*/{name}"))
