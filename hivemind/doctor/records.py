"""The program's own small files: records of a kind and version that it knows, nothing else in their places, no leftovers."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.doctor.patient import Patient
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs.check import check_temporary, listed
from hivemind.fs.finding import Finding
from hivemind.tasks.record import load

__all__ = ["check_leftovers", "check_places", "check_records"]

_ONCE_LOCKS = ("graph.lock",)  # what earlier versions left in the folders of tasks

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
        try:
            wrong = _wrong(path)
        except UnknownVersion as error:
            yield Finding(path, error.what, "use the hivemind that wrote it; it is refused and kept")
            continue
        if wrong is not None:
            mend = "put it back from a copy, or hivemind doctor --fix sets it aside"
            yield patient.aside.finding(path, f"{wrong}: what it said is lost to its owner", mend, quiet=True)


def check_places(patient: Patient) -> Iterator[Finding]:
    """What lies below .hive in the place of a file and is none: a folder, a pipe. Whoever needs the file makes a new one."""
    layout = patient.layout
    for folder in (layout.state, layout.journal, layout.locks, layout.logs, *listed(layout.state / "agents")):
        for path in listed(folder):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISSOCK(mode) or _may_be_folder(path, mode):
                continue
            what = "is not a regular file, and what needs it there stands still"
            if (folder == layout.journal and path.suffix == ".jsonl") or path.suffix == ".db":
                yield Finding(path, what, "put the file back from a copy", quiet=True)
            else:
                yield patient.aside.finding(path, what, quiet=True)


def check_leftovers(patient: Patient) -> Iterator[Finding]:
    """Temporary files of writes that were never finished, and locks of earlier versions, below the hive's own folders."""
    layout = patient.layout
    for top in (layout.agents, layout.rom, layout.mailboxes, layout.knowledge, layout.tasks, layout.state):
        for folder, folders, names in os.walk(top):
            if Path(folder) == layout.state:
                folders[:] = [name for name in folders if name != "aside"]
            for path in (Path(folder, name) for name in names):
                yield from check_temporary(path, patient.aside, patient.now, shared=patient.shared)
                if path.name in _ONCE_LOCKS and top == layout.tasks:
                    what = "is the lock of an earlier version of this program; nobody uses it"
                    yield patient.aside.finding(path, what, note=True)


def _may_be_folder(path: Path, mode: int) -> bool:
    return (
        stat.S_ISDIR(mode) and path.name not in _FILES and path.suffix.partition("-")[0] in ("", ".vectors", ".damaged")
    )


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
