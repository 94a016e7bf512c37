"""All checks, one after the other, and the mending of what they found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hivemind.coordination import load_workspace
from hivemind.doctor.claims import check_claims, check_task_folders
from hivemind.doctor.databases import check_databases
from hivemind.doctor.finding import Finding
from hivemind.doctor.folders import check_access, check_folders, check_mailbox_folders
from hivemind.doctor.graphs import check_graphs
from hivemind.doctor.leftovers import check_leftovers, check_worktrees
from hivemind.doctor.letters import check_letters, check_mail_key, check_strangers
from hivemind.doctor.locks import check_doorbells, check_farewells, check_locks
from hivemind.doctor.logs import check_journal, check_task_logs
from hivemind.doctor.machine import check_encodings, check_file_system, check_inotify
from hivemind.doctor.patient import Patient
from hivemind.doctor.records import check_places, check_records
from hivemind.doctor.sandboxes import check_sandboxes
from hivemind.doctor.settings import check_settings
from hivemind.errors import UnknownVersion, UserError

__all__ = ["CHECKS", "Treated", "examine", "treat"]

Check = Callable[[Patient], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    check_settings,
    check_sandboxes,
    check_file_system,
    check_folders,
    check_mailbox_folders,
    check_access,
    check_mail_key,
    check_letters,
    check_strangers,
    check_places,
    check_records,  # before the claims: a damaged one is nobody's
    check_claims,
    check_task_folders,
    check_graphs,
    check_journal,
    check_task_logs,
    check_locks,
    check_farewells,
    check_doorbells,
    check_leftovers,
    check_worktrees,
    check_databases,
    check_encodings,
    check_inotify,
)


@dataclass(frozen=True, slots=True)
class Treated:
    """A finding and what became of it: `done` says what was done, `left` why a problem is still there."""

    finding: Finding
    done: str | None = None
    left: str | None = None

    def as_dict(self) -> dict[str, Any]:
        found = self.finding
        same = {name: getattr(found, name) for name in ("check", "where", "what", "mend", "note")}
        return {**same, "fixable": found.fix is not None, "done": self.done, "left": self.left}


def examine(patient: Patient, began: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Everything that is wrong with a hive or worth knowing. Changes nothing. `began` is told of each check's beginning.

    Of a hive of another version only that is said: the checks would take its formats for damage.
    """
    record = patient.layout.workspace_record
    try:
        load_workspace(record)
    except UnknownVersion as error:
        return [Finding("records", patient.layout.relative(record), error.what, error.mend or "")]
    except UserError:
        pass  # told by the check of records
    found: list[Finding] = []
    for check in CHECKS:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        began(name)
        try:
            found += check(patient)
        except OSError as error:  # one folder that cannot be read must not hide what the other checks see
            where = patient.layout.relative(str(error.filename)) if error.filename else str(patient.layout.root)
            found.append(Finding(name, where, f"cannot be looked at: {error.strerror}", "see its permissions"))
    return found


def treat(patient: Patient, findings: Iterable[Finding]) -> list[Treated]:
    """Mend what can be mended, in order. What needs a quiet hive is left while anything of it runs."""
    return [_treat(patient, finding) for finding in findings]


def _treat(patient: Patient, finding: Finding) -> Treated:
    if finding.fix is None:
        return _left(finding, "only you can mend it")
    if patient.read_only:
        return _left(finding, "the file system is mounted read-only")
    running = patient.running() if finding.quiet else None
    if running is not None:
        return _left(finding, f"{running}: hivemind down first")
    try:
        return Treated(finding, done=finding.fix())
    except UserError as error:
        return _left(finding, str(error))
    except OSError as error:
        return _left(finding, error.strerror or str(error))


def _left(finding: Finding, why: str) -> Treated:
    return Treated(finding, left=None if finding.note else why)
