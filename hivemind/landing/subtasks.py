"""Subtasks land in the branch of their parent, by the parent's agent, between two turns. The parent's mind does not merge."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from hivemind.coordination import JournalState
from hivemind.errors import HivemindError
from hivemind.fs import crash_point, ring
from hivemind.landing.endings import close_landed
from hivemind.landing.merging import landing_message, merge
from hivemind.landing.queue import Queue, QueuedTask
from hivemind.landing.returns import Returns
from hivemind.landing.target import Target
from hivemind.layout import LANDING
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.taskrun.git import git_identity
from hivemind.taskrun.landing_entry import LandingEntry
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import Parking
from hivemind.tasks import TaskMoved

_AGAIN_S = 2.0
_log = logging.getLogger(__name__)


def checks_subtask(hive: Parts, entry: LandingEntry) -> bool:
    """Check whether the lander checks a subtask before its parent's agent lands it (`check_subtasks` of a root)."""
    roots = hive.config.repository_roots(hive.layout)
    checked_roots = {
        str(root) for root, settings in roots.items() if settings.check_subtasks and settings.land != "off"
    }
    return any(branch.root in checked_roots for branch in entry.branches)


def land_subtasks(hive: Parts, work: TaskRun) -> bool:
    """Merge the finished subtasks of a task into its branches, in the order in which they finished. On a conflict the subtask
    goes back to its agent. Return True if one has landed or gone back."""
    subtasks = set(work.task.subtasks)

    def is_queued(state: JournalState) -> bool:
        entries = (state.task(task_id) for task_id in subtasks)
        return any(entry is not None and entry.agent_id == LANDING and not entry.is_over for entry in entries)

    if not subtasks or not hive.journal.view(is_queued):
        return False
    queue, has_ended_one = Queue(hive), False
    for queued in queue.read():
        if queued.id not in subtasks:
            continue
        try:
            has_ended_one |= _land(hive, work, queue, queued)
        except TaskMoved:
            continue
        except (HivemindError, OSError) as error:
            _log.warning("subtask %s does not land: %s", queued.id, error)
            queue.wait(queued, str(error))
    if has_ended_one:
        ring_all(hive)
    return has_ended_one


def wait_for_subtasks(hive: Parts, work: TaskRun) -> None:
    """Land the finished subtasks before their parent ends. Raises Parking while a finished subtask has not landed."""
    land_subtasks(hive, work)
    for task_id in work.task.subtasks:
        if hive.tasks.listing.is_open(task_id) and LANDING in hive.tasks.listing.kept_values(task_id):
            raise Parking(f"waits for its subtask {task_id} to land", again_s=_AGAIN_S)


def _land(hive: Parts, work: TaskRun, queue: Queue, queued: QueuedTask) -> bool:
    """Land a subtask, or send it back to its agent. Return False if it waits for a person or a check."""
    entry = queued.entry
    if entry.state == "returned":
        hive.tasks.release(queued.task)
        return True
    if queued.has_news:
        queue.send_back(queued, None)
        return True
    if entry.asks and not entry.approved:
        return False
    is_checked = checks_subtask(hive, entry)
    if is_checked and entry.state != "green":
        return False
    work.worktrees.commit(f"Before {queued.task.title}", ends=True)
    branches = []
    for branch in entry.branches:
        if branch.landed:  # a killed process had moved it
            branches.append(branch)
            continue
        target = Target.of(hive, Path(branch.root), branch.target)
        message = landing_message(queued.task.title, queued.id, entry.agent, branch.tip)
        author = git_identity(entry.agent, f"{entry.agent}@{hive.config.workspace}")
        old = target.tip
        if is_checked and old == branch.old:
            branches.append(branch)
            continue
        if is_checked:  # what was checked is not what would land
            queue.change(queued, state="queued", reason="")
            ring(hive.layout.doorbells, LANDING)
            return False
        result = merge(target.repository, old, target.follow_branch(branch), branch.base, "merge", message, author)
        if result.commit is None:
            Returns(hive, queue).conflict(queued, target, branch, old, result)
            return True
        branches.append(replace(branch, old=old, new=result.commit, commit=result.commit))
    for branch in branches:
        if not branch.landed and branch.new != branch.old:
            work.worktrees.take_in(Path(branch.root), str(branch.old), str(branch.new))
        crash_point("landing.subtask")
    close_landed(hive, queue, queued, tuple(branches))
    return True
