"""The databases: whole, as SQLite itself judges; of documents also, whether each part fits the others."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from hivemind.doctor.patient import CheckContext
from hivemind.documents import Docmem, Knowledge
from hivemind.errors import UnknownVersion, UserError, is_disk_full
from hivemind.fs import database
from hivemind.fs.backup import REPORT_SUFFIX, restore
from hivemind.fs.check import CheckFinding
from hivemind.longterm import MemoryStore
from hivemind.reasoning import GraphIndex

_SHOWN = 3


def check_databases(patient: CheckContext) -> Iterator[CheckFinding]:
    """documents.db, memory.db and graphs.db, and what was saved of damaged ones."""
    layout = patient.layout
    documents = _check(
        layout.documents_db, Docmem, partial(_mend_documents, patient),
        gone="what was only there, notes, summaries, documents without a file, is gone",
        then="reads knowledge/ in anew",
    )  # fmt: skip
    memories = _check(
        layout.memory_db, MemoryStore, partial(_mend_memories, patient),
        gone="what was remembered is gone", then="searches by words until vectors are computed anew",
    )  # fmt: skip
    checks = ((layout.documents_db, documents), (layout.memory_db, memories), (layout.graphs_db, _graph_index(patient)))
    for path, findings in checks:
        try:
            yield from findings
        except UnknownVersion as error:
            yield CheckFinding(path, error.message, error.remedy or "move the file away")
        except (OSError, UserError) as error:
            if not is_disk_full(error):
                raise
            message, remedy = "cannot be looked at: the disk is full", "make room, then look again"
            yield CheckFinding(path, message, remedy, note=True)
    yield from _saved(patient)
    yield from _memory_server(patient)


def _memory_server(patient: CheckContext) -> Iterator[CheckFinding]:
    """What the PostgreSQL database lacks that hive.yaml names for memory, or that it is away."""
    if patient.config is not None and patient.config.memory is not None:
        from hivemind.longterm.postgres import server_status

        for problem, remedy in server_status(patient.config.memory).problems:
            yield CheckFinding(patient.config.memory, f"memory in PostgreSQL: {problem}", remedy)


def _check(
    path: Path,
    store: type[Docmem | MemoryStore],
    mend: Callable[[], str],
    *,
    gone: str,
    then: str,
) -> Iterator[CheckFinding]:
    """One database: whether it is one, is whole, and fits together. `gone` and `then` are what is lost, what comes after."""
    if (loss := database.describe_loss(path)) is not None:
        remedy = "put it back from a copy; hivemind doctor --fix takes the last backup, or begins it anew"
        yield CheckFinding(path, f"is {loss}: {gone}", remedy, mend)
        return
    if (damage := _judge(path)) is not None:
        remedy = f"hivemind doctor --fix keeps it in .hive/aside/, puts the last good backup in its place and {then}"
        yield CheckFinding(path, f"is damaged: {damage}", remedy, mend)
        return
    for line in _problems(path, partial(store, path)):
        yield CheckFinding(path, f"does not fit together: {line}", "hivemind doctor --fix mends it", mend)


def _problems(path: Path, store: Callable[[], Docmem | MemoryStore | GraphIndex]) -> list[str]:
    """What does not fit within a sound file; nothing where it cannot be written, because the index's check is a write."""
    if not path.exists() or not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return []
    try:
        with closing(store()) as open_store:
            return open_store.check()[:_SHOWN]
    except UserError as error:
        if is_disk_full(error) or isinstance(error, UnknownVersion):
            raise
        return [str(error.message)]


def _mend_documents(patient: CheckContext) -> str:
    with Docmem(patient.layout.documents_db) as docmem:
        return _told(Knowledge(docmem, patient.layout).restore())


def _mend_memories(patient: CheckContext) -> str:
    with MemoryStore(patient.layout.memory_db) as memory:
        return _told(restore(memory, patient.layout.backups, patient.layout.aside, lambda _: None))


def _told(done: Sequence[str]) -> str:
    return "; ".join(done) or "another program has mended it meanwhile"


def _graph_index(patient: CheckContext) -> Iterator[CheckFinding]:
    index = GraphIndex(patient.layout)
    if problems := _problems(patient.layout.graphs_db, lambda: index):
        remedy = "hivemind doctor --fix sets it aside; the next `hivemind graph find` makes it anew from the graphs"
        yield CheckFinding(
            patient.layout.graphs_db, f"does not fit together: {'; '.join(problems)}", remedy, index.database.set_aside
        )


def _judge(path: Path) -> str | None:
    """What is wrong with a database, or None; one that is in use by another program is not judged."""
    try:
        return database.describe_damage(path)
    except sqlite3.OperationalError as error:
        if database.is_disk_full(error, path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path) from error
        return None if "locked" in str(error) else str(error)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"


def _saved(patient: CheckContext) -> Iterator[CheckFinding]:
    """What agents have mended by themselves, for as long as the report lies there."""
    for report in sorted(patient.layout.aside.glob(f"*/*{REPORT_SUFFIX}")):
        report_text = " ".join(report.read_text("utf-8", "replace").split())
        remedy = "delete it and the damaged file beside it once you have all that you want of them"
        yield CheckFinding(report, report_text, remedy, note=True)
