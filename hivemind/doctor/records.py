"""The program's own small files: records of a kind and version that it knows, nothing else in their places, no leftovers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from hivemind.coordination.workspace import WORKSPACE_VERSION
from hivemind.doctor.patient import Patient
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs.check import check_temporary, listed
from hivemind.fs.finding import Finding
from hivemind.fs.records import load_record
from hivemind.tasks.record import RECORD, load

__all__ = ["check_leftovers", "check_places", "check_records"]

_FILES = ("heartbeat", "mail-taken")
"""Files under .hive whose names have no ending."""
_KINDS = {"workspace.json": ("workspace", WORKSPACE_VERSION)}
"""The kind and version of a record by its file's name; of any other the name is the kind, and the version is 1."""


def check_records(patient: Patient) -> Iterator[Finding]:
    """Records of agents and tasks. Those that are damaged are set aside; those of another version only told of."""
    for path in _records(patient):
        try:
            if path.name == RECORD:
                load(path.parent)
            else:
                load_record(path, *_KINDS.get(path.name, (path.stem, 1)))
        except UnknownVersion as error:
            yield Finding(path, error.what, "use the hivemind that wrote it; it is refused and kept")
        except UserError as error:
            if isinstance(error.__cause__, OSError):  # nothing is known of what it says
                yield Finding(path, error.what, error.mend or "make it readable")
                continue
            mend = "put it back from a copy, or hivemind doctor --fix sets it aside"
            yield patient.aside.finding(path, f"{error.what}: what it said is lost to its owner", mend, quiet=True)


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
    """Temporary files of writes that were never finished, below the hive's own folders."""
    layout = patient.layout
    for top in (layout.agents, layout.rom, layout.mailboxes, layout.knowledge, layout.tasks, layout.state):
        for folder, folders, names in os.walk(top):
            if Path(folder) == layout.state:
                folders[:] = [name for name in folders if name != "aside"]
            for path in (Path(folder, name) for name in names):
                yield from check_temporary(path, patient.aside, patient.now, shared=patient.shared)


def _may_be_folder(path: Path, mode: int) -> bool:
    return (
        stat.S_ISDIR(mode) and path.name not in _FILES and path.suffix.partition("-")[0] in ("", ".vectors", ".damaged")
    )


def _records(patient: Patient) -> Iterator[Path]:
    layout = patient.layout
    for pattern in ("agents/*/*.json", "*.json"):
        yield from sorted(layout.state.glob(pattern))
    for place in (layout.inbox, layout.active, layout.done, layout.failed):
        yield from sorted(place.glob(f"*/{RECORD}"))
