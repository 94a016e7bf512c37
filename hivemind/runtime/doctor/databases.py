"""The databases: whole, as SQLite itself judges."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import quote

from hivemind.runtime.doctor.finding import Finding
from hivemind.runtime.doctor.patient import Patient

__all__ = ["check_databases"]


def check_databases(patient: Patient) -> Iterator[Finding]:
    """documents.db and memory.db."""
    layout = patient.layout
    for path in (layout.documents_db, layout.memory_db):
        wrong = _judge(path) if path.exists() else None
        if wrong is not None:
            yield Finding(
                "databases",
                layout.relative(path),
                f"is damaged: {wrong}",
                "hivemind doctor --fix sets it aside: what comes from files is read in again; put it back from a copy otherwise",
                partial(_set_aside, patient, path),
                quiet=True,
            )


def _judge(path: Path) -> str | None:
    """What is wrong with a database, or None."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5)) as database:
            said = [str(row[0]) for row in database.execute("PRAGMA quick_check(3)")]
    except sqlite3.OperationalError as error:
        return None if "locked" in str(error) else str(error)
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if said == ["ok"] else "; ".join(said)


def _set_aside(patient: Patient, path: Path) -> str:
    said = [patient.aside.take(part) for end in ("-wal", "-shm") if (part := path.with_name(path.name + end)).exists()]
    return "; ".join([patient.aside.take(path), *said])
