"""Tools for the steps of a task. The step's lease, which the runtime has claimed, guards each change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hivemind.coordination import Receipt
from hivemind.errors import UserError
from hivemind.layout import HUMAN
from hivemind.presence.identity import lease_step
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.tasks import TaskStep
from hivemind.tasks.step import as_step
from hivemind.tools.files import write_file
from hivemind.tools.mail import SENT, send_mail
from hivemind.tools.path_access import open_place, readable
from hivemind.tools.tool import Arguments, ToolProblem, tool
from hivemind.tools.tool_context import ToolContext
from hivemind.tools.waiting import ask_person, wait

Checkpoint = Literal["criteria", "tests", "security", "perf", "docs"]


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


def _steps_text(result: Mapping[str, Any]) -> str:
    return "\n".join(f"{step['id']}: {step['title']}" for step in result["steps"])


@tool(text=_steps_text)
def plan_steps(context: ToolContext, arguments: PlanSteps) -> dict[str, Any]:
    """Divide the task in focus into steps. Each has a title, and may have a question to answer (`ask`) or a program that you may
    run, with its arguments (`run`). Only for a task without steps."""
    task_steps = [
        TaskStep(
            title=step.title,
            kind="ask" if step.ask else "run" if step.run else None,
            argument=step.ask or step.run,
            success_criteria=tuple(step.success_criteria),
            tests=tuple(step.tests),
        )
        for step in arguments.steps
    ]
    steps = context.work.plan(task_steps)
    return {"task": context.work.task.id, "steps": [{"id": step.id, "title": step.todo.title} for step in steps]}


@tool()
def claim_step(context: ToolContext, arguments: ClaimStep) -> dict[str, Any]:
    """Claim the lease of a step: no other agent can then change it. You already have the lease of the step in focus."""
    known_step = context.hive.steps.get(arguments.step)
    lease = lease_step(context.hive, known_step.id, context.agent)
    step = context.step(known_step.id)
    if context.owns(step):
        context.work.lease = lease
    lease_fields = {"generation": lease.generation, "expires_seq": lease.expires_seq}
    return {"step": step.id, "title": known_step.title, "holder": lease.holder_agent_id, **lease_fields}


@tool()
def note_step(context: ToolContext, arguments: NoteStep) -> dict[str, Any]:
    """Add a note to a step."""
    step = context.step(arguments.step)
    context.hive.steps.note(step.id, arguments.text, checkpoint=arguments.checkpoint, **context.step_authority(step))
    return {"step": step.id}


@tool()
def verify_step(context: ToolContext, arguments: VerifyStep) -> dict[str, Any]:
    """Confirm that a step meets its criteria and passes its tests, or the checkpoints that you name."""
    step = context.step(arguments.step)
    updated_step = context.hive.steps.verify(
        step.id, checkpoints=tuple(arguments.checkpoints), **context.step_authority(step)
    )
    return {"step": step.id, "confirmed": list(updated_step.confirmed)}


@tool()
def finish_step(context: ToolContext, arguments: FinishStep) -> dict[str, Any]:
    """Close a step and confirm its criteria and tests. If a person's step has to wait, write a file or send mail, that is done
    first. The proof is the step's commands, quotes and written files, and your `evidence`."""
    step = context.step(arguments.step)
    authority = context.step_authority(step)
    _check_command(context, step)
    if step.is_from_person and context.owns(step) and context.agent != HUMAN:
        _carry_out(context, step)
        if context.work.is_ended:  # a person has said no
            return {"step": step.id, "status": "open", "state": "failed"}
        step = context.step(step.id)
    receipts = _receipts(context, step, arguments.evidence)
    updated_step = context.hive.steps.done(
        step.id, evidence=receipts, confirm=step.step.missing_checkpoints(), **authority
    )
    if context.owns(step):
        context.work.lease = None  # closing the step has ended it
    return {"step": step.id, "status": updated_step.status, "warnings": list(updated_step.warnings)}


def _carry_out(context: ToolContext, step: PlannedStep) -> None:
    """Do what a person's step says: wait, send the mail, or write the file. Skip a mail or file that the mind has sent or written
    by the tool."""
    argument, trail = step.todo.argument, context.work.trail
    if step.todo.kind == "wait":
        wait.call(context, {"step": step.id, "until": argument})
    elif step.todo.kind == "mail":
        if not any(card.text.startswith(SENT) for card in trail.cards_of(step.id)):
            send_mail.call(context, {**argument, "step": step.id})
    elif step.todo.kind == "write":
        path = f"/{argument['path']}"
        if not any(f"/{card.artifact}".endswith(path) for card in trail.cards_of(step.id)):
            write_file.call(context, {**argument, "step": step.id})


def _check_command(context: ToolContext, step: PlannedStep) -> None:
    """Raise ToolProblem if a person wrote a command for the step and it has not succeeded. This holds even if the step is another
    agent's. Only a person may close such a step anyway."""
    if not context.owns(step) and context.agent != HUMAN:
        with suppress(UserError):  # steps need no task
            step = PlannedStep.of(step.step, context.hive.tasks.get(step.step.task))
    if not step.awaits_run:
        return
    outcome = f"ended with status {step.last_run.exit_status}" if step.last_run else "has not run to its end"
    raise ToolProblem(
        f"the command of step {step.id} {outcome}",
        remedy=f"run_command with step={step.id} and without a command runs it; or give up with block_step or fail_task",
    )


@tool()
def add_evidence(context: ToolContext, arguments: AddEvidence) -> dict[str, Any]:
    """Add receipts to a step without closing it."""
    step = context.step(arguments.step)
    receipts = _receipts(context, step, arguments.evidence)
    updated_step = (
        context.hive.steps.capture(step.id, receipts, **context.step_authority(step)) if receipts else step.step
    )
    return {"step": step.id, "receipts": len(updated_step.evidence)}


def _receipts(context: ToolContext, step: PlannedStep, references: list[str]) -> list[Receipt]:
    """Return the receipts of the references: ids of the task's command receipts, or paths of files, whose digest is taken now.

    Receipts that the step already has are omitted. Raises UserError for an invalid reference, and for a file if the step has
    `proof: require`, because the mere existence of a file is not a proof.
    """
    receipts: list[Receipt] = []
    for name in references:
        step_id, separator, number = name.rpartition("#")
        if separator and number.isdecimal():
            source_step = context.hive.steps.get(step_id)
            if source_step.task != step.step.task or not 1 <= int(number) <= len(source_step.command_receipts):
                raise ToolProblem("is not a receipt of a command in this task", location=name)
            receipt = source_step.command_receipts[int(number) - 1]
        elif step.step.proof == "require":
            raise ToolProblem(
                "is only a file, which is not enough proof (proof: require)", location=name,
                remedy="run a command that shows the result, quote the file with add_card, or write the file with the step's id",
            )  # fmt: skip
        else:
            place = readable(context, name)
            with open_place(context, place) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            receipt = Receipt("LINK", context.hive.layout.relative(place.path), digest=digest)
        if receipt not in (*step.step.evidence, *receipts):
            receipts.append(receipt)
    return receipts


@tool()
def block_step(context: ToolContext, arguments: BlockStep) -> dict[str, Any]:
    """Report that a step cannot continue, and why. A person gets a letter; an answer to the letter lets the step continue."""
    step = context.step(arguments.step)
    block(context, step, arguments.reason)
    return {"step": step.id, "status": "blocked", "reason": arguments.reason}


def block(context: ToolContext, step: PlannedStep, reason: str, offer: str = "") -> None:
    """Block a step and ask a person about it by letter. `offer` is the letter's last sentence: it says which answer has a special
    effect."""
    if context.owns(step):  # another task's owner asks for its own steps
        work = context.work
        wait = work.waits.ask(step.id, f"{reason} {offer}".strip(), len(work.task.said))
        if wait.message_id is None:
            question = f"This step cannot continue: {wait.what}"
            ask_person(context, step.id, question, step=step, turn=work.conversation.last_id)
    context.hive.steps.block(step.id, reason, **context.step_authority(step))


STEP_TOOLS = (plan_steps, claim_step, note_step, verify_step, finish_step, add_evidence, block_step)
