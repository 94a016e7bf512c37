"""All checks, one after the other, and the mending of what they found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from hivemind.coordination import load_workspace
from hivemind.coordination.check import check_journal
from hivemind.doctor.claims import check_claims, check_farewells, check_worktrees
from hivemind.doctor.databases import check_databases
from hivemind.doctor.files import (
    check_access,
    check_folders,
    check_leftovers,
    check_mailbox_folders,
    check_places,
    check_records,
    check_workspace_record,
)
from hivemind.doctor.machine import check_encodings, check_file_system, check_inotify, check_sandbox, check_settings
from hivemind.doctor.patient import CheckContext
from hivemind.documents import verify
from hivemind.errors import UnknownVersion, UserError
from hivemind.frozen import frozen
from hivemind.fs.check import CheckFinding, check_doorbells, check_locks
from hivemind.mail import check as mail
from hivemind.reasoning.check import check_graph
from hivemind.taskrun.check import check_citations
from hivemind.tasks import check as tasks

Check = Callable[[CheckContext], Iterable[CheckFinding]]


def _mail(patient: CheckContext) -> Iterator[CheckFinding]:
    layout, aside = patient.layout, patient.aside
    yield from mail.check_key(layout, aside)
    for name in patient.names:
        yield from mail.check_letters(patient.mail, layout, name, aside, patient.now)
    if patient.agents is not None:
        yield from mail.check_ownerless_mailboxes(layout, patient.agents)


def _graphs(patient: CheckContext) -> Iterator[CheckFinding]:
    layout = patient.layout
    for folder in _tasks_in(layout.active, layout.done, layout.failed, layout.inbox):
        yield from check_graph(folder, patient.aside, durable=patient.durable)


def _journal(patient: CheckContext) -> Iterable[CheckFinding]:
    running = patient.running() is not None
    return check_journal(patient.layout.journal, patient.aside, durable=patient.durable, running=running)


def _logs(patient: CheckContext) -> Iterator[CheckFinding]:
    """Those of tasks in work only while nobody is writing."""
    layout = patient.layout
    for folder in _tasks_in(layout.done, layout.failed, *([layout.active] if patient.running() is None else [])):
        yield from tasks.check_log(folder, patient.aside, durable=patient.durable)


def _schedule(patient: CheckContext) -> Iterator[CheckFinding]:
    """Files of the schedule of which no task is made; its record is seen to by the check of records."""
    for schedule_file in patient.tasks.schedule.look(datetime.now(UTC)):
        path = patient.layout.schedule / schedule_file.name
        if schedule_file.problem is not None and path.exists():
            yield CheckFinding(path, f"{schedule_file.problem}; no task is made of it", "mend the file")


def _results(patient: CheckContext) -> Iterator[CheckFinding]:
    for folder in _tasks_in(patient.layout.done):
        yield from check_citations(folder, partial(verify, layout=patient.layout, roots=patient.roots))


def _tasks_in(*places: Path) -> Iterator[Path]:
    folders = (folder for parent in places for folder in sorted(parent.glob("[!.]*/")))
    return (folder for folder in folders if os.access(folder, os.R_OK | os.X_OK))  # else told by the check of folders


CHECKS: tuple[tuple[str, Check], ...] = (
    ("settings", check_settings),
    ("sandbox", check_sandbox),
    ("file system", check_file_system),
    ("folders", check_folders),
    ("mailboxes", check_mailbox_folders),
    ("folders", check_access),
    ("mail", _mail),
    ("records", check_workspace_record),
    ("records", check_places),
    ("records", check_records),  # before the claims: a damaged one is nobody's
    ("tasks", check_claims),
    ("tasks", lambda context: tasks.check_folders(context.layout)),
    ("tasks", _schedule),
    ("graphs", _graphs),
    ("results", _results),
    ("journal", _journal),
    ("logs", _logs),
    ("locks", lambda context: check_locks(context.layout.locks)),
    ("locks", check_farewells),
    ("doorbells", lambda context: check_doorbells(context.layout.doorbells)),
    ("leftovers", check_leftovers),
    ("worktrees", check_worktrees),
    ("databases", check_databases),
    ("encodings", check_encodings),
    ("inotify", check_inotify),
)
"""The name of each check, and what it asks of a room."""


@frozen
class FixReport:
    """A finding and what became of it: `done` says what was done, `left` why a problem is still there."""

    finding: CheckFinding
    done: str | None = None
    left: str | None = None

    def as_dict(self) -> dict[str, Any]:
        finding = self.finding
        fields = {name: getattr(finding, name) for name in ("check", "where", "what", "mend", "note")}
        return {**fields, "fixable": finding.fix is not None, "done": self.done, "left": self.left}


def examine(patient: CheckContext, began: Callable[[str], None] = lambda _: None) -> list[CheckFinding]:
    """Everything that is wrong with a hive or worth knowing. Changes nothing. `began` is told of each check's beginning.

    Of a hive of another version only that is said: the checks would take its formats for damage.
    """
    layout = patient.layout
    try:
        load_workspace(layout.workspace_record)
    except UnknownVersion as error:
        record_path = layout.relative(layout.workspace_record)
        return [CheckFinding(record_path, error.message, error.remedy or "", check="records")]
    except UserError:
        pass  # told by the check of records
    findings: list[CheckFinding] = []
    for name, check in CHECKS:
        began(name)
        try:
            findings += (replace(finding, check=name) for finding in check(patient))
        except OSError as error:  # one folder that cannot be read must not hide what the other checks see
            message = f"cannot be looked at: {error.strerror}"
            findings.append(CheckFinding(Path(error.filename or layout.root), message, "see its permissions", check=name))
    return [replace(finding, where=layout.relative(finding.where)) if isinstance(finding.where, Path) else finding for finding in findings]


def treat(patient: CheckContext, findings: Iterable[CheckFinding]) -> list[FixReport]:
    """Mend what can be mended, in order. What needs a quiet hive is left while anything of it runs."""
    return [_treat(patient, finding) for finding in findings]


def _treat(patient: CheckContext, finding: CheckFinding) -> FixReport:
    if finding.fix is None:
        return _left(finding, "only you can mend it")
    if patient.read_only:
        return _left(finding, "the file system is mounted read-only")
    running = patient.running() if finding.quiet else None
    if running is not None:
        return _left(finding, f"{running}: hivemind down first")
    try:
        return FixReport(finding, done=finding.fix())
    except UserError as error:
        return _left(finding, str(error))
    except OSError as error:
        return _left(finding, error.strerror or str(error))


def _left(finding: CheckFinding, why: str) -> FixReport:
    return FixReport(finding, left=None if finding.note else why)
