"""Reverts: a landed task is undone by a commit that lands as a new task, which only the lander claims."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from hivemind.errors import UserError
from hivemind.fs import Lock, crash_point, ring
from hivemind.landing.changes import commit_before
from hivemind.landing.merging import revert_message, transplant
from hivemind.landing.target import Target
from hivemind.layout import LANDING
from hivemind.presence.parts import Parts
from hivemind.taskrun.landing_entry import LandingBranch, LandingEntry
from hivemind.taskrun.target_branch import landing_place
from hivemind.tasks import Task, TaskState
from hivemind.tasks.folder import revert_ids

REVERT = "Revert: "
"""The title of a revert begins with this."""
_LANES = (f"{LANDING}/",)


def request_revert(hive: Parts, task_id: str) -> str:
    """Put a task into the inbox that undoes what a task has landed, and return its id. If later changes conflict, that task
    waits for a person. Raises UserError."""
    task = hive.tasks.get(task_id)
    entry = LandingEntry.of(task.kept) if task.state is TaskState.DONE else None
    if entry is None or not all(branch.landed for branch in entry.branches):
        raise UserError("has not landed", location=task_id, remedy="see: hivemind land")
    if len(entry.branches) > 1:
        remedy = "; ".join(f"git -C {branch.root} revert -m 1 {branch.commit}" for branch in entry.branches)
        raise UserError("has landed in several roots, and a revert undoes one", location=task_id, remedy=remedy)
    branch, commit = entry.branches[0], str(entry.branches[0].commit)
    roots = hive.config.repository_roots(hive.layout)
    root, into = landing_place(roots, Path(branch.root), branch.branch, commit, branch.target)
    target = Target.of(hive, root, str(into))
    if target.settings.land == "off":
        raise UserError("has land: off", location=target.root, remedy=f"git revert -m 1 {commit}")
    if target.is_unchanged_by(task_id, branch):
        raise UserError(f"has made no change in {branch.target} to undo", location=task_id)
    if not target.contains(commit):
        raise UserError(f"is not in {branch.target} any more", location=f"{task_id} ({commit[:12]})")
    with Lock(hive.layout.locks / "landing-revert.lock"):
        revert_id, tip = _free_id(hive, target, task.id, commit), target.tip
        message, before = revert_message(task.title, commit), commit_before(target, branch)
        undone = transplant(target.repository, tip, before, commit, message)
        if undone.commit == tip:
            raise UserError("is undone already: nothing of it is left", location=task_id)
        name = f"hive/{revert_id}"
        target.repository.begin(name, tip, revert_id)
        reason = ""
        if undone.commit is None:
            paths = ", ".join(conflict.path for conflict in undone.conflicts[:3])
            reason = (
                f"later changes of {paths} are in the way: undo {commit[:12]} yourself on the branch {name} of {target.root} "
                f"(git revert -m 1 {commit[:12]}), then: hivemind land {revert_id}"
            )
        else:
            target.repository.move(name, undone.commit, tip, f"undoes {task_id}")
        crash_point("landing.reverting")
        hive.tasks.add(
            f"Undo commit {commit} of the task {task_id} in {branch.target} of {target.root}.\n",
            id=revert_id, title=f"{REVERT}{task.title}", assignee=LANDING,
            kept=LandingEntry(
                LANDING, entry.role, datetime.now(UTC).isoformat(), 0,
                (LandingBranch(str(root), name, tip, undone.commit or tip, target.branch),),
                state="waits" if reason else "queued", reason=reason, asks=bool(reason), approved=not reason, reverts=commit,
            ).save(),
        )  # fmt: skip
    ring(hive.layout.doorbells, LANDING)
    return revert_id


def _free_id(hive: Parts, target: Target, task_id: str, commit: str) -> str:
    """Return a free id for a revert. Raises UserError if the commit was undone already, or another task is undoing it."""
    for name in revert_ids(task_id):
        if hive.tasks.inbox.has_id(name):
            other = hive.tasks.get(name)
            entry = LandingEntry.of(other.kept)
            if entry is not None and entry.reverts == commit and other.state is not TaskState.FAILED:
                state = "was undone" if other.state is TaskState.DONE else "is being undone"
                raise UserError(f"{state} by {name}", location=task_id)
        elif target.repository.commit_of(f"refs/heads/hive/{name}") is None:
            return name
    raise AssertionError


def claim_tasks(hive: Parts) -> None:
    """Take the reverts, and the tasks with candidates, out of the inbox. Only the lander's process may call this."""
    while (task := hive.tasks.claim(LANDING, partitions=_LANES)) is not None:
        _enqueue(hive, task)


def resume_claims(hive: Parts) -> None:
    """Finish the claims of a killed lander. Only the lander's process may call this."""
    for task in hive.tasks.mine(LANDING):
        if LANDING not in task.kept:
            _enqueue(hive, task)


def _enqueue(hive: Parts, task: Task) -> None:
    entry = LandingEntry.of(task.kept)
    if entry is None and task.candidates:
        now = datetime.now(UTC).isoformat()
        entry = LandingEntry(LANDING, task.role, now, len(task.said), (), "waits", "its candidates begin")
    if entry is None:
        hive.tasks.fail(task, "only the lander makes tasks for itself: leave `assignee: landing` out")
        hive.steps.end_task(task.id, "failed", agent_id=LANDING)
        return
    event = "landing.waits" if entry.reverts and entry.state == "waits" else "landing.queued"
    payload = {"branch": branch.branch, "commit": branch.tip} if (branch := next(iter(entry.branches), None)) else {}
    hive.tasks.active.rewrite(task, entry.save_in, event, **payload)
