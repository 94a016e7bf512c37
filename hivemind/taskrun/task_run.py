"""One claimed task: its plan, steps, findings, waits and review."""

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
from hivemind.documents import Citation
from hivemind.errors import HivemindError, UserError
from hivemind.fs import postponing
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN, LANDING
from hivemind.mail import Message
from hivemind.masking import mask, mask_values
from hivemind.minds import Thought, ToolCall, ToolResult
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.landing_entry import LandingEntry, branches_to_land, queue_task
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.taskrun.project import Project, projects_of
from hivemind.taskrun.quote_check import Review
from hivemind.taskrun.replies import is_acceptance, is_refusal
from hivemind.taskrun.report import Account, StepOutcome, TaskUsage, compose, output_excerpt
from hivemind.taskrun.trail import TaskTrail
from hivemind.taskrun.waits import Parking, ProgramAtWork, StepWaits, TaskWait, has_come
from hivemind.taskrun.worktree import Worktrees
from hivemind.tasks import FILES, AddedText, Task, TaskMoved, TaskStep
from hivemind.tasks.attempts import ATTEMPTS
from hivemind.tasks.folder import ended_folder
from hivemind.tasks.record import open_log

_log = logging.getLogger(__name__)
_TRACED_CHARS = 200
_RETRY_S = 5.0
MAX_CRASHES = 5
_TITLE_CHARS = 200
_MAX_FILES = 40


class TaskRun:
    """A claimed task. Its state is read from its folder and the journal."""

    def __init__(self, hive: Parts, task: Task, agent: str) -> None:
        self._hive = hive
        self._record = dict(task.kept)
        self.task = replace(task, kept=self._record)
        self.agent = agent
        self.lease: StepLease | None = None
        self.program_at_work = False
        """While True, ending the task raises ProgramAtWork instead."""
        self.failed_starts = 0
        """The runs of its program in a row that ended with an error before the program did anything."""
        self.is_landing = False
        """True once the lander has the task."""
        self.trail = TaskTrail(hive, task, agent, self.step_authority)
        self.waits = StepWaits(self._record.get("waits"), partial(self.keep, "waits"))
        self.review = Review.of(self._record.get("review"))
        self._folder = task.path
        self.handed_to: str | None = None
        self._account = Account()
        self.wait = TaskWait.of(self._record.get("wait_for"))
        self.attempt = 1 + sum(name.isdecimal() for name in names_in(task.path / ATTEMPTS))
        self.worktrees = Worktrees(hive, self.task, agent, self.attempt, partial(self.keep, "worktrees"))
        self._addition_count = len(task.said)

    def lost_lease(self) -> str | None:
        """Return a message for the mind if this agent's lease of the step was taken from it, else None."""
        lease = self.lease
        if lease is None or lease.generation == self._hive.journal.view(lambda state: state.generation(lease.step_id)):
            return None
        current_lease = self._hive.leases.get(lease.step_id)
        holder = "nobody" if current_lease is None else current_lease.holder_agent_id
        return f"The lease of step {lease.step_id} was taken from you; {holder} has it now."

    def step_authority(self, step_id: str) -> dict[str, Any]:
        """Return the arguments that authorise a change of a step: the agent, and the generation of its lease."""
        is_holder = self.lease is not None and self.lease.step_id == step_id
        return {"agent_id": self.agent, "generation": self.lease.generation if is_holder and self.lease else None}

    @cached_property
    def conversation(self) -> Conversation:
        """The task's conversation, read at the first access."""
        records = list(open_log(self._folder).records())
        self._account = Account(records)
        return Conversation(records, self._write, self.agent)

    def _write(self, records: Sequence[Mapping[str, Any]], sync_now: bool) -> None:
        """Append lines to messages.jsonl in the task's current folder. Raises TaskMoved if the claim is over; but the usage of
        a task that somebody else has ended is still recorded."""
        if self.is_landing:
            self._hive.tasks.active.log_late(self.task.id, *records)
        elif self.is_ended:
            open_log(self._folder).append(*records, separate_lines=True)
        else:
            if sync_now:  # cards are on the disk before a mind refers to them
                self.trail.sync()
            try:
                self._hive.tasks.active.log(self.task, *records, sync_now=sync_now)
            except TaskMoved:
                folder = ended_folder(self._hive.layout, self.task.id)
                if folder is None or any("answered" not in record for record in records):
                    raise
                open_log(folder).append(*records, separate_lines=True)
        for record in records:
            self._account.book(record)

    def keep(self, name: str, value: Any, *, unpark: bool = False) -> None:
        """Save a JSON value under `name` in the task's record; None removes it. With `unpark`, a parked task can continue."""
        self._hive.tasks.active.keep(self.task, name, value, unpark=unpark)
        self._record[name] = value

    def count_crash(self) -> None:
        """Count that the agent's process died while it worked on the task. Raises UserError once that has happened too often."""
        crashes = self._record.get("crashes")
        crashes = 1 + (crashes if isinstance(crashes, int) else 0)
        self.keep("crashes", crashes)
        if crashes >= MAX_CRASHES:
            raise UserError(
                f"the process of its agent, or the reaper of its command, crashed {crashes} times during this task",
                remedy="check what the step does, and .hive/logs; then retry the task",
            )

    def reset_crashes(self) -> None:
        """Reset the count of crashes after a finished step or turn."""
        if self._record.get("crashes"):
            self.keep("crashes", None)

    def take_additions(self) -> bool:
        """Read the texts that were added to the task. Return True for new texts.

        They answer the questions of blocked steps. If the task has a plan, add a step for each text."""
        entry = self._hive.journal.view(lambda state: state.task(self.task.id))
        is_new = entry is not None and entry.addition_count > self._addition_count
        if is_new and entry is not None:
            self._addition_count = entry.addition_count
            self.task = replace(self.task, said=self._hive.tasks.active.added_texts(self.task))
        if ended_waits := self.waits.take_said(len(self.task.said)):
            for wait in ended_waits:
                if wait.message_id is not None:
                    self._hive.mail.mark_answered(HUMAN, wait.message_id)
            self.unblock("task say")
            addition = self.task.said[-1]
            if any(wait.may_end_task for wait in ended_waits) and self.end_by(addition.text, addition.by):
                return is_new
        if self.task.said and (steps := [step for step in self.steps() if not step.is_implicit]):
            heard_count = max(
                (number for step in steps if isinstance(number := step.step.meta.get("heard"), int)), default=0
            )
            for at, addition in enumerate(self.task.said[heard_count:], heard_count + 1):
                self._hive.steps.add(self.task.id, **self._addition_row(addition, at), agent_id=self.agent)
        return is_new

    def _addition_row(self, addition: AddedText, number: int) -> dict[str, Any]:
        """Return the step for an added text: a question to answer if it ends with `?`, else a step without a kind."""
        text = addition.text.strip()
        todo = {"kind": "ask", "argument": text} if text.endswith("?") else {}
        return {
            "title": text.splitlines()[0][:_TITLE_CHARS], "proof": self.task.proof,
            "meta": {"attempt": self.attempt, "heard": number, **todo},
        }  # fmt: skip

    # Other tasks

    def has_come(self, reason: str) -> bool:
        """Check whether a task that was parked for `reason` can continue, because what it waited for has come."""
        return has_come(self._hive, self.task, reason)

    @cached_property
    def ancestors(self) -> tuple[Task, ...]:
        """The task's parent, the parent's parent, and so on."""
        chain = [self.task]
        with suppress(UserError):  # a parent is gone: this task is an orphan
            while (parent := chain[-1].parent) is not None:
                chain.append(self._hive.tasks.get(parent))
        return tuple(chain[1:])

    @cached_property
    def projects(self) -> list[Project]:
        """The projects that the task works on, as people have committed them."""
        return projects_of(self._hive, self.task, self.ancestors)

    @property
    def graph_path(self) -> list[str]:
        """The position of this task in the graphs of its ancestors: each ancestor with its step, the outermost first."""
        places, part_id = list[str](), self.task.id
        for task in self.ancestors:
            step = task.kept.get("parts", {}).get(part_id)
            places = [f"{task.title} (`{task.id}`)", *([str(step)] if step else []), *places]
            part_id = task.id
        return places

    @property
    def root(self) -> Path:
        """The folder of the outermost ancestor, or of this task."""
        return [self.task, *self.ancestors][-1].path

    @property
    def is_orphan(self) -> bool:
        """True if the task's parent is over or gone."""
        return self.task.parent is not None and not self._hive.tasks.listing.is_open(self.task.parent)

    def record_subtasks(self, key: str, ids: Sequence[str], step: PlannedStep | None = None) -> None:
        """Record the ids of the subtasks that the call `key` will create, and the step that they belong to (None: the task)."""
        subtasks = self._record.get("subtasks", {})
        if subtasks.get(key) != [*ids]:
            if step is not None and not step.is_implicit:
                self.keep("parts", {**self._record.get("parts", {}), **dict.fromkeys(ids, step.todo.title)})
            self.keep("subtasks", {**subtasks, key: [*ids]})

    def wait_for(self, tasks: Sequence[str], mode: Literal["any", "all"], timeout_s: float | None) -> TaskWait:
        """Begin a wait for other tasks, at most `timeout_s` seconds (None: without end). Return it, or the current wait if it is
        for the same tasks."""
        if self.wait is None or (self.wait.tasks, self.wait.mode) != (tuple(tasks), mode):
            until = None if timeout_s is None else (datetime.now(UTC) + timedelta(seconds=timeout_s)).isoformat()
            self._set_wait(TaskWait(tuple(tasks), mode, until, len(self.task.said)))
        assert self.wait is not None
        return self.wait

    def end_wait(self) -> None:
        """End the wait after its outcome was returned to the mind."""
        self._set_wait(None)

    def note_letter(self, message: Message) -> bool:
        """Record a letter; returns True if it ends the wait for other tasks."""
        wait = None if self.wait is None else self.wait.ended_by(message, self.task.id)
        if wait is not None:
            self._set_wait(wait)
        return wait is not None

    def _set_wait(self, wait: TaskWait | None) -> None:
        self.keep("wait_for", None if wait is None else asdict(wait))
        self.wait = wait

    @classmethod
    def of_ended(cls, hive: Parts, task_id: str, agent: str) -> TaskRun | None:
        """Return the run of a task that an earlier process of the agent has ended. Return None if the task is not over, or if
        another call than `finish_task` or `fail_task` ended it. Raises UserError."""
        run = cls(hive, hive.tasks.get(task_id), agent)
        run.is_landing = run.task.owner == LANDING
        run.task = replace(run.task, path=hive.layout.active / task_id)
        calls = [message.calls for message in run.conversation.messages if message.calls]
        has_end = bool(calls) and any(call.tool in ("finish_task", "fail_task") for call in calls[-1])
        return run if run.is_ended and has_end else None

    def records(self) -> list[dict[str, Any]]:
        """Return the lines of the conversation, read again from the folder where the task is now."""
        folder = self.task.path if self.task.path.is_dir() else ended_folder(self._hive.layout, self.task.id)
        return [] if folder is None else [*open_log(folder).records()]

    @property
    def is_ended(self) -> bool:
        """True once this object has closed the task or passed it to the lander."""
        return self.is_landing or self._folder != self.task.path

    @property
    def was_moved(self) -> bool:
        """True if somebody else moved the task out of active/, for example by cancelling it."""
        return not self.is_ended and not self.task.path.exists()

    def concerns(self, task_id: str) -> bool:
        """Check whether news about the task `task_id` concern this one: it is the same task, its parent, or one of its
        subtasks."""
        return task_id in (self.task.id, self.task.parent) or task_id in self.task.subtasks

    def note_actions(self, results: Iterable[ToolResult], step: PlannedStep | None) -> None:
        """Add a line to the task's trace for each call. The call that ended the task is only in its conversation."""
        actions = []
        for result in () if self.is_ended else results:
            outcome = "" if result.ok else f" → {mask(result.problem or '')}"
            arguments = json.dumps(mask_values(dict(result.call.arguments)), ensure_ascii=False, default=str)
            actions.append((result.call.tool, f"{arguments[:_TRACED_CHARS]}{outcome}"))
        if actions:
            finished = [planned for planned in self.steps() if planned.step.status == "done"]
            self.trail.trace(actions, step.id if step and self.lost_lease() is None else None, finished)

    # The plan

    def plan(self, steps: Sequence[TaskStep]) -> list[PlannedStep]:
        """Add the steps to the journal, all or none, and to the graph, and return them. Raises UserError if the task has a plan
        already."""
        previous_steps = self.steps()
        if any(not step.is_implicit for step in previous_steps):
            raise UserError(f"task {self.task.id} has its steps already")
        for step in previous_steps:
            if self.lease is not None and self.lease.step_id == step.id:
                self._hive.leases.release(step.id, self.agent)
                self.lease = None
            self._hive.steps.delete(step.id, agent_id=self.agent)
        is_from_task = self.task.steps == tuple(steps)
        rows = [self._row(at, step, is_from_task) for at, step in enumerate(steps)]
        self._hive.steps.plan(self.task.id, rows, agent_id=self.agent, leased_to=self.agent if is_from_task else None)
        planned_steps = self.steps()
        self.trail.add_steps(planned_steps)
        return planned_steps

    def begin_without_steps(self) -> None:
        """Add the implicit step of a task without a plan: the task itself."""
        if not self.steps():
            row = self._row(0, TaskStep(self.task.title), is_from_task=False)
            row["meta"]["implicit"] = True
            self._hive.steps.plan(self.task.id, [row], agent_id=self.agent)

    def begin(self) -> None:
        """Prepare a task after its claim: delete steps of an earlier attempt, plan the steps in the task's text.

        Also delete the steps of an earlier task of this id if somebody has deleted its folder. Raises UserError if a command
        that may run only once was interrupted.
        """
        for step in self._hive.steps.list(self.task.id):
            if not self._is_current(step) or self._is_of_deleted_task(step):
                self._hive.steps.delete(step.id, agent_id=self.agent)
        self._reopen_returned()
        planned_steps = [step for step in self.steps() if not step.is_implicit]
        if planned_steps:  # a power cut may have lost the graph's nodes but not the journal's steps
            self.trail.add_steps(planned_steps)
            for planned_step in planned_steps:
                self._check_interruption(planned_step)
        elif self.task.steps and not self.steps():
            self.plan(self.task.steps)

    def _is_of_deleted_task(self, step: Step) -> bool:
        """Check whether a step was planned by an earlier, deleted task of this id: its trace id differs, and the graph's log of
        this task is empty."""
        trace = self.task.traceparent
        return step.meta.get("trace", trace) != trace and next(open_log(self._folder).records(), None) is None

    def _reopen_returned(self) -> None:
        """Reopen the implicit step of a task that did not land."""
        entry = LandingEntry.of(self._record)
        if entry is not None and entry.state == "returned":
            for step in self.steps():
                if step.is_implicit and step.step.status == "done":
                    self._hive.steps.reopen(step.id, reason="it has not landed", agent_id=self.agent)

    def _row(self, index: int, step: TaskStep, is_from_task: bool) -> dict[str, Any]:
        todo: dict[str, Any] = {"given": index} if is_from_task else {"kind": step.kind, "argument": step.argument}
        return {
            "title": step.title,
            "success_criteria": step.success_criteria,
            "tests": step.tests,
            "proof": step.proof or self.task.proof,
            "meta": {"attempt": self.attempt, "trace": self.task.traceparent, "heard": len(self.task.said), **todo},
        }

    def steps(self) -> list[PlannedStep]:
        """Return the steps of this attempt, in order."""
        steps = self._hive.steps.list(self.task.id)
        return [PlannedStep.of(step, self.task) for step in steps if self._is_current(step)]

    def step(self, step_id: str) -> PlannedStep | None:
        """Return the step of that id; None if there is none in this attempt."""
        step = self._hive.journal.view(lambda state: state.step(step_id))
        if step is None or step.task != self.task.id or not self._is_current(step):
            return None
        return PlannedStep.of(step, self.task)

    def _is_current(self, step: Step) -> bool:
        """Check whether a step belongs to this attempt. This is also true of steps that a person or another tool has added."""
        return bool(step.meta.get("attempt", self.attempt) == self.attempt)

    def end_by(self, answer: str, sender: str) -> bool:
        """Let the next turn end the task by a person's answer: `done` finishes it with the mind's last words, a no fails it.
        Return False for another answer."""
        if is_refusal(answer):
            call = ToolCall("fail_task", {"reason": f"{sender} does not let it go on: {answer}"})
        elif is_acceptance(answer):
            call = ToolCall("finish_task", {"result": self.conversation.last_words})
        else:
            return False
        self.conversation.answer(Thought(actions=(call,)))
        return True

    def unblock(self, by: str) -> None:
        """Unblock the steps after a person has answered their question."""
        for step in self.steps():
            wait = self.waits.get(step.id)
            if step.step.status == "blocked" and wait is not None and wait.answer is not None:
                self._hive.steps.unblock(step.id, reason=f"answered by {by}", agent_id=self.agent)

    # Commands

    def output_path(self, step: PlannedStep | None, number: int) -> Path:
        """Return the path for the output of the `number`-th command: of the step, or of the task if `step` is None."""
        name = "command" if step is None else f"step-{step.step.position}"
        return self.task.path / "artifacts" / f"{name}{'' if number == 1 else f'.{number}'}.out"

    def only_run(self, step: PlannedStep) -> Receipt | None:
        """Return the receipt of a `once: true` step's command if it has run. Return None if it may run.

        If its run was interrupted, its effect is unknown: fail the task and raise UserError.
        """
        if not step.todo.once:
            return None
        try:
            self._check_interruption(step)
        except UserError as error:
            self.fail(str(error))
            raise
        return step.last_run

    def begin_command(self, step: PlannedStep) -> None:
        """Record that the command of a step starts now, if it may run only once."""
        if step.todo.once:
            self.keep("once", [*(self._record.get("once") or []), step.id])

    def _check_interruption(self, step: PlannedStep) -> None:
        """Raise UserError if the command of a `once: true` step was begun, and nobody knows whether it ran to its end."""
        if step.todo.once and step.last_run is None and step.id in (self._record.get("once") or []):
            raise UserError(
                f"the command of step {step.step.position} may run only once, and was interrupted "
                "(it was killed, or its agent was stopped or died): it is unknown whether it took effect",
                remedy="look at its output in artifacts/ and at what it changes, then retry the task or do the rest by hand",
            )

    # Findings

    def findings(self) -> list[StepOutcome]:
        """Return the outcome of each step, in order, from the graph and the outputs of commands."""
        return [self._finding(step) for step in self.steps()]

    def _findings_when_done(self, *, has_answer: bool) -> list[StepOutcome]:
        """Return the findings for the result. Places in the task's own files get their paths in tasks/done/. If a mind
        `has_answer` for a task without a plan, its last command is omitted."""
        reports = []
        for step, report in zip(self.steps(), self.findings(), strict=True):
            report = replace(report, command=None) if has_answer and step.is_implicit else report
            if not (step.is_implicit and report.is_empty):
                citations = tuple(replace(cited, path=self._as_done(cited.path)) for cited in report.citations)
                reports.append(replace(report, text=self._as_done(report.text), citations=citations))
        return reports

    def _as_done(self, text: str) -> str:
        """Return a text in which the paths of the task's own files are those after its move to tasks/done/, except in quotes."""
        layout = self._hive.layout
        active, done = (f"{layout.relative(folder)}/" for folder in (self.task.path, layout.done / self.task.id))
        lines = text.split("\n")
        return "\n".join(line if line.startswith(">") else line.replace(active, done) for line in lines)

    def _note_unanswered(self) -> None:
        """Record how many of the questions have no answer."""
        questions = [step for step in self.steps() if not step.is_implicit and step.todo.kind in ("ask", None)]
        count = sum(any(card.is_unanswered for card in self.trail.cards_of(step.id)) for step in questions)
        note = f"no answer to {count} of {len(questions)} question{'s' * (len(questions) > 1)}" if count else None
        if note != self._record.get("unanswered"):
            self.keep("unanswered", note)

    def _finding(self, step: PlannedStep) -> StepOutcome:
        cards = self.trail.cards_of(step.id)
        commands = step.step.command_receipts
        return StepOutcome(
            title=step.todo.title,
            text="\n\n".join(card.text for card in cards if card.citation is None and card.artifact is None),
            citations=tuple(card.citation for card in cards if card.citation is not None),
            command=commands[-1].text if commands else None,
            status=commands[-1].exit_status if commands else None,
            output=output_excerpt(self.output_path(step, len(commands)), commands[-1].output_digest)
            if commands
            else None,
            files=tuple(card.artifact for card in cards if card.artifact is not None),
        )

    def citations(self) -> list[Citation]:
        cards = (card for step in self.steps() for card in self.trail.cards_of(step.id))
        return [card.citation for card in cards if card.citation is not None]

    def draft(self, answer: str) -> str:
        """Return the current text of result.md with the agent's answer, without steps that have no outcome yet."""
        findings = [finding for finding in self.findings() if not finding.is_empty]
        return compose(self.task.title, answer, findings, self.review, self.agent, None)

    def total_usage(self) -> TaskUsage:
        """Return the task's usage according to its conversation."""
        assert self.conversation is not None  # reading it adds up the usage
        return self._account.usage()

    @property
    def has_failed_call(self) -> bool:
        """True if a call failed, or a command ended with another status than 0."""
        assert self.conversation is not None
        return self._account.has_failed_call

    # Review and end

    def set_review(self, review: Review, *, unpark: bool = False) -> None:
        """Save the state of the review. With `unpark`, a parked task can continue."""
        self.keep("review", asdict(review), unpark=unpark)
        self.review = review

    @postponing()
    def finish(self, answer: str) -> Path:
        """Publish the cards and close the task as done, or pass it to the lander if it has commits to land. Returns the task's
        folder.

        Raises Parking, before any change, while another agent has the lease of a step.
        """
        self._check_end()
        self.worktrees.commit(self.task.title, ends=True)
        for step in self.steps():
            if step.is_implicit and step.step.status == "open":
                authority = self.step_authority(step.id)
                self._hive.steps.done(step.id, evidence=[], confirm=step.step.missing_checkpoints(), **authority)
                self.lease = None  # closing the step has ended it
        self.trail.add_steps(self.steps())
        self.trail.publish_all()
        self.trail.save()
        notes = self._hive.tasks.get(self.task.id).notes  # the text may have been edited meanwhile
        findings = self._findings_when_done(has_answer=bool(answer.strip()))
        usage = self.total_usage()
        if not self.conversation.pending_calls:  # a turn by rule is recorded only at its end
            usage = replace(usage, cycles=usage.cycles + 1)
        self._note_unanswered()
        text = compose(
            self.task.title, self._as_done(answer), findings, self.review, self.agent, usage, notes, self._provenance(),
            [*self.worktrees.changes(), *self._files(findings)],
        )  # fmt: skip
        if branches := branches_to_land(self._hive, self.task, self.worktrees.recorded):
            queue_task(self._hive, self.task, self._hive.agents[self.agent].role, branches, text)
            self.is_landing = True
            return self._folder
        self._folder = self._hive.tasks.finish(self.task, text)
        self._hive.steps.end_task(self.task.id, "done", agent_id=self.agent)
        if self._hive.tasks.claims.recheck_count:  # a task in the inbox may wait for this one
            ring_all(self._hive)
        return self._folder

    def _files(self, findings: Sequence[StepOutcome]) -> list[str]:
        """Return the section of result.md on files that are neither attachments nor named by a step."""
        known_names = {
            *(path.name for path in self.task.attachments),
            *(os.path.basename(path) for finding in findings for path in finding.files),
        }
        names = sorted(
            name for name in names_in(self.task.files) if not name.startswith(".") and name not in known_names
        )
        lines = [f"* `{FILES}/{name}`" for name in names[:_MAX_FILES]]
        remainder = [f"* … and {len(names) - len(lines)} more"] if len(names) > len(lines) else []
        return ["## Files", "", *lines, *remainder, ""] if names else []

    def _provenance(self) -> list[str]:
        """Return the line for the section "How it came about" of result.md that says who approved the result; none without a
        review by criteria."""
        review_fields = self._record.get("criteria") or {}
        rounds = review_fields.get("made", 0)
        approver = review_fields.get("approved")
        return (
            []
            if approver is None
            else [f"Approved by {approver} after {rounds} review{'s' if rounds != 1 else ''} by its criteria."]
        )

    def hand_over(self, to: str | None, role: str | None, reason: str) -> None:
        """Give the task to another agent: publish the drafts for it, and add the reason to the notes.

        `let_go` then releases the task, after the turn is logged. If the process dies in between, the next process does that.
        """
        recipient = to or f"the role {role}"
        note_text = mask(f"{self.agent} hands this over to {recipient}: {reason}")
        if all(note.text != note_text for note in self.trail.store.notes()):
            self.trail.store.add_note(note_text, agent_id=self.agent)
        self.trail.publish_all()
        self.trail.save()
        self._hive.tasks.active.hand_over(self.task, to=to, role=role, reason=reason)
        self.handed_to = to or role

    def let_go(self) -> None:
        """Put a task that was handed over back into the inbox, where the other agent claims it."""
        self._hive.tasks.release(self.task)
        self._hive.journal.append("task.handed_over", task_id=self.task.id, agent_id=self.agent, to=self.handed_to)

    @postponing()
    def fail(self, reason: str) -> Path:
        """Close the task as failed; returns its new folder. Raises Parking like `finish`."""
        self._check_end()
        self._save_graph()
        self._folder = self._hive.tasks.fail(self.task, "\n".join([reason, *self._branch_lines()]))
        self._hive.steps.end_task(self.task.id, "failed", agent_id=self.agent, reason=reason)
        return self._folder

    def _branch_lines(self) -> list[str]:
        """Return the lines of error.md on branches with commits."""
        try:
            self.commit()
            changes = self.worktrees.changes()
            return ["", *changes] if changes else []
        except (HivemindError, OSError) as error:
            _log.warning("task %s: its worktrees cannot be committed: %s", self.task.id, error)
            return []

    def commit(self) -> None:
        """Commit the uncommitted changes in the task's worktrees. A failure is logged, and reported to the mind once."""
        try:
            self.worktrees.commit(self.task.title)
        except HivemindError as error:
            _log.warning("task %s: %s", self.task.id, error)
            problem = f"Your changes could not be committed: {error}"
            if self.conversation.epoch is not None and all(
                message.text != problem for message in self.conversation.messages
            ):
                self.conversation.add_news(problem, worktree=True)

    def _check_end(self) -> None:
        try:
            self._hive.steps.check_end(self.task.id, agent_id=self.agent)
        except StepLeaseHeld as error:
            raise Parking(
                f"{error.lease.step_id} is leased by {error.lease.holder_agent_id}", again_s=_RETRY_S
            ) from None
        if self.program_at_work:
            raise ProgramAtWork

    def _save_graph(self) -> None:
        """Write the graph of the failed task. If the graph itself cannot be written, the task must still fail."""
        try:
            self.trail.add_steps(self.steps())
            self.trail.save()
        except (HivemindError, OSError) as error:
            _log.warning("task %s: graph.json could not be written: %s", self.task.id, error)
