"""Locks, farewells and doorbells: what processes leave behind when they could not tidy up."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.coordination import Journal, State
from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient, lives
from hivemind.errors import UserError
from hivemind.fs import HeldLock, Lock
from hivemind.fs.locks import is_here
from hivemind.presence.identity import farewell, take_name

__all__ = ["check_doorbells", "check_farewells", "check_locks"]

_NAME = "locks"


def check_locks(patient: Patient) -> Iterator[Finding]:
    """Locks held for a process of this machine that is not there: by a child that outlived it.

    A lock's file that nobody holds is no finding: the system lets go of a lock when its holder dies, the file stays.
    """
    for path in _files(patient.layout.locks):
        if path.suffix != ".lock" or not path.is_file():
            continue
        record = Lock(path).holder()
        pid = record.get("pid") if record else None
        if isinstance(pid, int) and pid > 0 and is_here(record or {}) and not lives(pid):
            yield Finding(
                _NAME,
                patient.layout.relative(path),
                f"is held for process {pid}, which does not live any more: a child of its has it",
                f"find who has it open with: fuser -v {path}; the lock ends with that process",
            )


def check_farewells(patient: Patient) -> Iterator[Finding]:
    """Agents that the journal takes to be at work and that no process is: their leases keep steps from others, if any
    others are at work."""
    if not patient.has_journal:
        return
    journal = Journal(patient.layout.journal, looking=True)
    try:
        started = journal.view(_started)
    except (UserError, OSError):
        return  # told by the check of the journal
    finally:
        journal.close()
    up = patient.running() is not None
    for name, incarnation, leases in started:
        if name in patient.alive():
            continue
        held = f", and holds {leases} lease{'s' if leases > 1 else ''} of steps" if leases else ""
        yield Finding(
            _NAME,
            patient.layout.relative(patient.layout.journal),
            f"{name} has ended without a word (it was killed){held}",
            "hivemind doctor --fix writes that it has ended; so does its next start",
            partial(_say_farewell, patient, name, incarnation),
            note=not up,
        )


def _started(state: State) -> list[tuple[str, int, int]]:
    """(name, incarnation, leases held) of each agent that has begun and not ended."""
    return [
        (name, entry.incarnation, len(state.held.get(name, ())))
        for name, entry in sorted(state.agents.items())
        if entry.state == "started"
    ]


def _say_farewell(patient: Patient, name: str, incarnation: int) -> str:
    try:
        lock = take_name(patient.layout, name)
    except HeldLock:
        return f"left alone: {name} runs again"
    journal = Journal(patient.layout.journal, durable=patient.durable)
    try:
        said = farewell(journal, name, incarnation, by="doctor")
    finally:
        journal.close()
        lock.release()
    return "agent.exited written, its leases are free" if said else "said already"


def check_doorbells(patient: Patient) -> Iterator[Finding]:
    """Sockets that nobody listens at."""
    for path in _files(patient.layout.doorbells):
        if stat.S_ISSOCK(path.lstat().st_mode) and not _answers(path):
            yield Finding(
                "doorbells",
                patient.layout.relative(path),
                "is the doorbell of a process that was killed; nobody hears it, and it does no harm",
                "hivemind doctor --fix removes it",
                partial(_remove, path),
                note=True,
            )


def _answers(path: Path) -> bool:
    """Whether a process listens there; connecting rings no bell."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return False
        except OSError as error:
            return error.errno != errno.ENOENT
    return True


def _remove(path: Path) -> str:
    if _answers(path):
        return "left alone: somebody listens there again"
    path.unlink(missing_ok=True)
    return "removed"


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # told by the check of folders
        return []
