"""One task that an agent has in hand: its plan, its steps, what was found, how far the review has come."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from hivemind.coordination import Receipt, Step, StepLease, StepLeaseHeld
from hivemind.errors import HivemindError, UserError
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN
from hivemind.mail import Message
from hivemind.masking import mask, masked
from hivemind.minds import ToolResult
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.taskrun.report import Account, Spent, StepReport, compose, printed
from hivemind.taskrun.review import Citation, Review
from hivemind.taskrun.trail import TaskTrail
from hivemind.taskrun.waits import Parking, ProgramAtWork, StepWaits, TaskWait, has_come
from hivemind.taskrun.worktree import Worktrees
from hivemind.tasks import FILES, AddedText, Task, TaskMoved, TaskStep
from hivemind.tasks.folder import ATTEMPTS, ended_folder, open_log

_log = logging.getLogger(__name__)
_TRACED_CHARS = 200
_AGAIN_S = 5.0
MAX_CRASHES = 5
_TITLE_CHARS = 200
_FILES_SHOWN = 40


class TaskRun:
    """A claimed task, opened: everything it says of itself is read from its folder and the journal."""

    def __init__(self, hive: Parts, task: Task, agent: str) -> None:
        self._hive = hive
        self._kept = dict(task.kept)
        self.task = replace(task, kept=self._kept)
        self.agent = agent
        self.lease: StepLease | None = None
        self.program_at_work = False
        """While it is, the task does not end: ProgramAtWork is raised instead."""
        self.trail = TaskTrail(hive, task, agent, self.shown)
        self.waits = StepWaits(self._kept.get("waits"), partial(self.keep, "waits"))
        self.review = Review.of(self._kept.get("review"))
        self._folder = task.path
        self.handed: str | None = None
        self._account = Account()
        self.wait = TaskWait.of(self._kept.get("wait_for"))
        self.attempt = 1 + sum(name.isdecimal() for name in names_in(task.path / ATTEMPTS))
        self.worktrees = Worktrees(hive, self.task, agent, self.attempt, partial(self.keep, "worktrees"))
        self._said = len(task.said)

    def lost_lease(self) -> str | None:
        """That another has, or had meanwhile, the lease under which this agent works, in words; None if it is still its own."""
        mine = self.lease
        if mine is None or mine.generation == self._hive.journal.view(lambda now: now.generation(mine.step_id)):
            return None
        now = self._hive.leases.get(mine.step_id)
        whose = "nobody" if now is None else now.holder_agent_id
        return f"The lease of step {mine.step_id} was taken from you meanwhile; {whose} has it now."

    def shown(self, step_id: str) -> dict[str, Any]:
        """What a change of a step has to show: who makes it, and the generation of the lease that it holds."""
        held = self.lease is not None and self.lease.step_id == step_id
        return {"agent_id": self.agent, "generation": self.lease.generation if held and self.lease else None}

    @cached_property
    def conversation(self) -> Conversation:
        """The task's conversation so far, read when it is first asked for."""
        records = list(open_log(self._folder, durable=False).records())
        self._account = Account(records)
        return Conversation(records, self._write, self.agent)

    def _write(self, records: Sequence[Mapping[str, Any]], durable: bool) -> None:
        """Append lines to messages.jsonl, wherever the task lies by now. Raises TaskMoved if the claim is over; what was used
        is booked all the same with a task that another hand has ended."""
        if self.ended:
            open_log(self._folder, durable=False).append(*records, separate_lines=True)
        else:
            if durable:  # what a mind is told of its cards is on the disk before it rests on that
                self.trail.sync()
            try:
                self._hive.tasks.active.log(self.task, *records, durable=durable)
            except TaskMoved:
                folder = ended_folder(self._hive.layout, self.task.id)
                if folder is None or any("answered" not in one for one in records):
                    raise
                open_log(folder, durable=False).append(*records, separate_lines=True)
        for record in records:
            self._account.book(record)

    def keep(self, name: str, value: Any, *, unpark: bool = False) -> None:
        """Keep a JSON value in the task's record; None takes it away. With `unpark` the task, which waited for it, goes on."""
        self._hive.tasks.active.keep(self.task, name, value, unpark=unpark)
        self._kept[name] = value

    def crashed(self) -> None:
        """Count that a process ended over the task without a word. Raises UserError once that was the last."""
        crashes = self._kept.get("crashes")
        crashes = 1 + (crashes if isinstance(crashes, int) else 0)
        self.keep("crashes", crashes)
        if crashes >= MAX_CRASHES:
            raise UserError(
                f"the process of its agent, or of what guards its command, ended {crashes} times over this task, without a word",
                remedy="look at what the step in question does, and at .hive/logs; then retry the task",
            )

    def went_on(self) -> None:
        """A step or a turn was finished: crashes are counted anew."""
        if self._kept.get("crashes"):
            self.keep("crashes", None)

    def hear(self) -> bool:
        """Take in what people have added to the task: a step for each, where there is a plan already. True if it is news."""
        entry = self._hive.journal.view(lambda state: state.task(self.task.id))
        news = entry is not None and entry.addition_count > self._said
        if news and entry is not None:
            self._said = entry.addition_count
            self.task = replace(self.task, said=self._hive.tasks.active.added_texts(self.task))
        if self.task.said and (steps := [step for step in self.steps() if not step.is_implicit]):
            heard = max((at for step in steps if isinstance(at := step.step.meta.get("heard"), int)), default=0)
            for at, said in enumerate(self.task.said[heard:], heard + 1):
                self._hive.steps.add(self.task.id, **self._row_of(said, at), agent_id=self.agent)
        return news

    def _row_of(self, said: AddedText, heard: int) -> dict[str, Any]:
        """The step that a person's words are: a question if they end with `?`, else their agent sees how."""
        text = said.text.strip()
        what = {"kind": "ask", "argument": text} if text.endswith("?") else {}
        return {
            "title": text.splitlines()[0][:_TITLE_CHARS], "proof": self.task.proof,
            "meta": {"attempt": self.attempt, "heard": heard, **what},
        }  # fmt: skip

    # other tasks

    def has_come(self, reason: str) -> bool:
        """Whether a task that was parked for this reason can go on, because what it waited for has come."""
        return has_come(self._hive, self.task, reason)

    @cached_property
    def ancestors(self) -> tuple[Task, ...]:
        """The tasks that this one is a part of, the nearest first."""
        found = [self.task]
        with suppress(UserError):  # one that is gone: this one is an orphan
            while (parent := found[-1].parent) is not None:
                found.append(self._hive.tasks.get(parent))
        return tuple(found[1:])

    @property
    def above(self) -> list[str]:
        """Where it stands in the graphs of the tasks that it is a part of: each with the step that it is a part of, the outermost
        first."""
        found, part = list[str](), self.task.id
        for task in self.ancestors:
            step = task.kept.get("parts", {}).get(part)
            found = [f"{task.title} (`{task.id}`)", *([str(step)] if step else []), *found]
            part = task.id
        return found

    @property
    def root(self) -> Path:
        """The folder of the task that this one is a part of in the end; its own if it is a part of none."""
        return [self.task, *self.ancestors][-1].path

    @property
    def is_orphan(self) -> bool:
        """Whether the task that this one is a part of is over, or gone."""
        return self.task.parent is not None and not self._hive.tasks.listing.is_open(self.task.parent)

    def delegates(self, key: str, ids: Sequence[str], step: PlannedStep | None = None) -> None:
        """Remember the subtasks that a call is going to make, and of which step they are a part."""
        made = self._kept.get("subtasks", {})
        if made.get(key) != [*ids]:
            if step is not None and not step.is_implicit:
                self.keep("parts", {**self._kept.get("parts", {}), **dict.fromkeys(ids, step.todo.title)})
            self.keep("subtasks", {**made, key: [*ids]})

    def wait_for(self, tasks: Sequence[str], mode: Literal["any", "all"], timeout_s: float | None) -> TaskWait:
        """The wait for other tasks: begun now, or the same one, if it is under way."""
        if self.wait is None or (self.wait.tasks, self.wait.mode) != (tuple(tasks), mode):
            until = None if timeout_s is None else (datetime.now(UTC) + timedelta(seconds=timeout_s)).isoformat()
            self._set_wait(TaskWait(tuple(tasks), mode, until, len(self.task.said)))
        assert self.wait is not None
        return self.wait

    def waited(self) -> None:
        """The wait is over, and what came of it is told."""
        self._set_wait(None)

    def wakes_at(self, message: Message) -> bool:
        """Take note of a letter; True if it ends the wait for other tasks."""
        wait = None if self.wait is None else self.wait.hears(message, self.task.id)
        if wait is not None:
            self._set_wait(wait)
        return wait is not None

    def _set_wait(self, wait: TaskWait | None) -> None:
        self.keep("wait_for", None if wait is None else asdict(wait))
        self.wait = wait

    @property
    def ended(self) -> bool:
        """True once the task was closed here."""
        return self._folder != self.task.path

    @property
    def taken_away(self) -> bool:
        """Whether it was moved out of active/ by another hand, as a task is that a person cancels."""
        return not self.ended and not self.task.path.exists()

    def concerns(self, task_id: str) -> bool:
        """Whether what is said about that task is said to this one: about itself, the one it is a part of, or a part of it."""
        return task_id in (self.task.id, self.task.parent) or task_id in self.task.subtasks

    def trace(self, results: Iterable[ToolResult], step: PlannedStep | None) -> None:
        """One line for the task's trace for each call; what ended the task is in its conversation only."""
        actions = []
        for one in () if self.ended else results:
            outcome = "" if one.ok else f" → {mask(one.problem or '')}"
            said = json.dumps(masked(dict(one.call.arguments)), ensure_ascii=False, default=str)
            actions.append((one.call.tool, f"{said[:_TRACED_CHARS]}{outcome}"))
        if actions:
            self.trail.trace(actions, step.id if step and self.lost_lease() is None else None)

    # the plan

    def plan(self, steps: Sequence[TaskStep]) -> list[PlannedStep]:
        """Add the steps to the journal, all or none, and to the graph. Raises UserError if there is a plan already."""
        before = self.steps()
        if any(not step.is_implicit for step in before):
            raise UserError(f"task {self.task.id} has its steps already")
        for step in before:
            if self.lease is not None and self.lease.step_id == step.id:
                self._hive.leases.release(step.id, self.agent)
                self.lease = None
            self._hive.steps.delete(step.id, agent_id=self.agent)
        given = self.task.steps == tuple(steps)
        rows = [self._row(at, step, given) for at, step in enumerate(steps)]
        self._hive.steps.plan(self.task.id, rows, agent_id=self.agent, leased_to=self.agent if given else None)
        made = self.steps()
        self.trail.planned(made)
        return made

    def begin_without_steps(self) -> None:
        """A task whose mind needs no plan has one step, the task itself, and that step's lease."""
        if not self.steps():
            row = self._row(0, TaskStep(self.task.title), given=False)
            row["meta"]["implicit"] = True
            self._hive.steps.plan(self.task.id, [row], agent_id=self.agent)

    def begin(self) -> None:
        """Make ready what was just claimed: steps of an earlier attempt go, steps that the task brings are planned."""
        for step in self._hive.steps.list(self.task.id):
            if not self._is_mine(step):
                self._hive.steps.delete(step.id, agent_id=self.agent)
        planned = [step for step in self.steps() if not step.is_implicit]
        if planned:  # a power cut may have left the journal's plan and taken the graph's
            self.trail.planned(planned)
        elif self.task.steps and not self.steps():
            self.plan(self.task.steps)

    def _row(self, at: int, step: TaskStep, given: bool) -> dict[str, Any]:
        what: dict[str, Any] = {"given": at} if given else {"kind": step.kind, "argument": step.argument}
        return {
            "title": step.title,
            "success_criteria": step.success_criteria,
            "tests": step.tests,
            "proof": step.proof or self.task.proof,
            "meta": {"attempt": self.attempt, "heard": len(self.task.said), **what},
        }

    def steps(self) -> list[PlannedStep]:
        """The steps of this attempt, in order."""
        found = self._hive.steps.list(self.task.id)
        return [PlannedStep(step, self._todo(step)) for step in found if self._is_mine(step)]

    def step(self, step_id: str) -> PlannedStep | None:
        """The step with that id, if it is one of this attempt."""
        found = self._hive.journal.view(lambda state: state.step(step_id))
        if found is None or found.task != self.task.id or not self._is_mine(found):
            return None
        return PlannedStep(found, self._todo(found))

    def _is_mine(self, step: Step) -> bool:
        """Steps that a person or another tool added to the task count as well; those of an earlier attempt do not."""
        return bool(step.meta.get("attempt", self.attempt) == self.attempt)

    def _todo(self, step: Step) -> TaskStep:
        at = step.meta.get("given")
        if isinstance(at, int) and at < len(self.task.steps):
            return self.task.steps[at]
        return TaskStep(step.title, step.meta.get("kind"), step.meta.get("argument"), step.success_criteria, step.tests)

    def trusts_its_commands(self, step: PlannedStep) -> bool:
        """True for a `run:` that a person wrote: only tasks that a person made carry commands to obey (spec 1)."""
        return self.task.maker == HUMAN and isinstance(step.step.meta.get("given"), int)

    def unblock(self, by: str) -> None:
        """An answer came: steps that were blocked with a question to a person go on."""
        for step in self.steps():
            wait = self.waits.get(step.id)
            if step.step.status == "blocked" and wait is not None and wait.answer is not None:
                self._hive.steps.unblock(step.id, reason=f"answered by {by}", agent_id=self.agent)

    # commands

    def output_path(self, step: PlannedStep | None, number: int) -> Path:
        """Where the output of a step's first, second … command goes; without a step, that of the task's."""
        name = "command" if step is None else f"step-{step.step.position}"
        return self.task.path / "artifacts" / f"{name}{'' if number == 1 else f'.{number}'}.out"

    def begin_command(self, step: PlannedStep) -> Receipt | None:
        """Note that the command of a `once: true` step is about to run; its receipt if it has run already.

        Raises UserError if it was begun before and nobody knows whether it took effect.
        """
        if not step.todo.once:
            return None
        ran = next((one for one in reversed(step.step.command_receipts) if one.text == step.command), None)
        if ran is not None:
            return ran
        begun = self._kept.get("once") or []
        if step.id in begun:
            raise UserError(
                f"the command of step {step.step.position} may run only once, and was interrupted when it ran: "
                "nobody knows whether it took effect",
                remedy="look for yourself, then retry the task or do the rest by hand",
            )
        self.keep("once", [*begun, step.id])
        return None

    # what is found

    def step_finished(self, step: PlannedStep) -> None:
        self.lease = None  # closing the step has ended it
        self.trail.finished(step.id)

    def findings(self) -> list[StepReport]:
        """What each step gave, in order, read from the graph and the outputs of commands."""
        return [self._finding(step) for step in self.steps()]

    def _findings_when_done(self, *, answered: bool) -> list[StepReport]:
        """The same, with what was quoted from the task's own folder cited where that will lie: in tasks/done/. Of a task without
        steps that is `answered` in its agent's words the command that happened to be its last tells nothing."""
        here = self._hive.layout.relative(self.task.path)
        there = self._hive.layout.relative(self._hive.layout.done / self.task.id)

        def moved(citation: Citation) -> Citation:
            inside = citation.path.startswith(f"{here}/")
            return replace(citation, path=there + citation.path[len(here) :]) if inside else citation

        found = []
        for step, one in zip(self.steps(), self.findings(), strict=True):
            one = replace(one, command=None) if answered and step.is_implicit else one
            if not (step.is_implicit and one.empty):
                found.append(replace(one, citations=tuple(map(moved, one.citations))))
        return found

    def _finding(self, step: PlannedStep) -> StepReport:
        cards = self.trail.of_step(step.id)
        commands = step.step.command_receipts
        return StepReport(
            title=step.todo.title,
            text="\n\n".join(card.text for card in cards if card.citation is None and card.artifact is None),
            citations=tuple(card.citation for card in cards if card.citation is not None),
            command=commands[-1].text if commands else None,
            status=commands[-1].exit_status if commands else None,
            printed=printed(self.output_path(step, len(commands)), commands[-1].output_digest) if commands else None,
            files=tuple(card.artifact for card in cards if card.artifact is not None),
        )

    def citations(self) -> list[Citation]:
        return [citation for finding in self.findings() for citation in finding.citations]

    def draft(self, answer: str) -> str:
        """What result.md would say by now, with the answer in the agent's own words, without steps that gave nothing (yet)."""
        found = [finding for finding in self.findings() if not finding.empty]
        return compose(self.task.title, answer, found, self.review, self.agent, None)

    def spent(self) -> Spent:
        """Turns, their seconds, tokens and money by the task's conversation."""
        assert self.conversation is not None  # its lines are booked when it is read
        return self._account.spent()

    # review and end

    def set_review(self, review: Review, *, unpark: bool = False) -> None:
        """Keep how far the review is; with `unpark` the task, which waited for it, goes on."""
        self.keep("review", asdict(review), unpark=unpark)
        self.review = review

    def finish(self, answer: str) -> Path:
        """Publish what was found and close the task as done; returns where it lies now.

        Raises Parking, before anything has changed, while another holds one of its steps.
        """
        self._check_end()
        self.worktrees.commit(self.task.title, ends=True)
        for step in self.steps():
            if step.is_implicit and step.step.status == "open":
                shown = self.shown(step.id)
                self._hive.steps.done(step.id, evidence=[], confirm=step.step.missing_checkpoints(), **shown)
                self.step_finished(step)
        self.trail.publish_all()
        self.trail.save()
        notes = self._hive.tasks.get(self.task.id).notes  # its text may have been edited meanwhile
        found = self._findings_when_done(answered=bool(answer.strip()))
        spent = self.spent()
        if not self.conversation.pending:  # a turn by rule is written once it is over, and this is one
            spent = replace(spent, cycles=spent.cycles + 1)
        text = compose(
            self.task.title, answer, found, self.review, self.agent, spent, notes, self._provenance(),
            [*self.worktrees.changes(), *self._files(found)],
        )  # fmt: skip
        self._folder = self._hive.tasks.finish(self.task, text)
        self._hive.steps.end_task(self.task.id, "done", agent_id=self.agent, has_left_active=True)
        if self._hive.tasks.claims.recheck_count:  # a task in the inbox may have waited for this one
            ring_all(self._hive)
        return self._folder

    def _files(self, found: Sequence[StepReport]) -> list[str]:
        """For result.md: what lies in the task's folder that it did not come with, and that no step tells of."""
        told = {
            *(path.name for path in self.task.attachments),
            *(os.path.basename(one) for each in found for one in each.files),
        }
        made = sorted(name for name in names_in(self.task.files) if not name.startswith(".") and name not in told)
        shown = [f"* `{FILES}/{name}`" for name in made[:_FILES_SHOWN]]
        more = [f"* … and {len(made) - len(shown)} more"] if len(made) > len(shown) else []
        return ["## Files", "", *shown, *more, ""] if made else []

    def _provenance(self) -> list[str]:
        """What else result.md says of how it came about."""
        judged = self._kept.get("criteria") or {}
        rounds = judged.get("made", 0)
        by = judged.get("approved")
        return (
            []
            if by is None
            else [f"Approved by {by} after {rounds} review{'s' if rounds != 1 else ''} by its criteria."]
        )

    def hand_over(self, to: str | None, role: str | None, reason: str) -> None:
        """Give the task away: drafts become visible to whoever goes on, and the reason stands among its notes.

        The turn is logged first; then its agent lets go of it (`let_go`). Killed in between, it does so in its next life.
        """
        whom = to or f"the role {role}"
        said = mask(f"{self.agent} hands this over to {whom}: {reason}")
        if all(note.text != said for note in self.trail.store.notes()):
            self.trail.store.add_note(said, agent_id=self.agent)
        self.trail.publish_all()
        self.trail.save()
        self._hive.tasks.active.hand_over(self.task, to=to, role=role, reason=reason)
        self.handed = to or role

    def let_go(self) -> None:
        """Put a task that was handed over where the other claims it."""
        self._hive.tasks.release(self.task)
        self._hive.journal.append("task.handed_over", task_id=self.task.id, agent_id=self.agent, to=self.handed)

    def fail(self, reason: str) -> Path:
        """Give the task up; returns where it lies now. Raises Parking as `finish` does."""
        self._check_end()
        self._save_what_there_is()
        self._folder = self._hive.tasks.fail(self.task, "\n".join([reason, *self._left_behind()]))
        self._hive.steps.end_task(self.task.id, "failed", agent_id=self.agent, has_left_active=True, reason=reason)
        return self._folder

    def _left_behind(self) -> list[str]:
        """For error.md: the branches on which something was done."""
        try:
            self.commit()
            changes = self.worktrees.changes()
            return ["", *changes] if changes else []
        except (HivemindError, OSError) as error:
            _log.warning("task %s: of its worktrees: %s", self.task.id, error)
            return []

    def commit(self) -> None:
        """Commit what its worktrees have left over. What stands in the way of that is told to the mind, once, and to the log."""
        try:
            self.worktrees.commit(self.task.title)
        except HivemindError as error:
            _log.warning("task %s: %s", self.task.id, error)
            told = f"What you have changed could not be committed: {error}"
            if self.conversation.epoch is not None and all(one.text != told for one in self.conversation.messages):
                self.conversation.tell(told, worktree=True)

    def _check_end(self) -> None:
        try:
            self._hive.steps.check_end(self.task.id, agent_id=self.agent)
        except StepLeaseHeld as held:
            raise Parking(f"{held.lease.step_id} is leased by {held.lease.holder_agent_id}", again_s=_AGAIN_S) from None
        if self.program_at_work:
            raise ProgramAtWork

    def _save_what_there_is(self) -> None:
        """The graph for who looks into the failed task; a task whose very graph is the trouble must fail all the same."""
        try:
            self.trail.save()
        except (HivemindError, OSError) as error:
            _log.warning("task %s: graph.json could not be written: %s", self.task.id, error)
