"""Checks of the databases: SQLite's own integrity check, and the consistency of documents and memories."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from hivemind.doctor.context import DoctorContext
from hivemind.documents import Docmem, Knowledge
from hivemind.errors import UnknownVersion, UserError, is_disk_full
from hivemind.fs import database
from hivemind.fs.backup import REPORT_SUFFIX, restore
from hivemind.fs.integrity import DoctorFinding
from hivemind.longterm import MemoryStore
from hivemind.reasoning import GraphIndex

_MAX_PROBLEMS = 3


def check_databases(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Check documents.db, memory.db and graphs.db, and list the reports of automatic repairs."""
    layout = context.layout
    documents = _check_database(
        layout.documents_db, Docmem, partial(_mend_documents, context),
        lost_content="notes, summaries and documents without a file are lost",
        recovery="imports knowledge/ again",
    )  # fmt: skip
    memories = _check_database(
        layout.memory_db, MemoryStore, partial(_mend_memories, context),
        lost_content="the memories are lost", recovery="searches by words until the vectors are recomputed",
    )  # fmt: skip
    checks = ((layout.documents_db, documents), (layout.memory_db, memories), (layout.graphs_db, _graph_index(context)))
    for path, findings in checks:
        try:
            yield from findings
        except UnknownVersion as error:
            yield DoctorFinding(path, error.message, error.remedy or "move the file away")
        except (OSError, UserError) as error:
            if not is_disk_full(error):
                raise
            message, remedy = "cannot be checked: the disk is full", "make room, then check again"
            yield DoctorFinding(path, message, remedy, note=True)
    yield from _check_recovery_reports(context)
    yield from _memory_server(context)


def _memory_server(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Check the PostgreSQL database for memories, if hive.yaml names one."""
    if context.config is not None and context.config.memory is not None:
        from hivemind.longterm.postgres import server_status

        for problem, remedy in server_status(context.config.memory).problems:
            yield DoctorFinding(context.config.memory, f"memory in PostgreSQL: {problem}", remedy)


def _check_database(
    path: Path, store: type[Docmem | MemoryStore], fix: Callable[[], str], *, lost_content: str, recovery: str
) -> Iterator[DoctorFinding]:
    """Check that a file is a database, undamaged and consistent.

    `lost_content` names the content that is lost with the file, `recovery` the fix's next step after restoring a
    backup.
    """
    if (loss := database.describe_loss(path)) is not None:
        remedy = "restore it from a copy; hivemind doctor --fix restores the last backup, or creates a new one"
        yield DoctorFinding(path, f"is {loss}: {lost_content}", remedy, fix)
        return
    if (damage := _find_damage(path)) is not None:
        remedy = f"hivemind doctor --fix moves it to .hive/aside/, restores the last good backup and {recovery}"
        yield DoctorFinding(path, f"is damaged: {damage}", remedy, fix)
        return
    for line in _problems(path, partial(store, path)):
        yield DoctorFinding(path, f"is inconsistent: {line}", "hivemind doctor --fix repairs it", fix)


def _problems(path: Path, store: Callable[[], Docmem | MemoryStore | GraphIndex]) -> list[str]:
    """Return the inconsistencies in an undamaged file. Return [] if the file is not writable, because checking its
    index writes."""
    if not path.exists() or not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return []
    try:
        with closing(store()) as open_store:
            return open_store.check()[:_MAX_PROBLEMS]
    except UserError as error:
        if is_disk_full(error) or isinstance(error, UnknownVersion):
            raise
        return [str(error.message)]


def _mend_documents(context: DoctorContext) -> str:
    with Docmem(context.layout.documents_db) as docmem:
        return _summary(Knowledge(docmem, context.layout).restore())


def _mend_memories(context: DoctorContext) -> str:
    with MemoryStore(context.layout.memory_db) as memory:
        return _summary(restore(memory, context.layout.backups, context.layout.aside, lambda _: None))


def _summary(repairs: Sequence[str]) -> str:
    return "; ".join(repairs) or "another program has repaired it meanwhile"


def _graph_index(context: DoctorContext) -> Iterator[DoctorFinding]:
    index = GraphIndex(context.layout)
    if problems := _problems(context.layout.graphs_db, lambda: index):
        remedy = "hivemind doctor --fix sets it aside; the next search rebuilds it from the graphs"
        yield DoctorFinding(
            context.layout.graphs_db, f"is inconsistent: {'; '.join(problems)}", remedy, index.database.set_aside
        )


def _find_damage(path: Path) -> str | None:
    """Describe the damage of a database. Return None if the database is sound, or locked by another program."""
    try:
        return database.describe_damage(path)
    except sqlite3.OperationalError as error:
        if database.is_disk_full(error, path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path) from error
        return None if "locked" in str(error) else str(error)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"


def _check_recovery_reports(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report each automatic repair until a person deletes its report."""
    for report in sorted(context.layout.aside.glob(f"*/*{REPORT_SUFFIX}")):
        report_text = " ".join(report.read_text("utf-8", "replace").split())
        remedy = "delete it and the damaged file next to it when you no longer need them"
        yield DoctorFinding(report, report_text, remedy, note=True)
