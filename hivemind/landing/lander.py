"""The lander: brings the finished branches of tasks into their targets, one landing at a time for each target.

`Lander.step` does all that can be done at once: short git operations, one after the other. Only checks take long; they are other
processes, and the lander waits for them and for its doorbell together. All state is in the tasks' records and in git, so the
lander can be killed at any moment (docs/design/landing.md).
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from hivemind.errors import HivemindError, UserError
from hivemind.fs import crash_point, make_folder
from hivemind.landing.batches import Batches
from hivemind.landing.checkout import TargetBusy, TargetMoved, move_target, rehearse_move
from hivemind.landing.checks import CheckSpace, RunningCheck, Verdict
from hivemind.landing.contests import Contests
from hivemind.landing.endings import close_landed, close_task
from hivemind.landing.landing import Landing, Leg
from hivemind.landing.merging import landing_message, merge, remove_leftovers, revert_message, transplant
from hivemind.landing.obstacles import first_obstacle, needs_check
from hivemind.landing.queue import Queue, QueuedTask, open_seqs
from hivemind.landing.remote import RemoteBranch
from hivemind.landing.returns import Returns
from hivemind.landing.reverts import REVERT
from hivemind.landing.subtasks import checks_subtask
from hivemind.landing.target import Target, unpushed_roots
from hivemind.landing.waits import Waits, signatures
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.taskrun.git import git_identity, lock_worktrees
from hivemind.taskrun.landing_entry import LOG, LandingBranch
from hivemind.taskrun.target_branch import OWN
from hivemind.taskrun.waits import AWAITS_CHOICE
from hivemind.tasks import TaskMoved

_log = logging.getLogger(__name__)
_RETRY_S = 60.0  # after a check that could not run
_MAX_NAMES = 20


class Lander:
    """Lands the queue of one hive."""

    def __init__(self, hive: Parts) -> None:
        self._hive = hive
        self._queue = Queue(hive)
        self._returns = Returns(hive, self._queue)
        self._contests = Contests(hive, self._queue)
        self._targets: dict[tuple[str, str], Target] = {}
        self._spaces: dict[Path, CheckSpace] = {}
        self._landings: list[Landing] = []
        self._batches = Batches()
        self._waits = Waits(self._queue)
        self._remotes: dict[tuple[Path, str, str], RemoteBranch] = {}
        remove_leftovers()
        self._is_resumed = self._has_ended_one = False

    @property
    def checks(self) -> list[RunningCheck]:
        """The checks that run."""
        return [landing.check for landing in self._landings if landing.check is not None]

    @property
    def processes(self) -> list[RunningCheck | RemoteBranch]:
        """The running checks and git processes, for `wait_for_input`."""
        return [*self.checks, *(remote for remote in self._remotes.values() if remote.is_running)]

    @property
    def checked_ids(self) -> list[str]:
        """The tasks with a merged result that is being checked."""
        return [queued.id for landing in self._landings if landing.check is not None for queued in landing.tasks]

    @property
    def is_busy(self) -> bool:
        """True while a landing is under way, or git talks to a remote."""
        return bool(self._landings or self.processes)

    @property
    def remaining_s(self) -> float:
        """Seconds until the lander must look again without an event; may be infinite."""
        pauses = [remote.remaining_s for remote in self._remotes.values()]
        return max(0.0, min([*pauses, self._waits.next_look - time.monotonic()]))

    def close(self) -> None:
        """Stop the running checks and git processes. The next lander starts them again."""
        for process in self.processes:
            process.stop()
        self._landings.clear()

    # one step

    def step(self) -> None:
        """Advance each landing, and begin those that can begin, until all wait for a check or a change."""
        if not self._is_resumed:
            self._settle_ended()
            roots = self._hive.config.repository_roots(self._hive.layout)
            for root in unpushed_roots(self._hive.config, self._hive.layout):
                self._remote(Target.at(self._hive.layout, root, roots[root]))
            for queued in self._queue.read():
                if queued.entry.state == "moving":
                    self._guarded([queued], partial(self._resume_move, queued))
            self._is_resumed = True
        self._has_ended_one = True
        while self._contests.step() or self._has_ended_one:
            self._has_ended_one = False
            self._advance_all(self._queue.read())

    def _advance_all(self, queue: Sequence[QueuedTask]) -> None:
        by_id = {queued.id: queued for queued in queue}
        self._waits.prune(by_id)
        for remote in self._remotes.values():
            self._guarded([], remote.poll)
        for landing in [*self._landings]:
            if landing.moving:
                self._guarded(landing.tasks, partial(self._push, landing))
            elif any(by_id.get(queued.id) is None or by_id[queued.id].has_news for queued in landing.tasks):
                self._drop(landing)
            elif landing.check is not None and (verdict := landing.check.poll()) is not None:
                landing.check = None
                _copy_log(landing.tasks)
                self._guarded(landing.tasks, partial(self._take_verdict, landing, verdict))
        for queued in queue:
            if self._has_ended_one:  # the queue is another now
                return
            if not any(queued.id == other.id for landing in self._landings for other in landing.tasks):
                self._guarded([queued], partial(self._begin, queued, queue))
        for remote in self._remotes.values():
            if not self._is_taken(remote.target):
                self._guarded([], remote.retry)

    def _guarded(self, tasks: Sequence[QueuedTask], action: Callable[[], None]) -> None:
        """Call `action` for these tasks. If it fails, the tasks wait, with the error as the reason, and no other task is
        affected."""
        try:
            action()
        except TaskMoved:
            self._forget(tasks)
        except (HivemindError, OSError) as error:
            _log.warning("landing of %s: %s", ", ".join(queued.id for queued in tasks), error)
            self._forget(tasks)
            for queued in tasks:
                self._waits.add(queued, str(error), retry_s=_RETRY_S)

    def _forget(self, tasks: Sequence[QueuedTask]) -> None:
        ids = {queued.id for queued in tasks}
        for landing in [*self._landings]:
            if not ids.isdisjoint(queued.id for queued in landing.tasks):
                self._drop(landing)

    def _drop(self, landing: Landing) -> None:
        """End a landing. Others can begin in its place."""
        if landing.check is not None:
            landing.check.stop()
        self._landings.remove(landing)
        self._has_ended_one = True

    # beginning a landing

    def _begin(self, queued: QueuedTask, queue: Sequence[QueuedTask]) -> None:
        """Begin the landing of a task, together with others that wait for the same target."""
        entry = queued.entry
        if not queued.task.path.is_dir():  # it has landed in this step
            return
        if entry.state == "returned":  # a killed lander had sent it back
            self._hive.tasks.release(queued.task)
            return
        parent = entry.parent or entry.candidate_of
        if parent is not None and not self._hive.tasks.listing.is_open(parent):
            self._hive.tasks.cancel(queued.id, by=entry.agent, reason=f"{parent} is over")
            return
        if not entry.branches or (entry.parent is not None and not checks_subtask(self._hive, entry)):
            return
        if queued.has_news:
            self._queue.send_back(queued, None)
            ring_all(self._hive)
            return
        if entry.state == "green":
            return
        try:
            targets = [self._target(branch) for branch in entry.branches]
        except UserError as error:
            self._waits.add(queued, str(error))
            return
        if all(target.settings.land == "off" for target in targets):
            close_task(self._hive, queued, [])
            return
        if self._is_waiting(queued, targets) or any(map(self._is_taken, targets)):
            return
        if all(branch.landed for branch in entry.branches):  # its end has failed
            close_landed(self._hive, self._queue, queued, entry.branches)
            return
        if entry.red == entry.tips and not entry.approved and entry.candidate_of is None:
            self._returns.unchanged(queued)
            return
        if len(targets) == 1 and not self._may_land_now(queued, targets[0], queue):
            return
        if not all(remote is None or remote.is_current() for remote in map(self._remote, targets)):
            return
        is_pushed = all(branch.landed or branch.pushed is not None for branch in entry.branches)
        if is_pushed and self._await_merge(queued, targets):
            return
        legs = [Leg.at_tip(target) for target in targets]
        landing = Landing(legs)
        for leg, branch in zip(legs, entry.branches, strict=True):
            if not self._pick(leg, queued, branch):
                return
        if len(targets) == 1 and not self._only_checks(queued, targets) and self._batches.takes_several(targets[0]):
            self._fill(legs[0], queued, queue)
        self._landings.append(landing)
        for picked in landing.tasks:
            self._queue.change(picked, "landing.started", state="queued", reason="", again=False)
        self._check_next(landing)

    def _target(self, branch: LandingBranch) -> Target:
        key = (branch.root, branch.target)
        if key not in self._targets:
            self._targets[key] = Target.of(self._hive, Path(branch.root), branch.target)
        self._targets[key].check()  # a branch may be renamed, a repository moved
        return self._targets[key]

    def _remote(self, target: Target) -> RemoteBranch | None:
        push = target.settings.push
        if push is None or target.branch.startswith(OWN):
            return None
        key = target.root, target.branch, push.remote
        remote = self._remotes[key] = self._remotes.get(key) or RemoteBranch(target)
        remote.target = target
        return remote

    def _await_merge(self, queued: QueuedTask, targets: Sequence[Target]) -> bool:
        """End a task if its pushed branches are all merged at the remote; else let it wait. Return False if a branch has new
        commits."""
        branches, reasons = [], []
        for branch, target in zip(queued.entry.branches, targets, strict=True):
            if branch.landed:
                branches.append(branch)
                continue
            remote = self._remote(target)
            if remote is None or target.follow_branch(branch) != branch.tip:
                return False
            branches.append(remote.find_landed(branch))
            note = f" ({remote.problem})" if remote.problem else ""
            reasons.append(f"pushed as {branch.pushed} to {remote.name}: request its merge{note}")
        if all(branch.landed for branch in branches):
            close_landed(self._hive, self._queue, queued, branches)
            self._has_ended_one = True
        else:
            self._waits.add(queued, "; ".join(reasons), retry_s=_RETRY_S)
        return True

    def _is_taken(self, target: Target) -> bool:
        return any(leg.target.root == target.root for landing in self._landings for leg in landing.legs)

    def _is_waiting(self, queued: QueuedTask, targets: Sequence[Target]) -> bool:
        """Check whether a task has to wait, and record why."""
        if self._waits.is_waiting(queued, targets):
            return True
        if (reason := first_obstacle(queued, targets)) is None:
            return False
        for target in targets:
            if target.hold is not None and (remote := self._remote(target)) is not None:
                remote.look()
        self._queue.wait(queued, reason)
        return True

    def _may_land_now(self, queued: QueuedTask, target: Target, queue: Sequence[QueuedTask]) -> bool:
        ids = {other.id for other in queue if other.id not in self._waits}
        return self._batches.is_next(queued.id, target.root, ids)

    def _fill(self, leg: Leg, first: QueuedTask, queue: Sequence[QueuedTask]) -> None:
        """Add to the leg the other tasks that wait for the same target and merge cleanly."""
        for queued in queue:
            if queued.id == first.id or len(queued.entry.branches) != 1 or self._only_checks(queued, [leg.target]):
                continue
            branch = queued.entry.branches[0]
            same_target = (Path(branch.root), branch.target) == (leg.target.root, leg.target.branch)
            if not same_target or queued.has_news or queued.entry.state in ("moving", "returned"):
                continue
            if not self._is_waiting(queued, [leg.target]) and self._may_land_now(queued, leg.target, queue):
                self._pick(leg, queued, branch)

    def _pick(self, leg: Leg, queued: QueuedTask, branch: LandingBranch) -> bool:
        """Merge a branch onto the leg's earlier picks. Return False if it conflicts or must wait.

        If it conflicts with the target itself, the task goes back to its agent. If it conflicts with an earlier pick, it is tried
        again when that has landed.
        """
        target, entry = leg.target, queued.entry
        tip = target.follow_branch(branch)
        if tip != branch.tip:
            branch = replace(branch, tip=tip)
        merged = target.repository.commit_of(branch.commit) if branch.commit and tip == branch.tip else None
        if merged is not None:  # by a landing that was interrupted
            is_landed = target.is_ancestor(merged, leg.new)
            if is_landed or target.repository.commit_of(f"{merged}^1") == leg.new:
                leg.new = leg.new if is_landed else merged
                leg.picks.append((queued, branch, merged))
                return True
        reviewer = (queued.task.kept.get("criteria") or {}).get("approved")
        message = landing_message(queued.task.title, queued.id, entry.agent, tip, reviewer)
        how = target.settings.how
        if entry.reverts is not None:
            message, how = revert_message(queued.task.title.removeprefix(REVERT), entry.reverts), "squash"
        author = git_identity(entry.agent, f"{entry.agent}@{self._hive.config.workspace}")
        result = None
        if (base := _lost_base(leg, queued, branch)) is not None:
            result = transplant(target.repository, leg.new, tip, base, message, author)
            if result.commit is None and not entry.approved:
                loss = f"{branch.target} has lost {base[:12]}, on which {branch.branch} builds, and conflicts with it"
                remedy = f"hivemind land {queued.id} merges both, and brings back what was lost"
                self._waits.add(queued, f"{loss}: {remedy}", retry_s=_RETRY_S)
                return False
        if result is None or result.commit is None:
            result = merge(target.repository, leg.new, tip, branch.base, how, message, author)
        if result.commit is None:
            if not leg.picks:
                self._returns.conflict(queued, target, branch, leg.start, result)
                ring_all(self._hive)
            return False
        leg.new = result.commit
        leg.picks.append((queued, branch, result.commit))
        return True

    # checking

    def _space(self, target: Target) -> CheckSpace:
        space = self._spaces.get(target.root)
        if space is None:
            make_folder(target.folder)
            space = self._spaces[target.root] = CheckSpace(target.folder, target.repository, target.settings)
        return space

    def _check_next(self, landing: Landing) -> None:
        """Start the check of the next leg, or move the targets once all are green."""
        while (leg := landing.leg) is not None:
            if not leg.target.settings.check or leg.new == leg.old:
                leg.is_green = True
                continue
            again = any(queued.entry.again for queued in landing.tasks)
            self._start_check(landing, leg, leg.new, landing.tasks[0].task.path / LOG, again=again)
            return
        queued = landing.tasks[0]
        if self._only_checks(queued, [leg.target for leg in landing.legs]):
            self._drop(landing)
            if queued.entry.lands_elsewhere:
                self._note_green(landing)
            else:
                self._queue.change(queued, checked=queued.entry.tips)
            return
        self._move(landing)

    @staticmethod
    def _only_checks(queued: QueuedTask, targets: Sequence[Target]) -> bool:
        """Check whether a task is now only checked and not landed: others land it, or a person is asked after the check."""
        return queued.entry.lands_elsewhere or any(needs_check(queued, target) for target in targets)

    def _note_green(self, landing: Landing) -> None:
        """Record that a candidate or a subtask is green. A candidate then waits for the choice, a subtask for its parent's
        agent."""
        queued = landing.tasks[0]
        branches = tuple(
            branch if queued.entry.parent is None else replace(branch, old=leg.old, new=commit, commit=commit)
            for leg in landing.legs for _, branch, commit in leg.picks
        )  # fmt: skip
        reason = f"{AWAITS_CHOICE}{queued.entry.candidate_of}"
        if queued.entry.parent is not None:
            reason = f"is green, and lands between two turns of {queued.entry.parent}"
        self._queue.change(queued, "landing.waits", state="green", reason=reason, branches=branches)
        crash_point("landing.candidates.green")
        if queued.entry.parent is not None:
            ring_all(self._hive)

    def _start_check(self, landing: Landing, leg: Leg, commit: str, log: Path, *, again: bool = False) -> None:
        """Start the check of a commit. A red check is repeated only for a single task that was in no red batch."""
        tree = leg.target.repository.git("rev-parse", f"{commit}^{{tree}}")
        confirms = len(landing.tasks) == 1 and not self._batches.is_searching(leg.target.root)
        verdict = self._batches.red_verdict(tree) if commit == leg.new else None
        outcome = verdict or self._space(leg.target).start(commit, tree, log, again=again, confirms=confirms)
        if isinstance(outcome, RunningCheck):
            landing.check = outcome
        else:
            self._take_verdict(landing, outcome)

    def _take_verdict(self, landing: Landing, verdict: Verdict) -> None:
        leg = landing.leg
        assert leg is not None
        root, ids = leg.target.root, [queued.id for queued in landing.tasks]
        if landing.blames is not None:
            self._take_target_verdict(landing, leg, verdict)
        elif verdict.outcome == "green":
            self._batches.note_green(root, verdict)
            leg.is_green = True
            self._check_next(landing)
        elif verdict.outcome == "failed_to_run":
            self._drop(landing)
            for queued in landing.tasks:
                self._waits.add(queued, f"its check could not run: {verdict.reason}", retry_s=_RETRY_S)
        elif len(ids) > 1:
            self._batches.note_red(root, ids, verdict)
            self._drop(landing)
        else:
            landing.blames = verdict
            self._start_check(landing, leg, leg.start, leg.target.folder / LOG)

    def _take_target_verdict(self, landing: Landing, leg: Leg, verdict: Verdict) -> None:
        """Take the verdict on the target's own commit, after a task's check was red. If the target is green, the task goes back;
        if it is red, the target is held."""
        queued, branch, _ = leg.picks[0]
        root, blames = leg.target.root, landing.blames
        assert blames is not None
        self._drop(landing)
        if verdict.outcome == "green":
            self._batches.note_blamed(root)
            self._returns.red(queued, leg.target, branch, blames)
            ring_all(self._hive)
        elif verdict.outcome == "red":
            self._returns.target_red(leg.target, leg.start, verdict)
        else:
            self._waits.add(
                queued, f"the check of {leg.target.branch} itself could not run: {verdict.reason}", retry_s=_RETRY_S
            )

    # moving

    def _move(self, landing: Landing) -> None:
        """Record the move of each task, then push the checked commits and move the targets to them."""
        for at, queued in enumerate(landing.tasks):
            branches = []
            for leg in landing.legs:
                _, branch, commit = leg.picks[at]
                old = leg.start if leg.target.takes_requests else leg.old
                branches.append(branch if branch.landed else replace(branch, old=old, new=leg.new, commit=commit))
            landing.moving.append(self._queue.change(queued, state="moving", branches=tuple(branches)))
        for leg in landing.legs:
            if (
                (remote := self._remote(leg.target)) is not None
                and leg.new != leg.old
                and not leg.target.takes_requests
            ):
                leg.target.set_push_due(remote.problem)
        crash_point("landing.moving")
        self._push(landing)

    def _push(self, landing: Landing) -> None:
        """Push the checked commits, one target after another, then move the targets. Return early while git talks to a remote."""
        for leg in landing.legs:
            remote = self._remote(leg.target)
            if remote is None or leg.is_pushed or leg.picks[0][1].landed:
                continue
            if leg.target.takes_requests:
                leg.is_pushed = leg.new == leg.start or self._push_branch(landing, leg, remote)
            else:
                is_needless = leg.new == leg.old or bool(remote.problem) or remote.contains(leg.new)
                leg.is_pushed = is_needless or self._push_target(landing, leg, remote)
            if not leg.is_pushed:
                return
        self._end_move(landing)

    def _push_target(self, landing: Landing, leg: Leg, remote: RemoteBranch) -> bool:
        """Push a target's new commit before the target itself moves. If others have pushed in the meantime, the push fails and
        nothing has moved. Return True once it is pushed; False while the push runs, or if the tasks have to wait."""
        if leg.push_tries == 0 and not self._move_target(
            landing.moving, leg.target, leg.old, leg.new, move=rehearse_move
        ):
            self._drop(landing)
            return False
        leg.push_tries = 1
        outcome = remote.push(leg.new, leg.target.branch)
        if outcome in ("moved", "refused"):
            self._drop(landing)
            for queued in landing.moving:
                if outcome == "moved":
                    self._queue.change(queued, state="queued", reason="")
                else:
                    self._waits.add(queued, remote.refusal, retry_s=remote.pause_s)
        return outcome in ("pushed", "away")

    def _push_branch(self, landing: Landing, leg: Leg, remote: RemoteBranch) -> bool:
        """Push a task's branch, so that a person can request its merge. If the remote has another branch of that name, try the
        next name. Return True once it is pushed. Return False while the push runs, or if the task has to wait."""
        outcome = "away" if remote.problem else remote.push(leg.picks[0][1].tip, leg.pushed_name)
        if outcome == "moved" and leg.push_tries < _MAX_NAMES:
            leg.push_tries = max(2, leg.push_tries + 1)
            return self._push_branch(landing, leg, remote)
        if outcome is not None and outcome != "pushed":
            self._drop(landing)
            reason = remote.problem or remote.refusal or f"{remote.name} has other branches named {leg.pushed_name}"
            self._waits.add(landing.moving[0], reason, retry_s=remote.pause_s)
        return outcome == "pushed"

    def _end_move(self, landing: Landing) -> None:
        """Move the targets. Then end the tasks. If a person has to request the merge of a branch, instead record that it is
        pushed."""
        tasks = landing.moving
        self._drop(landing)
        for leg in landing.legs:
            if not leg.target.takes_requests and not self._move_target(tasks, leg.target, leg.old, leg.new):
                return
        if any(leg.target.takes_requests for leg in landing.legs):
            pushed_branches = tuple(
                replace(branch, pushed=leg.pushed_name) if leg.target.takes_requests and leg.new != leg.start
                else replace(branch, landed=True)
                for leg, branch in zip(landing.legs, tasks[0].entry.branches, strict=True)
            )  # fmt: skip
            self._queue.change(tasks[0], state="queued", branches=pushed_branches)
            crash_point("landing.requested")
            return
        for queued in tasks:
            close_landed(self._hive, self._queue, queued, queued.entry.branches)
        self._batches.note_landed({queued.id for queued in tasks})

    def _move_target(
        self,
        tasks: Sequence[QueuedTask],
        target: Target,
        old: str,
        new: str,
        *,
        move: Callable[..., None] | None = None,
    ) -> bool:
        """Move one target from `old` to `new` (or call `move` instead). Return True once it has moved, False if it cannot move
        now. If it has a new tip, the tasks are merged again; if its checkout is in the way, they wait."""
        try:
            if move is not None:
                move(target.repository, target.branch, old, new)
                return True
            with lock_worktrees(target.folder) as hold:  # a git of a killed lander holds it too
                repository = replace(target.repository, hold=hold)
                left_paths = move_target(repository, target.branch, old, new, target.move, target.save_move)
            if left_paths:
                self._returns.left_alone(target, new, left_paths)
        except TargetMoved:
            for queued in tasks:
                self._queue.change(queued, state="queued", reason="")
            return False
        except TargetBusy as busy:
            path = os.path.relpath(busy.path, target.root)
            blocked_ids = {
                queued.id for queued in tasks for branch in queued.entry.branches
                if branch.root == str(target.root) and path in target.changed_paths(branch)
            }  # fmt: skip
            for queued in tasks:
                queued = self._queue.change(queued, state="queued", reason="")
                if queued.id in blocked_ids or not blocked_ids:
                    self._waits.add(queued, str(busy), signature=signatures([target], busy.path), path=busy.path)
            return False
        return True

    def _settle_ended(self) -> None:
        """Write the event for the end of tasks that a killed lander had already closed."""
        for task_id in self._hive.journal.view(open_seqs):
            if (outcome := self._hive.tasks.listing.outcome(task_id)) is not None:
                agent = self._hive.tasks.get(task_id).owner
                self._hive.steps.end_task(task_id, outcome, agent_id=agent)

    def _resume_move(self, queued: QueuedTask) -> None:
        """Go on with the move of a task that a killed lander had begun."""
        for branch in queued.entry.branches:
            target = self._target(branch)
            assert branch.old is not None
            assert branch.new is not None
            assert branch.commit
            if target.move is None and not target.contains(branch.commit):  # the target has not moved
                self._queue.change(queued, state="queued", reason="")
                return
            if target.move is not None and not self._move_target([queued], target, branch.old, branch.new):
                return
        close_landed(self._hive, self._queue, queued, queued.entry.branches)


def _copy_log(tasks: Sequence[QueuedTask]) -> None:
    """Copy the check's output from the first task of a batch to the others."""
    first = tasks[0].task.path / LOG
    for queued in tasks[1:]:
        with suppress(OSError):
            shutil.copyfile(first, queued.task.path / LOG)


def _lost_base(leg: Leg, queued: QueuedTask, branch: LandingBranch) -> str | None:
    """Return the target's commit on which the branch builds, if the target no longer contains it because somebody has rewritten
    the target. Return None if the target contains it.

    The branch builds on the target's commit that was merged into it last or, without such a merge, on its base.
    """
    target = leg.target
    merged = [
        target.repository.commit_of(f"{merge.commit}^2") for merge in queued.entry.merges if merge.root == branch.root
    ]
    base = next((commit for commit in reversed(merged) if commit is not None), branch.base)
    return None if target.is_ancestor(base, leg.new) else base
