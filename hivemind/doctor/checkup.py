"""The list of all checks, and the functions that run them and apply fixes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hivemind.coordination import load_workspace
from hivemind.coordination.integrity import check_journal
from hivemind.doctor.claims import check_claims, check_unended_agents, check_worktrees
from hivemind.doctor.context import DoctorContext
from hivemind.doctor.databases import check_databases
from hivemind.doctor.files import (
    check_access,
    check_file_types,
    check_folders,
    check_leftovers,
    check_mailbox_folders,
    check_records,
    check_workspace_record,
)
from hivemind.doctor.landing import check_landing
from hivemind.doctor.machine import check_file_system, check_inotify, check_sandbox, check_settings
from hivemind.errors import UnknownVersion, UserError
from hivemind.frozen import frozen
from hivemind.fs.integrity import DoctorFinding, check_locks
from hivemind.mail import integrity as mail
from hivemind.reasoning.integrity import check_graph
from hivemind.tasks import integrity as tasks

Check = Callable[[DoctorContext], Iterable[DoctorFinding]]


def _mail(context: DoctorContext) -> Iterator[DoctorFinding]:
    layout, aside = context.layout, context.aside
    yield from mail.check_key(layout, aside)
    for name in context.mailbox_owners:
        yield from mail.check_letters(context.mail, layout, name, aside, context.now)
    if context.agents is not None:
        yield from mail.check_ownerless_mailboxes(layout, context.agents)


def _graphs(context: DoctorContext) -> Iterator[DoctorFinding]:
    layout = context.layout
    for folder in _task_folders(layout.active, layout.done, layout.failed, layout.inbox):
        yield from check_graph(folder, context.aside)


def _journal(context: DoctorContext) -> Iterable[DoctorFinding]:
    running = context.describe_running() is not None
    return check_journal(context.layout.journal, context.aside, running=running)


def _logs(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Check the logs of tasks. Logs of active tasks are checked only while no process of the hive runs."""
    layout = context.layout
    for folder in _task_folders(
        layout.done, layout.failed, *([layout.active] if context.describe_running() is None else [])
    ):
        yield from tasks.check_log(folder, context.aside)


def _schedule(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Find files of the schedule that make no tasks. `check_records` checks the record of the schedule itself."""
    for schedule_file in context.tasks.schedule.look(datetime.now(UTC)):
        path = context.layout.schedule / schedule_file.name
        if schedule_file.problem is not None and path.exists():
            yield DoctorFinding(path, f"{schedule_file.problem}; no task is made from it", "fix the file")


def _task_folders(*parents: Path) -> Iterator[Path]:
    folders = (folder for parent in parents for folder in sorted(parent.glob("[!.]*/")))
    return (folder for folder in folders if os.access(folder, os.R_OK | os.X_OK))  # else reported by check_folders


CHECKS: tuple[tuple[str, Check], ...] = (
    ("settings", check_settings),
    ("sandbox", check_sandbox),
    ("file system", check_file_system),
    ("folders", check_folders),
    ("mailboxes", check_mailbox_folders),
    ("folders", check_access),
    ("mail", _mail),
    ("records", check_workspace_record),
    ("records", check_file_types),
    ("records", check_records),  # before the claims: a damaged record has no owner
    ("tasks", check_claims),
    ("tasks", lambda context: tasks.check_folders(context.layout)),
    ("tasks", _schedule),
    ("graphs", _graphs),
    ("journal", _journal),
    ("logs", _logs),
    ("locks", lambda context: check_locks(context.layout.locks)),
    ("locks", check_unended_agents),
    ("leftovers", check_leftovers),
    ("worktrees", check_worktrees),
    ("landing", check_landing),
    ("databases", check_databases),
    ("inotify", check_inotify),
)
"""The name and function of each check, in the order in which they run."""


@frozen
class FixOutcome:
    """A finding with the result of its fix: `done` says what was done, `unresolved_reason` why the problem remains. One of them
    is None.
    """

    finding: DoctorFinding
    done: str | None = None
    unresolved_reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        finding = self.finding
        return {
            "check": finding.check, "where": finding.location, "what": finding.message, "mend": finding.remedy,
            "note": finding.note, "fixable": finding.fix is not None, "done": self.done, "left": self.unresolved_reason,
        }  # fmt: skip


def examine(context: DoctorContext, on_check: Callable[[str], None] = lambda _: None) -> list[DoctorFinding]:
    """Run all checks and return the problems and notes. No file is changed. `on_check` is called with each check's name.

    If the hive has another version, return only that problem, because the checks would take its formats for damage.
    """
    layout = context.layout
    try:
        load_workspace(layout.workspace_record)
    except UnknownVersion as error:
        record_path = layout.relative(layout.workspace_record)
        return [DoctorFinding(record_path, error.message, error.remedy or "", check="records")]
    except UserError:
        pass  # reported by check_records
    findings: list[DoctorFinding] = []
    for name, check in CHECKS:
        on_check(name)
        try:
            findings += (replace(finding, check=name) for finding in check(context))
        except OSError as error:  # an unreadable folder must not hide the findings of other checks
            message = f"cannot be checked: {error.strerror}"
            findings.append(
                DoctorFinding(Path(error.filename or layout.root), message, "check its permissions", check=name)
            )
    return [
        replace(finding, location=layout.relative(finding.location)) if isinstance(finding.location, Path) else finding
        for finding in findings
    ]


def apply_fixes(context: DoctorContext, findings: Iterable[DoctorFinding]) -> list[FixOutcome]:
    """Apply the fixes in order and report each. Fixes of `quiet` findings are skipped while a process of the hive runs."""
    return [_apply_fix(context, finding) for finding in findings]


def _apply_fix(context: DoctorContext, finding: DoctorFinding) -> FixOutcome:
    if finding.fix is None:
        return _unresolved(finding, "it must be fixed by hand")
    if context.is_read_only:
        return _unresolved(finding, "the file system is mounted read-only")
    running = context.describe_running() if finding.quiet else None
    if running is not None:
        return _unresolved(finding, f"{running}: hivemind down first")
    try:
        return FixOutcome(finding, done=finding.fix())
    except UserError as error:
        return _unresolved(finding, str(error))
    except OSError as error:
        return _unresolved(finding, error.strerror or str(error))


def _unresolved(finding: DoctorFinding, reason: str) -> FixOutcome:
    return FixOutcome(finding, unresolved_reason=None if finding.note else reason)
