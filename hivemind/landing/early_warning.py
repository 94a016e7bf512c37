"""Early warnings: after each turn the task's branches are merged in memory, so agents hear of a conflict long before one
lands."""

from __future__ import annotations

import logging
from dataclasses import replace

from hivemind.coordination.branches import NOTES, BranchConflict, BranchNote, is_open, read_notes, save_note
from hivemind.errors import HivemindError
from hivemind.landing.merging import rehearse_merge
from hivemind.masking import mask
from hivemind.presence.parts import Parts
from hivemind.taskrun.agent_git import Worktree
from hivemind.taskrun.contest import contest_of
from hivemind.taskrun.target_branch import root_folder
from hivemind.taskrun.task_run import TaskRun
from hivemind.tasks.record import load

_MAX_PATHS = 10_000
_log = logging.getLogger(__name__)


def note_branches(hive: Parts, work: TaskRun) -> None:
    """Save notes on what a task's branches change and where they conflict, after a turn has committed. A failure is only
    logged."""
    for worktree in work.worktrees.recorded:
        try:
            if worktree.branch is not None and worktree.into and (tip := worktree.tip) is not None:
                _note_branch(hive, work, worktree, tip)
        except (HivemindError, OSError) as error:
            _log.warning("task %s: no early warning: %s", work.task.id, error)


def _note_branch(hive: Parts, work: TaskRun, worktree: Worktree, tip: str) -> None:
    """Note the conflicts of a branch's new commit with its target, and with branches of active tasks that change the same
    paths."""
    folder, repository, task = root_folder(hive.layout, worktree.root) / NOTES, worktree.repository, work.task
    notes = read_notes(folder)
    old_note = notes.pop(task.id, None)
    if old_note is not None and old_note.tip == tip:
        return
    record = load(task.path)
    claimed = record.claim.claimed if record is not None and record.claim is not None else ""
    if work.is_landing and old_note is not None:  # the claim is the lander's now
        claimed = old_note.claimed
    start = repository.start_of(tip, worktree.base, worktree.into)
    words = ("diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", start, tip)
    paths = tuple(path for path in repository.git(*words).split("\0")[:_MAX_PATHS] if path)
    note = BranchNote(task.id, mask(task.title), work.agent, claimed, str(worktree.into), tip, paths)
    conflicts = []
    target = repository.commit_of(f"refs/heads/{worktree.into}")
    if target not in (None, worktree.base) and (conflict_paths := rehearse_merge(repository, str(target), tip)[1]):
        conflicts.append(BranchConflict("", str(target), conflict_paths))
    contest = contest_of(hive, task)
    rivals = () if contest is None else contest.candidates
    for other in notes.values():
        if not is_open(hive.layout, other.task):
            (folder / f"{other.task}.json").unlink(missing_ok=True)
        elif (
            other.task not in rivals
            and not set(paths).isdisjoint(other.paths)
            and (conflict_paths := rehearse_merge(repository, other.tip, tip)[1])
        ):
            conflicts.append(BranchConflict(other.task, other.tip, conflict_paths))
    save_note(folder, replace(note, conflicts=tuple(conflicts)))
