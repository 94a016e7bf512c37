"""The databases: whole, as SQLite itself judges; of documents also, whether each part fits the others."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.documents import Docmem, Knowledge
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs.mending import REPORT
from hivemind.fs.soundness import unsound
from hivemind.longterm import MemoryStore
from hivemind.reasoning import GraphIndex
from hivemind.runtime.doctor.finding import Finding
from hivemind.runtime.doctor.patient import Patient

__all__ = ["check_databases"]

_SHOWN = 3


def check_databases(patient: Patient) -> Iterator[Finding]:
    """documents.db, memory.db and graphs.db, and what was saved of damaged ones."""
    yield from _documents(patient)
    yield from _memory(patient)
    yield from _graph_index(patient)
    yield from _saved(patient)


def _documents(patient: Patient) -> Iterator[Finding]:
    path = patient.layout.documents_db
    where = patient.layout.relative(path)
    if path.exists() and path.stat().st_size == 0:
        what = "is empty (0 bytes): what was only there, notes, summaries, documents without a file, is gone"
        yield Finding("databases", where, what, "put it back from a copy, or go on: it is made anew", note=True)
        return
    wrong = _judge(path)
    if wrong is not None:
        yield Finding(
            "databases",
            where,
            f"is damaged: {wrong}",
            "hivemind doctor --fix keeps it in .hive/aside/, saves what can be read of it and reads knowledge/ in anew",
            partial(_mend, patient),
        )
        return
    for line in _problems(path)[:_SHOWN]:
        mend = "hivemind doctor --fix mends it"
        yield Finding("databases", where, f"does not fit together: {line}", mend, partial(_mend, patient))


def _problems(path: Path, store: type[Docmem | MemoryStore] = Docmem) -> list[str]:
    """What does not fit within a sound file; nothing where it cannot be written, because the index's check is a write."""
    if not path.exists() or not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return []
    try:
        with store(path) as opened:
            return opened.check()
    except UserError as error:
        return [str(error.what)]


def _mend(patient: Patient) -> str:
    with Docmem(patient.layout.documents_db) as docmem:
        return "; ".join(Knowledge(docmem, patient.layout).mend()) or "another program has mended it meanwhile"


def _memory(patient: Patient) -> Iterator[Finding]:
    path = patient.layout.memory_db
    wrong = _judge(path)
    if wrong is not None:
        yield Finding(
            "databases",
            patient.layout.relative(path),
            f"is damaged: {wrong}",
            "hivemind doctor --fix sets it aside: put it back from a copy",
            partial(_set_aside, patient, path),
            quiet=True,
        )
        return
    for line in _problems(path, MemoryStore)[:_SHOWN]:
        mend = "hivemind doctor --fix makes it anew from the entries"
        yield Finding(
            "databases", patient.layout.relative(path), f"does not fit together: {line}", mend, partial(_redo, path)
        )


def _redo(path: Path) -> str:
    with MemoryStore(path) as memory:
        memory.mend()
    return "its index, counts and vectors were made anew"


def _graph_index(patient: Patient) -> Iterator[Finding]:
    path = patient.layout.graphs_db
    if not path.exists() or not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return
    index = GraphIndex(patient.layout)
    where = patient.layout.relative(path)
    try:
        wrong = index.check()[:_SHOWN]
    except UnknownVersion as error:
        yield Finding("databases", where, error.what, error.mend or "move the file away")
        return
    except UserError as error:
        wrong = [error.what]
    finally:
        index.close()
    if wrong:
        mend = "hivemind doctor --fix sets it aside; the next `hivemind graph find` makes it anew from the graphs"
        yield Finding("databases", where, f"does not fit together: {'; '.join(wrong)}", mend, index.set_aside)


def _judge(path: Path) -> str | None:
    """What is wrong with a database, or None; one that is in use by another program is not judged."""
    try:
        return unsound(path)
    except sqlite3.OperationalError as error:
        return None if "locked" in str(error) else str(error)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"


def _set_aside(patient: Patient, path: Path) -> str:
    said = [patient.aside.take(part) for end in ("-wal", "-shm") if (part := path.with_name(path.name + end)).exists()]
    return "; ".join([patient.aside.take(path), *said])


def _saved(patient: Patient) -> Iterator[Finding]:
    """What agents have mended by themselves, for as long as the report lies there."""
    for report in sorted(patient.layout.aside.glob(f"*/*{REPORT}")):
        said = " ".join(report.read_text("utf-8", "replace").split())
        mend = "delete it and the damaged file beside it once you have all that you want of them"
        yield Finding("databases", patient.layout.relative(report), said, mend, note=True)
