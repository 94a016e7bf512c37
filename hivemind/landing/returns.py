"""Returns: the words with which a task that cannot land goes back to its agent, and the questions to a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hivemind.errors import UserError
from hivemind.fs import crash_point
from hivemind.landing.checks import Verdict
from hivemind.landing.endings import read_draft
from hivemind.landing.merging import Merge, conflict_commit
from hivemind.landing.queue import Queue, QueuedTask
from hivemind.landing.target import Hold, Target
from hivemind.layout import HUMAN, LANDING, POSTMASTER
from hivemind.presence.parts import Parts
from hivemind.taskrun.landing_entry import LOG, LandingBranch, MarkedMerge

_MAX_NAMES = 20
_MAX_CHARS = 160


class Returns:
    """Sends tasks back to work, at most `land_tries` times in a row. After that a person decides."""

    def __init__(self, hive: Parts, queue: Queue) -> None:
        self._hive, self._queue = hive, queue

    def _limit(self, queued: QueuedTask, branch: LandingBranch) -> int:
        """Return how often the task may go back to its agent: never if the lander made the commit itself (a revert, a
        proposal)."""
        if queued.entry.reverts is not None or queued.entry.agent == LANDING:
            return 0
        roots = self._hive.config.repository_roots(self._hive.layout)
        return next((settings.land_tries for root, settings in roots.items() if str(root) == branch.root), 1)

    def red(self, queued: QueuedTask, target: Target, branch: LandingBranch, verdict: Verdict) -> None:
        """Send back a task with a red check on the merged result."""
        command = "; ".join(target.settings.check)
        root = f" in `{branch.root}`" if len(queued.entry.branches) > 1 else ""
        text = "\n".join([
            f"Not landed: `{command}` fails on your work{root} merged into {branch.target}{_details(command, verdict)}; "
            f"its whole output is in {LOG} in the task's folder.",
            "", "The end of its output:", "", "```", *verdict.output_tail.splitlines(), "```", "",
            f"Merge {branch.target} into your branch if you need the others' work (git merge {branch.target}), mend it, and call "
            "finish_task again.",
        ])  # fmt: skip
        self._send_back(queued, text, red=queued.entry.tips)

    def unchanged(self, queued: QueuedTask) -> None:
        """Ask a person about a task whose check was red and whose agent finished it again without a new commit."""
        self._ask(queued, "has come back unchanged since its check was red", read_draft(queued.task))

    def conflict(self, queued: QueuedTask, target: Target, branch: LandingBranch, old: str, merge: Merge) -> None:
        """Send back a task that conflicts with its target: its branch gets a merge commit with the conflict marks.

        If the lander is killed in between, the next one tries the landing again.
        """
        repository = target.repository
        commit = conflict_commit(repository, branch.tip, old, merge)
        marked = tuple(conflict.path for conflict in merge.conflicts if conflict.is_marked)
        unmarked = tuple(conflict.path for conflict in merge.conflicts if not conflict.is_marked)
        lines = [
            f"Not landed: this work and {branch.target} have changed the same places in "
            f"{', '.join(dict.fromkeys(conflict.path for conflict in merge.conflicts[:3]))}. Keep what both sides set out to do."
        ]
        if marked:
            lines += [
                "",
                "Your branch has the merge now. Edit these files and remove the conflict marks:",
                *_names(marked),
            ]
        if unmarked:
            lines += [
                "",
                "These are in conflict without marks. Change them, or name them in finish_task(resolved=[…]):",
            ]
            conflicts = [conflict for conflict in merge.conflicts if not conflict.is_marked]
            lines += [f"* {conflict.path}: {conflict.kind}" for conflict in conflicts[:_MAX_NAMES]]
        others = self._others(target, branch, old, marked + unmarked)
        if others:
            lines += ["", f"What the other side set out to do in {branch.target}:", *others]
        lines += ["", "Then call finish_task again."]
        crash_point("landing.conflicting")
        if queued.entry.tries < self._limit(queued, branch) and target.follow_branch(branch) == branch.tip:
            repository.move(branch.branch, commit, branch.tip, f"conflict with {branch.target}")
        branches = tuple(
            replace(other, tip=commit) if other.branch == branch.branch and other.root == branch.root else other
            for other in queued.entry.branches
        )
        marks = MarkedMerge(branch.root, commit, marked, unmarked)
        self._send_back(queued, "\n".join(lines), branches=branches, merges=(*queued.entry.merges, marks))

    def _others(self, target: Target, branch: LandingBranch, old: str, paths: Sequence[str]) -> list[str]:
        """Return a line for each other task that has landed changes of these paths since the branch began at its target."""
        lines = []
        for task_id in target.landed_tasks(branch.base, old, paths):
            try:
                task = self._hive.tasks.get(task_id)
            except UserError:
                continue
            lines.append(f"* {task.title} ({self._hive.layout.relative(task.path)}/result.md)")
        return lines

    def _send_back(self, queued: QueuedTask, text: str, **changes: Any) -> None:
        """Send a task back to its agent. If that has happened too often, ask a person, or fail a candidate."""
        entry = queued.entry
        if entry.tries < min(self._limit(queued, branch) for branch in entry.branches):
            self._queue.send_back(queued, text, tries=entry.tries + 1, **changes)
            return
        history = f"was returned {entry.tries} times, and still does not land" if entry.tries else "does not land"
        if entry.candidate_of is not None:
            self._hive.tasks.fail(queued.task, f"{history.capitalize()}.\n\n{text}")
            self._hive.steps.end_task(queued.id, "failed", agent_id=entry.agent)
            return
        self._ask(queued, history, text)

    def _ask(self, queued: QueuedTask, history: str, text: str) -> None:
        """Ask a person by letter about a task that does not land, and let the task wait. `history` says how often it was
        returned, `text` why it does not land."""
        remedy = (
            f"look at it, then: hivemind land {queued.id} (tries once more), hivemind task say {queued.id} TEXT "
            f"(sends it back with your words), or hivemind task cancel {queued.id}"
        )
        reason = f"{history}: {remedy}"
        body = "\n".join([f"{queued.task.title} ({queued.id}) {reason}", "", text, ""])
        message_id = f"landing-asks.{queued.id}.{queued.task.claim}"
        self._hive.mail.send(  # first: a killed lander comes here again only until the record says so
            POSTMASTER, HUMAN, f"Does not land: {queued.task.title}"[:200], body, message_id=message_id, task=queued.id
        )
        crash_point("landing.asking")
        self._queue.change(queued, "landing.waits", state="waits", reason=reason, asks=True, approved=False)

    def left_alone(self, target: Target, commit: str, paths: Sequence[str]) -> None:
        """Tell a person which files a landing did not update, because the person changed them while the landing was
        interrupted."""
        names = "\n".join(_names(paths))
        body = f"{target.branch} is at {commit} in {target.root}. git shows these files, which you had changed, as changed:\n\n"
        message_id = f"landing-left.{target.folder.name}.{commit}"
        self._hive.mail.send(
            POSTMASTER, HUMAN, "Files that a landing left alone", f"{body}{names}\n", message_id=message_id
        )

    def target_red(self, target: Target, tip: str, verdict: Verdict) -> None:
        """Hold a target if its own commit fails the check, and tell a person once."""
        command = "; ".join(target.settings.check)
        reason = f"{target.branch} itself fails: {command}"
        place = self._hive.layout.relative(target.folder / LOG)
        body = "\n".join([
            f"{reason}{_details(command, verdict)}; its whole output is in {place}.",
            f"It fails at {tip} in {target.root}. Nothing lands there until the branch has moved.", "",
            verdict.output_tail, "",
        ])  # fmt: skip
        message_id = f"landing-held.{target.folder.name}.{tip}"
        self._hive.mail.send(POSTMASTER, HUMAN, f"Landing is held: {reason}"[:200], body, message_id=message_id)
        crash_point("landing.held")
        target.set_hold(Hold("check", reason, tip))
        self._hive.journal.append(
            "landing.held", root=str(target.root), branch=target.branch, commit=tip, reason=reason
        )


def _details(command: str, verdict: Verdict) -> str:
    """Return the verdict's reason and the last line of the output, to follow a sentence that says that the check is red. Omit a
    reason that says only that `command` failed."""
    reason = "" if verdict.reason == f"{command} failed" else f" ({verdict.reason})"
    lines = [line for line in verdict.output_tail.splitlines() if line.strip() and not line.startswith("[exit status ")]
    return f"{reason}: {lines[-1].strip()[:_MAX_CHARS]}" if lines else reason


def _names(paths: Sequence[str]) -> list[str]:
    more = [f"* and {len(paths) - _MAX_NAMES} more"] if len(paths) > _MAX_NAMES else []
    return [*(f"* {path}" for path in paths[:_MAX_NAMES]), *more]
