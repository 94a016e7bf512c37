"""Tools for the steps of a task. What they change is guarded by the step's lease, which the runtime has taken."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hivemind.coordination import Receipt
from hivemind.layout import HUMAN
from hivemind.presence.identity import lease_step
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.taskrun.waits import question_id
from hivemind.tasks import TaskStep
from hivemind.tasks.step import as_step
from hivemind.tools.path_access import open_place, readable
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool

Checkpoint = Literal["criteria", "tests", "security", "perf", "docs"]


def ask_person(
    session: Session,
    name: str,
    question: str,
    *,
    subject: str = "Question",
    step: PlannedStep | None = None,
) -> None:
    """Send a question to the operator; the wait of that name remembers the message, so that an answer is known as one."""
    work = session.work
    about = "" if step is None else f", step {step.step.path}"
    report = session.hive.mail.send(
        session.agent, [HUMAN], f"{subject}: {work.task.title}",
        f"{question}\n\n(Task {work.task.id}{about}. Answer this message, and the task goes on.)\n",
        message_id=question_id(name, work.attempt, session.hive.config.workspace, question), task=work.task.id,
        step=None if step is None else step.id,
    )  # fmt: skip
    if report.failed:
        raise ToolProblem(f"the question could not be delivered: {report.failed[HUMAN]}")
    work.waits.asked(name, report.message_id)


class PlanStep(Arguments):
    title: str = Field(min_length=1)
    ask: str | None = None
    run: list[str] | None = None
    success_criteria: list[str] = []
    tests: list[str] = []


class PlanSteps(Arguments):
    steps: list[Annotated[PlanStep, BeforeValidator(as_step)]] = Field(min_length=1, max_length=1000)


class StepArguments(Arguments):
    step: str | None = Field(None, description="the step's id; default: the step in focus")


class ClaimStep(Arguments):
    step: str = Field(description="a step's id, of any task")


class NoteStep(StepArguments):
    text: str
    checkpoint: Checkpoint | None = None


class VerifyStep(StepArguments):
    checkpoints: list[Checkpoint] = ["criteria", "tests"]


_EVIDENCE = "receipts of commands by their ids, as run_command returns them (t.s1#2), or paths of files"


class FinishStep(StepArguments):
    evidence: list[str] = Field([], description=_EVIDENCE)


class AddEvidence(StepArguments):
    evidence: list[str] = Field(min_length=1, description=_EVIDENCE)


class BlockStep(StepArguments):
    reason: str


def _planned(result: Mapping[str, Any]) -> str:
    return "\n".join(f"{one['id']}: {one['title']}" for one in result["steps"])


@tool(text=_planned)
def plan_steps(session: Session, arguments: PlanSteps) -> dict[str, Any]:
    """Break the task in focus down into steps: each with a title and what to `ask` (a question to answer) or `run`
    (a program that you are allowed, with its arguments). Only for a task without steps."""
    planned = [
        TaskStep(
            title=step.title,
            kind="ask" if step.ask else "run" if step.run else None,
            argument=step.ask or step.run,
            success_criteria=tuple(step.success_criteria),
            tests=tuple(step.tests),
        )
        for step in arguments.steps
    ]
    steps = session.work.plan(planned)
    return {"task": session.work.task.id, "steps": [{"id": step.id, "title": step.todo.title} for step in steps]}


@tool()
def claim_step(session: Session, arguments: ClaimStep) -> dict[str, Any]:
    """Take the lease of a step, so that nobody else changes it meanwhile. The step in focus has been taken already."""
    found = session.hive.steps.get(arguments.step)
    lease = lease_step(session.hive, found.id, session.agent)
    step = session.step(found.id)
    if session.owns(step):
        session.work.lease = lease
    told = {"generation": lease.generation, "expires_seq": lease.expires_seq}
    return {"step": step.id, "title": found.title, "holder": lease.holder_agent_id, **told}


@tool()
def note_step(session: Session, arguments: NoteStep) -> dict[str, Any]:
    """Keep a note with a step."""
    step = session.step(arguments.step)
    session.hive.steps.note(step.id, arguments.text, checkpoint=arguments.checkpoint, **session.shown(step))
    return {"step": step.id}


@tool()
def verify_step(session: Session, arguments: VerifyStep) -> dict[str, Any]:
    """Confirm that a step meets its criteria and passes its tests (or the other checkpoints named)."""
    step = session.step(arguments.step)
    after = session.hive.steps.verify(step.id, checkpoints=tuple(arguments.checkpoints), **session.shown(step))
    return {"step": step.id, "confirmed": list(after.confirmed)}


@tool()
def finish_step(session: Session, arguments: FinishStep) -> dict[str, Any]:
    """Close a step. Commands, quotes and written files are its proof by themselves; `evidence` names more. Criteria and tests
    are confirmed with it."""
    step = session.step(arguments.step)
    shown = session.shown(step)
    ran = [one for one in step.step.command_receipts if one.text == step.command]
    if ran and ran[-1].is_counterevidence and session.owns(step) and session.work.trusts_its_commands(step):
        raise ToolProblem(
            f"the command of step {step.id} ended with status {ran[-1].exit_status}",
            remedy="run_command runs it again once that is mended; fail_task gives up",
        )
    receipts = _receipts(session, step, arguments.evidence)
    after = session.hive.steps.done(step.id, evidence=receipts, confirm=step.step.missing_checkpoints(), **shown)
    if session.owns(step):
        session.work.step_finished(step)
    return {"step": step.id, "status": after.status, "warnings": list(after.warnings)}


@tool()
def add_evidence(session: Session, arguments: AddEvidence) -> dict[str, Any]:
    """Keep receipts with a step, without closing it."""
    step = session.step(arguments.step)
    receipts = _receipts(session, step, arguments.evidence)
    after = session.hive.steps.capture(step.id, receipts, **session.shown(step)) if receipts else step.step
    return {"step": step.id, "receipts": len(after.evidence)}


def _receipts(session: Session, step: PlannedStep, named: list[str]) -> list[Receipt]:
    """The receipts that are named, as the runtime has them: those of commands that it ran, and of files as they are now.

    Those that the step has already are left out. Raises UserError for what is neither, and in a step with `proof: require`
    for a file that is only named: that proves nothing.
    """
    found: list[Receipt] = []
    for name in named:
        whose, sign, number = name.rpartition("#")
        if sign and number.isdecimal():
            ran = session.hive.steps.get(whose)
            if ran.task != step.step.task or not 1 <= int(number) <= len(ran.command_receipts):
                raise ToolProblem("is no receipt of a command in this task", location=name)
            receipt = ran.command_receipts[int(number) - 1]
        elif step.step.proof == "require":
            raise ToolProblem(
                "proves nothing by being there (proof: require)", location=name,
                remedy="run a command that shows it, quote it with add_card, or write it with the step's id",
            )  # fmt: skip
        else:
            place = readable(session, name)
            with open_place(session, place) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            receipt = Receipt("LINK", session.hive.layout.relative(place.path), digest=digest)
        if receipt not in (*step.step.evidence, *found):
            found.append(receipt)
    return found


@tool()
def block_step(session: Session, arguments: BlockStep) -> dict[str, Any]:
    """Say that a step can't go on, and why; a person is told by mail, and an answer to that lets it go on."""
    step = session.step(arguments.step)
    if session.owns(step):  # the task's owner sees to the others
        session.work.waits.begin(step.id, {"human": arguments.reason}, datetime.now(UTC))
        ask_person(session, step.id, f"This step can't go on: {arguments.reason}", step=step)
    session.hive.steps.block(step.id, arguments.reason, **session.shown(step))
    return {"step": step.id, "status": "blocked", "reason": arguments.reason}


STEP_TOOLS = (plan_steps, claim_step, note_step, verify_step, finish_step, add_evidence, block_step)
