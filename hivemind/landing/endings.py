"""The end of a task after its work has landed: its result, its event, its branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hivemind.fs import crash_point
from hivemind.landing.checkout import checkout_of
from hivemind.landing.queue import Queue, QueuedTask
from hivemind.landing.target import Target
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.taskrun.contest import Contest, contest_of
from hivemind.taskrun.git import Repository, lock_worktrees
from hivemind.taskrun.landing_entry import DRAFT, LandingBranch, LandingEntry
from hivemind.tasks import Task


def close_landed(hive: Parts, queue: Queue, queued: QueuedTask, branches: Sequence[LandingBranch]) -> None:
    """End a task once its targets have moved. Delete a branch of it once its target contains the commits."""
    branches = tuple(replace(branch, landed=True) for branch in branches)
    if branches != queued.entry.branches:  # else a killed lander has saved them
        queued = queue.change(queued, "landing.landed", branches=branches)
    crash_point("landing.landed")
    lines = []
    for branch in branches:
        target = Target.of(hive, Path(branch.root), branch.target)
        is_unchanged = target.is_unchanged_by(queued.id, branch)
        place = f"`{branch.target}` of {branch.root}"
        lines.append(f"* No changes left for {place}." if is_unchanged else f"* Landed in {place}: {branch.commit}")
        if target.contains(str(branch.commit)):
            if not is_unchanged:
                target.note_landed(queued.id, str(branch.commit))
            with lock_worktrees(target.folder) as hold:  # locks that a killed git has left can be removed
                # a landing that was no merge has not the agent's own commits
                keeps_tip = not target.contains(branch.tip)
                replace(target.repository, hold=hold).let_go(branch.branch, branch.tip, keeps_tip=keeps_tip)
    crash_point("landing.put_away")
    close_task(hive, queued, lines)


def read_draft(task: Task) -> str:
    """Return the result of a task that has not landed yet."""
    draft = task.path / DRAFT
    return draft.read_text("utf-8", "replace") if draft.is_file() else f"# {task.title}\n"


def close_task(hive: Parts, queued: QueuedTask, lines: Sequence[str]) -> None:
    """Write result.md from the draft, with `lines` about the landing, and end the task as done."""
    text = read_draft(queued.task)
    if lines:
        text = "\n".join([text.rstrip(), "", "## Landing", "", *lines, ""])
    if (contest := Contest.of(queued.task.kept)) is not None:
        text = "\n".join([text.rstrip(), "", "## Candidates", "", *contest.report, ""])
    folder = hive.tasks.finish(queued.task, text)
    (folder / DRAFT).unlink(missing_ok=True)
    hive.steps.end_task(queued.id, "done", agent_id=queued.entry.agent)
    if hive.tasks.claims.recheck_count:  # a task in the inbox may wait for this one
        ring_all(hive)


def delete_branches(hive: Parts, task_id: str) -> None:
    """Delete the branches of a candidate that was not chosen, and the refs that protect landed commits. A branch stays if it is
    checked out, or has moved since the task ended. Raises UserError, OSError."""
    task = hive.tasks.get(task_id)
    contest, entry = contest_of(hive, task), LandingEntry.of(task.kept)
    for branch in () if entry is None else entry.branches:
        if branch.landed:
            Repository.at(Path(branch.root)).let_go(branch.branch, branch.tip)
    if contest is None or entry is None or contest.winner in (None, task_id) or task_id not in contest.candidates:
        return
    for branch in entry.branches:
        repository, ref = Repository.at(Path(branch.root)), f"refs/heads/{branch.branch}"
        if repository.commit_of(ref) == branch.tip and checkout_of(repository, branch.branch) is None:
            repository.git("update-ref", "--no-deref", "-d", ref, branch.tip)
