"""The journal and the logs of tasks: whole lines, nothing missing, nothing torn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.coordination import Journal
from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import Log
from hivemind.tasks.folder import open_log

__all__ = ["check_journal", "check_task_logs"]


def check_journal(patient: Patient) -> Iterator[Finding]:
    """Every event read once; a torn end, a damaged middle."""
    folder = patient.layout.journal
    if not patient.has_journal:
        return
    journal = Journal(folder, looking=True)
    try:
        for _ in journal.events():
            pass
    except UserError as error:
        yield Finding("journal", error.where or str(folder), error.what, error.mend or "put it back from a copy")
        return
    finally:
        journal.close()
    segments = sorted(folder.glob("*.jsonl"))
    torn = Log(segments[-1], "journal", 1).torn() if segments and patient.running() is None else b""
    if torn:
        yield Finding(
            "journal",
            patient.layout.relative(segments[-1]),
            f"its last line is torn ({len(torn)} bytes): a crash cut it short; that event did not happen",
            "hivemind doctor --fix cuts it off and keeps it beside the file; so does the next event",
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
    return "cut off, and kept beside the file"


def check_task_logs(patient: Patient) -> Iterator[Finding]:
    """What the log of each task is, and its end; of those in work only while nobody is writing."""
    layout = patient.layout
    places = [layout.done, layout.failed]
    if patient.running() is None:
        places.append(layout.active)
    for place in places:
        for folder in sorted(place.glob("[!.]*/")) if place.is_dir() else ():
            log = open_log(folder, durable=patient.durable)
            where = layout.relative(log.path)
            try:
                next(log.records(), None)
                torn = log.torn()
            except UnknownVersion as error:
                yield Finding("logs", where, error.what, error.mend or "use the hivemind that wrote it")
                continue
            except UserError as error:
                mend = "put it back from a copy, or hivemind doctor --fix sets it aside"
                yield Finding("logs", where, error.what, mend, partial(patient.aside.take, Path(log.path)), quiet=True)
                continue
            if torn:
                yield Finding(
                    "logs",
                    where,
                    f"its last line is torn ({len(torn)} bytes): a crash cut it short",
                    f"hivemind doctor --fix moves the piece to {where}.torn",
                    partial(_mend, log),
                    quiet=True,
                )


def _mend(log: Log) -> str:
    """A log mends a torn end itself as soon as anyone holds its lock."""
    with log.locked():
        return f"cut off, and kept in {log.path}.torn"
