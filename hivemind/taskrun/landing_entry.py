"""The entry of a finished task in the landing queue: a value in the task's record, under `landing` (landing/README.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hivemind.boundary import as_dataclass, json_fields
from hivemind.frozen import frozen
from hivemind.fs import crash_point, ring, write
from hivemind.layout import LANDING
from hivemind.presence.parts import Parts
from hivemind.taskrun.agent_git import Worktree
from hivemind.taskrun.contest import contest_of
from hivemind.taskrun.target_branch import OWN, landing_place, unlisted_root
from hivemind.tasks import ParkedTask, Task
from hivemind.tasks.record import TaskRecord

DRAFT, LOG = "landing.md", "landing.log"
"""The files of a queued task: its result until it has landed, and the output of its last check."""
_QUEUED = "waits to land"


@frozen
class LandingBranch:
    """A branch to land. `base` is the commit that it began from, `tip` its last commit, `target` the branch that it lands in.

    The target moves from the commit `old` to the commit `new`; both are recorded before it moves. `commit` is this task's landed
    commit, which `new` contains. `landed` is True once the target has moved. `pushed` is the branch's name at the remote where a
    person is to merge it.
    """

    root: str
    branch: str
    base: str
    tip: str
    target: str
    old: str | None = None
    new: str | None = None
    commit: str | None = None
    landed: bool = False
    pushed: str | None = None


@frozen
class MarkedMerge:
    """A merge commit with conflict marks on a returned branch. `marked` are the paths with marks, `unmarked` the others."""

    root: str
    commit: str
    marked: tuple[str, ...]
    unmarked: tuple[str, ...] = ()


@frozen
class LandingEntry:
    """The queue entry of a finished task. While the agent works on a returned task again, the entry is kept as the record of its
    returns.

    `agent` and `role` did the work; `queued` is the time of the first finish (ISO 8601), `said` the number of texts added to the
    task by then. `state` is `queued`, `waits` (for a change or a person, for the `reason`), `moving` (the target is being moved),
    `returned` or `green` (a candidate whose check passed, which waits for the choice). `approved` is True if a person has said
    that it may land. `tries` counts the returns. `asks` is True while a person must decide, `again` if remembered verdicts do not
    count.

    A subtask has the id of its `parent`, whose agent lands it. A task without `branches` waits for its candidates. `reverts` is
    the commit that the task undoes. `checked` are the tips that passed the check, after which a person is asked; `red` those with
    which the task was returned.
    """

    agent: str
    role: str | None
    queued: str
    said: int
    branches: tuple[LandingBranch, ...]
    state: Literal["queued", "waits", "moving", "returned", "green"] = "queued"
    reason: str = ""
    approved: bool = False
    tries: int = 0
    asks: bool = False
    again: bool = False
    parent: str | None = None
    merges: tuple[MarkedMerge, ...] = ()
    reverts: str | None = None
    candidate_of: str | None = None
    checked: tuple[str, ...] = ()
    red: tuple[str, ...] = ()

    @property
    def tips(self) -> tuple[str, ...]:
        return tuple(branch.tip for branch in self.branches)

    @property
    def lands_elsewhere(self) -> bool:
        """True for a subtask, which its parent's agent lands, and for a candidate, which lands as the task if it is chosen."""
        return self.parent is not None or self.candidate_of is not None

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> LandingEntry | None:
        """Return the entry that a task's record keeps, or None. Raises Unreadable."""
        fields = kept.get(LANDING)
        return None if fields is None else as_dataclass(cls, fields, "task's landing entry")

    def save_in(self, record: TaskRecord) -> TaskRecord:
        """Return the record with this entry, and with the task parked. While the task waits for a person or for a choice, the
        parking has no end; otherwise it ends now. A returned task is not parked."""
        parked = None
        if self.state != "returned":
            now = datetime.now(UTC)
            is_waiting = self.state == "waits" or (self.state == "green" and self.candidate_of is not None)
            parked = ParkedTask(self.reason or _QUEUED, None if is_waiting else now, now)
        return replace(record, kept={**record.kept, **self.save()}, parked=parked)

    def save(self) -> dict[str, Any]:
        """Return the entry as a value for the task's record."""
        return {LANDING: json_fields(self)}


def current_entry(hive: Parts, kept: Mapping[str, Any]) -> LandingEntry | None:
    """Return the entry among the values kept with a task, with the roots and targets of hive.yaml now. What has landed keeps
    its own, and so does a move that is under way. Raises Unreadable."""
    entry = LandingEntry.of(kept)
    if entry is None or entry.state == "moving":
        return entry
    roots, moved_roots, branches = hive.config.repository_roots(hive.layout), dict[str, str](), list[LandingBranch]()
    for branch in entry.branches:
        root, target = landing_place(roots, Path(branch.root), branch.branch, branch.tip, branch.target)
        moved_roots[branch.root] = str(root)
        branches.append(branch if branch.landed else replace(branch, root=str(root), target=str(target)))
    merges = tuple(replace(merge, root=moved_roots.get(merge.root, merge.root)) for merge in entry.merges)
    return replace(entry, branches=tuple(branches), merges=merges)


def branches_to_land(hive: Parts, task: Task, worktrees: Sequence[Worktree]) -> list[LandingBranch]:
    """Return the branches with new commits that have a target. With `land: off`, only those of subtasks land. One whose root
    hive.yaml does not list any more waits to land, with the recorded tip if its repository is gone too."""
    roots, entry = hive.config.repository_roots(hive.layout), current_entry(hive, task.kept)
    old_tips = {} if entry is None else {branch.root: branch.tip for branch in entry.branches}
    branches = []
    for worktree in worktrees:
        settings = roots.get(worktree.root)
        if not worktree.branch or not worktree.into:
            continue
        if settings is not None and settings.land == "off" and not worktree.into.startswith(OWN):
            continue
        tip = worktree.tip or (old_tips.get(str(worktree.root)) if settings is None else None)
        if tip is not None:
            branches.append(LandingBranch(str(worktree.root), worktree.branch, worktree.base, tip, worktree.into))
    return branches


def queue_task(hive: Parts, task: Task, role: str | None, branches: Sequence[LandingBranch], result: str) -> None:
    """Pass a finished task to the lander: write its draft; then record, in one write, its entry and `landing` as its owner.

    A subtask of a task with a branch in the same root is landed by its parent's agent. Raises TaskMoved, OSError.
    """
    assert task.owner is not None
    write(task.path / DRAFT, result)
    crash_point("landing.drafted")
    previous = LandingEntry.of(task.kept)
    queued = datetime.now(UTC).isoformat() if previous is None else previous.queued
    tries, merges, red = (0, (), ()) if previous is None else (previous.tries, previous.merges, previous.red)
    roots = hive.config.repository_roots(hive.layout)
    reason = next((str(unlisted_root(root)) for branch in branches if (root := Path(branch.root)) not in roots), "")
    entry = LandingEntry(
        task.owner, role, queued, len(task.said), tuple(branches), "waits" if reason else "queued", reason,
        tries=tries, merges=merges, red=red,
        parent=task.parent if any(branch.target.startswith(OWN) for branch in branches) else None,
        candidate_of=None if contest_of(hive, task) is None else task.parent,
    )  # fmt: skip
    branch, tip = branches[0].branch, branches[0].tip
    hive.tasks.active.pass_on(task, LANDING, entry.save_in, "landing.queued", branch=branch, commit=tip)
    crash_point("landing.queued")
    parent = None if entry.parent is None else hive.tasks.get(entry.parent).owner
    ring(hive.layout.doorbells, LANDING if parent is None else parent)
