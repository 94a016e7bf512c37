"""Tools for the steps of a task. What they change is guarded by the step's lease, which the runtime has taken."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from hivemind.tasks import TaskStep
from hivemind.tools.asking import ask_person
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, tool

__all__ = ["STEP_TOOLS"]


class PlanStep(Arguments):
    title: str = Field(min_length=1)
    ask: str | None = None
    run: list[str] | None = None
    success_criteria: list[str] = []
    tests: list[str] = []


class PlanSteps(Arguments):
    steps: list[PlanStep] = Field(min_length=1, max_length=1000)


class OfStep(Arguments):
    step: str | None = Field(None, description="the step's id; default: the step in focus")


class ClaimStep(Arguments):
    step: str = Field(description="a step's id, of any task")


class NoteStep(OfStep):
    text: str
    checkpoint: Literal["criteria", "tests", "security", "perf", "docs"] | None = None


class VerifyStep(OfStep):
    checkpoints: list[Literal["criteria", "tests", "security", "perf", "docs"]] = ["criteria", "tests"]


class Receipt(Arguments):
    kind: Literal["CMD", "LINK"]
    text: str
    exit_status: int | None = None
    output_digest: str | None = None
    digest: str | None = None


class FinishStep(OfStep):
    evidence: list[Receipt] = []


class AddEvidence(OfStep):
    evidence: list[Receipt] = Field(min_length=1)


class BlockStep(OfStep):
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


@tool
def claim_step(session: Session, arguments: ClaimStep) -> dict[str, Any]:
    """Take the lease of a step, so that nobody else changes it meanwhile. The step in focus has been taken already."""
    found = session.hive.steps.get(arguments.step)
    lease = session.hive.leases.claim(found.id, session.agent)
    step = session.step(found.id)
    if session.owns(step):
        session.work.lease = lease
    told = {"generation": lease.generation, "expires_seq": lease.expires_seq}
    return {"step": step.id, "title": found.title, "holder": lease.holder_agent_id, **told}


@tool
def note_step(session: Session, arguments: NoteStep) -> dict[str, Any]:
    """Keep a note with a step."""
    step = session.step(arguments.step)
    session.hive.steps.note(step.id, arguments.text, checkpoint=arguments.checkpoint, **session.shown(step))
    return {"step": step.id}


@tool
def verify_step(session: Session, arguments: VerifyStep) -> dict[str, Any]:
    """Confirm that a step meets its criteria and passes its tests (or the other checkpoints named)."""
    step = session.step(arguments.step)
    after = session.hive.steps.verify(step.id, checkpoints=tuple(arguments.checkpoints), **session.shown(step))
    return {"step": step.id, "confirmed": list(after.confirmed)}


@tool
def finish_step(session: Session, arguments: FinishStep) -> dict[str, Any]:
    """Close a step, with the receipts that prove it: {kind: CMD, text, exit_status} or {kind: LINK, text: path or URL}.
    Criteria and tests are confirmed with it."""
    step = session.step(arguments.step)
    shown = session.shown(step)
    lacking = tuple(name for name in step.step.needed() if not step.step.checkpoints[name])
    if lacking:
        session.hive.steps.verify(step.id, checkpoints=lacking, **shown)
    receipts = [receipt.model_dump(exclude_none=True) for receipt in arguments.evidence]
    after = session.hive.steps.done(step.id, evidence=receipts, **shown)
    if session.owns(step):
        session.work.step_finished(step)
    return {"step": step.id, "status": after.status, "warnings": list(after.warnings)}


@tool
def add_evidence(session: Session, arguments: AddEvidence) -> dict[str, Any]:
    """Keep receipts with a step, without closing it."""
    step = session.step(arguments.step)
    receipts = [receipt.model_dump(exclude_none=True) for receipt in arguments.evidence]
    after = session.hive.steps.capture(step.id, receipts, **session.shown(step))
    return {"step": step.id, "receipts": len(after.evidence)}


@tool
def block_step(session: Session, arguments: BlockStep) -> dict[str, Any]:
    """Say that a step can't go on, and why; a person is told by mail, and an answer to that lets it go on."""
    step = session.step(arguments.step)
    if session.owns(step):  # the task's owner sees to the others
        session.work.waits.begin(step.id, {"human": arguments.reason}, datetime.now(UTC))
        ask_person(session, step, f"This step can't go on: {arguments.reason}")
    session.hive.steps.block(step.id, arguments.reason, **session.shown(step))
    return {"step": step.id, "status": "blocked", "reason": arguments.reason}


STEP_TOOLS = (plan_steps, claim_step, note_step, verify_step, finish_step, add_evidence, block_step)
