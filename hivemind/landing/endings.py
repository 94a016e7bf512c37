"""The end of a task whose work has landed: its result, its event, its branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hivemind.fs import crash_point
from hivemind.landing.queue import Queue, QueuedTask
from hivemind.landing.target import Target
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.taskrun.landing_entry import DRAFT, LandingBranch


def close_landed(hive: Parts, queue: Queue, queued: QueuedTask, branches: Sequence[LandingBranch]) -> None:
    """End a task whose targets have moved. Its branches go once its commits are in their targets."""
    branches = tuple(replace(branch, landed=True) for branch in branches)
    if branches != queued.entry.branches:  # else a killed lander has said so
        queued = queue.change(queued, "landing.landed", branches=branches)
    crash_point("landing.landed")
    for branch in branches:
        target = Target.of(hive, Path(branch.root), branch.target)
        if target.contains(str(branch.commit)):
            target.note_landed(queued.id, str(branch.commit))
            target.repository.let_go(branch.branch, branch.tip)
    crash_point("landing.put_away")
    close_task(hive, queued, [f"* Landed in `{branch.target}` of {branch.root}: {branch.commit}" for branch in branches])


def close_task(hive: Parts, queued: QueuedTask, lines: Sequence[str]) -> None:
    """Write result.md from the draft, with `lines` about the landing, and end the task as done."""
    draft = queued.task.path / DRAFT
    text = draft.read_text("utf-8", "replace") if draft.is_file() else f"# {queued.task.title}\n"
    if lines:
        text = "\n".join([text.rstrip(), "", "## Landing", "", *lines, ""])
    folder = hive.tasks.finish(queued.task, text)
    (folder / DRAFT).unlink(missing_ok=True)
    hive.steps.end_task(queued.id, "done", agent_id=queued.entry.agent, has_left_active=True)
    if hive.tasks.claims.recheck_count:  # a task in the inbox may wait for this one
        ring_all(hive)
