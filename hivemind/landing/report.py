"""The state of landing for people: the waiting, checked, returned and landed tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from hivemind.coordination.branches import branch_overlaps
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs.paths import names_in
from hivemind.landing.changes import DIFF
from hivemind.landing.checks import CheckSpace, protected_changes
from hivemind.landing.merging import landing_message, rehearse_merge
from hivemind.landing.obstacles import obstacle_now
from hivemind.landing.queue import Queue, get_queued
from hivemind.landing.target import Hold, Target, held_roots, unpushed_roots
from hivemind.layout import LANDING
from hivemind.presence.identity import holder_pid
from hivemind.presence.parts import Parts
from hivemind.presence.status import read_status
from hivemind.taskrun.landing_entry import LandingBranch, LandingEntry
from hivemind.tasks import Task
from hivemind.tasks.record import load_sound

_MAX_LANDED = 5


@frozen
class ReportedTask:
    """A task that is to land, or was `returned` to its agent. `since` is the time of its last change, None if it was returned."""

    task: Task
    state: Literal["checked", "queued", "waits", "moves", "returned"]
    reason: str
    since: datetime | None
    entry: LandingEntry

    def as_dict(self) -> dict[str, Any]:
        branches = [
            {"root": branch.root, "branch": branch.branch, "into": branch.target} for branch in self.entry.branches
        ]
        return {
            "id": self.task.id, "title": self.task.title, "state": self.state, "why": self.reason, "since": self.since,
            "agent": self.entry.agent, "queued": self.entry.queued, "tries": self.entry.tries, "branches": branches,
        }  # fmt: skip


@frozen
class LandedTask:
    """A landed commit of a task."""

    task: str
    commit: str
    root: Path
    branch: str


@frozen
class LandingOverview:
    """The queue in the order of landing, the returned tasks, the held roots, and what has landed last, newest first."""

    queue: tuple[ReportedTask, ...]
    returned: tuple[ReportedTask, ...]
    holds: dict[Path, Hold]
    unpushed: dict[Path, str]
    landed: tuple[LandedTask, ...]


def report_landing(hive: Parts) -> LandingOverview:
    """Return the state of landing. Raises UserError."""
    return LandingOverview(
        tuple(_queued_tasks(hive)), tuple(_returned_tasks(hive)), held_roots(hive.config, hive.layout),
        unpushed_roots(hive.config, hive.layout), tuple(_landed_tasks(hive)),
    )  # fmt: skip


def _queued_tasks(hive: Parts) -> Iterator[ReportedTask]:
    status = (
        None if holder_pid(hive.layout, LANDING) is None else read_status(hive.layout.agent_state(LANDING), LANDING)
    )
    checked_ids = set() if status is None else {*(status.task or "").split()}
    for queued in Queue(hive).read():
        entry, parked = queued.entry, queued.task.parked
        if entry.state == "returned":  # a killed lander had sent it back
            continue
        state: Any = {"waits": "waits", "green": "waits", "moving": "moves"}.get(entry.state, "queued")
        if state == "queued" and queued.id in checked_ids:
            state = "checked"
        overlaps = (
            f"conflicts with {overlap.task} in {', '.join(overlap.paths[:3])}"
            for overlap in branch_overlaps(hive.layout, queued.id)
            if overlap.task
        )
        reason = entry.reason
        if status is None and entry.state != "green":
            tried = f"{reason} (when it was last tried)" if reason else "no swarm is up"
            reason = obstacle_now(hive, queued) or tried
        reason = "; ".join(filter(None, [reason, *overlaps]))
        yield ReportedTask(queued.task, state, reason, None if parked is None else parked.since, entry)


def _returned_tasks(hive: Parts) -> Iterator[ReportedTask]:
    layout = hive.layout
    for folder in (path / name for path in (layout.active, layout.inbox) for name in sorted(names_in(path))):
        record = load_sound(folder) if folder.is_dir() else None
        if record is None or LANDING not in record.kept:
            continue
        with suppress(UserError):
            task = hive.tasks.get(folder.name)
            entry = LandingEntry.of(task.kept)
            if entry is not None and entry.state == "returned":
                reasons = [addition.text.partition("\n")[0] for addition in task.said if addition.by == LANDING]
                yield ReportedTask(task, "returned", reasons[-1] if reasons else "", None, entry)


def _landed_tasks(hive: Parts) -> Iterator[LandedTask]:
    for root, settings in hive.config.repository_roots(hive.layout).items():
        with suppress(UserError):
            target = Target.at(hive.layout, root, settings)
            pairs = [*target.landed().items()][: -_MAX_LANDED - 1 : -1]
            yield from (LandedTask(task_id, commit, root, target.branch) for commit, task_id in pairs)


@frozen
class Rehearsal:
    """A prediction of one branch's landing. `conflicts` and `protected` are paths, `changes` has a line for each file.
    `verdict` is the remembered outcome of the check on the merged tree, or `not run yet`."""

    branch: LandingBranch
    how: str
    subject: str
    changes: tuple[str, ...]
    conflicts: tuple[str, ...]
    protected: tuple[str, ...]
    check: tuple[str, ...]
    verdict: str


def rehearse(hive: Parts, task_id: str) -> Iterator[Rehearsal]:
    """Merge the branches of a task in the queue without keeping anything. Raises UserError."""
    task, entry = get_queued(hive, task_id)
    subject = landing_message(task.title, task.id, entry.agent, "").partition("\n")[0]
    for branch in entry.branches:
        target = Target.of(hive, Path(branch.root), branch.target)
        repository = target.repository
        tip = repository.commit_of(f"refs/heads/{branch.branch}") or branch.tip
        target_tip = target.tip
        changes = repository.git(*DIFF, "--name-status", f"{target_tip}...{tip}", "--").splitlines()
        protected = protected_changes(target.changed_paths(branch), target.settings.protect)
        tree, conflicts = rehearse_merge(repository, target_tip, tip)
        if tree == repository.git("rev-parse", f"{target_tip}^{{tree}}"):
            changes = []
        verdict = CheckSpace(target.folder, repository, target.settings).remembered(tree)
        yield Rehearsal(
            branch, target.settings.how, subject, tuple(changes), conflicts, protected, target.settings.check,
            "not run yet" if verdict is None else verdict.outcome,
        )  # fmt: skip
