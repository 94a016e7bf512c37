"""The journal and the logs of tasks: whole lines, nothing missing, nothing torn."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from hivemind.boundary import Unreadable, boundary
from hivemind.coordination import Journal, JournalDamaged
from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient
from hivemind.errors import UserError

__all__ = ["check_journal", "check_task_logs"]

_LOG = "messages.jsonl"
_CHUNK = 65_536


def check_journal(patient: Patient) -> Iterator[Finding]:
    """Every event read once; a torn end, a damaged middle."""
    folder = patient.layout.journal
    if not patient.has_journal:
        return
    journal = Journal(folder, looking=True)
    try:
        for _ in journal.events():
            pass
    except (JournalDamaged, UserError) as error:
        yield Finding("journal", error.where or str(folder), error.what, error.mend or "put it back from a copy")
        return
    finally:
        journal.close()
    segments = sorted(folder.glob("*.jsonl"))
    torn = _torn(segments[-1]) if segments and patient.running() is None else b""
    if torn:
        yield Finding(
            "journal",
            patient.layout.relative(segments[-1]),
            f"its last line is torn ({len(torn)} bytes): a crash cut it short; that event did not happen",
            "hivemind doctor --fix cuts it off and keeps it in journal/repairs.log; so does the next event",
            partial(_mend_journal, folder, patient.durable),
        )


def _mend_journal(folder: Path, durable: bool) -> str:
    """The journal mends a torn end itself as soon as anyone holds its lock."""
    journal = Journal(folder, durable=durable)
    try:
        with journal.guarding(lambda _: None):
            pass
    finally:
        journal.close()
    return "cut off, and kept in journal/repairs.log"


def check_task_logs(patient: Patient) -> Iterator[Finding]:
    """The last line of each task's log; of those in work only while nobody is writing."""
    layout = patient.layout
    places = [layout.done, layout.failed]
    if patient.running() is None:
        places.append(layout.active)
    for place in places:
        for log in sorted(place.glob(f"*/{_LOG}")) if place.is_dir() else ():
            torn = _torn(log)
            if torn and not _is_record(torn):
                yield Finding(
                    "logs",
                    layout.relative(log),
                    f"its last line is torn ({len(torn)} bytes): a crash cut it short",
                    "hivemind doctor --fix sets the piece aside and cuts it off",
                    partial(_cut, patient, log, torn),
                    quiet=True,
                )


def _torn(path: Path) -> bytes:
    """What stands after the last newline."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        end = os.fstat(file).st_size
        tail = b""
        while end and b"\n" not in tail:
            start = max(0, end - _CHUNK)
            tail = os.pread(file, end - start, start) + tail
            end = start
    finally:
        os.close(file)
    return tail.rpartition(b"\n")[2]


def _is_record(line: bytes) -> bool:
    """A whole record that only lacks its newline (a person's editor): every reader takes it."""
    with suppress(Unreadable), boundary("line of a log"):
        return isinstance(json.loads(line), dict)
    return False


def _cut(patient: Patient, log: Path, torn: bytes) -> str:
    if _torn(log) != torn:
        return "left alone: it has been written to since"
    kept = patient.aside.keep(log.with_name(f"{log.name}.torn"), torn)
    os.truncate(log, log.stat().st_size - len(torn))
    return f"cut off, and kept as {kept}"
