"""Waiting for a time, a mail, a person or another task. A question to a person is a letter whose answer ends the wait."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from hivemind.layout import HUMAN
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.taskrun.replies import is_refusal
from hivemind.taskrun.waits import Parking, StepWait, question_id
from hivemind.tools.tool import Arguments, ToolProblem, tool
from hivemind.tools.tool_context import ToolContext

_GRACE_S = 2.0


class WaitArguments(Arguments):
    step: str | None = None
    until: dict[str, Any] = Field(
        description="one of {seconds: N}, {until: ISO time}, {mail: agent}, {task: id}, {human: question}"
    )


class AskHuman(Arguments):
    question: str = Field(min_length=1)
    step: str | None = None


def ask_person(
    context: ToolContext, name: str, question: str, *, subject: str = "Question", step: PlannedStep | None = None,
    turn: str = "", remedy: str = "",
) -> None:  # fmt: skip
    """Send a question to the operator, about the `step` if there is one. Record its Message-ID in the wait called `name`, which
    the operator's answer ends. `turn` and the question make up the id: if both are the same, the letter is not delivered again.
    `remedy` follows the sentence on how to answer."""
    work = context.work
    about = "" if step is None else f", step {step.step.path}"
    report = context.hive.mail.send(
        context.agent, [HUMAN], f"{subject}: {work.task.title}",
        f"{question}\n\n(Task {work.task.id}{about}. Answer this message, and the task continues{remedy}.)\n",
        message_id=question_id(name, work.attempt, context.hive.config.workspace, turn + question), task=work.task.id,
        step=None if step is None else step.id, traceparent=context.traceparent,
    )  # fmt: skip
    if report.failed:
        raise ToolProblem(f"the question could not be delivered: {report.failed[HUMAN]}")
    work.waits.record_question(name, report.message_id)


@tool()
def wait(context: ToolContext, arguments: WaitArguments) -> dict[str, Any]:
    """Wait for a time, a mail, a person or another task. Your task pauses until then."""
    if len(arguments.until) != 1 or not set(arguments.until) <= {"seconds", "until", "mail", "task", "human"}:
        raise ToolProblem("until is one of {seconds}, {until}, {mail}, {task}, {human}")
    step, work = context.step(arguments.step), context.work
    step_wait = work.waits.begin(step.id, arguments.until, datetime.now(UTC))
    is_gate = step_wait.kind == "human" and step.is_from_person and step.todo.kind == "wait"
    if step_wait.kind == "human" and step_wait.message_id is None:
        ask_person(context, step.id, step_wait.what, step=step, remedy="; `no` ends it" if is_gate else "")
    _check_known(context, step_wait)
    ended_wait = work.waits.check(step.id, datetime.now(UTC), context.hive.tasks.listing.outcome)
    if ended_wait.answer is None:
        return {"step": step.id, "over": True}
    answer = context.hive.mail.read(context.agent, ended_wait.answer, mark=False)
    reply = answer.answer
    if reply not in [card.text for card in work.trail.cards_of(step.id)]:
        work.trail.add_card(step, "note", reply, title=f"{answer.sender} answered")
    if is_gate and is_refusal(reply, at_gate=True):
        folder = work.fail(f"{answer.sender} answered {ended_wait.what!r} with no: {reply}")
        return {"task": work.task.id, "state": "failed", "path": context.hive.layout.relative(folder)}
    return {"step": step.id, "over": True, "answer": reply, "from": answer.sender}


def _check_known(context: ToolContext, wait: StepWait) -> None:
    """Check that the awaited task or agent exists. The first time it does not, raise Parking, since somebody may create it soon;
    the next time, raise ToolProblem."""
    hive, task_id, name = context.hive, context.work.task.id, wait.what
    if wait.kind == "task" and name == task_id:
        raise ToolProblem("the task waits for itself")
    if wait.kind == "task" and not hive.tasks.listing.is_known(name):
        reason = f"it waits for the task {name!r}, which does not exist"
    elif wait.kind == "mail" and wait.answer is None and not hive.layout.mailbox(name).is_dir():
        reason = f"it waits for mail from {name!r}, which is not an agent"
    else:
        return
    parked = hive.tasks.get(task_id).parked
    if parked is None or parked.reason != reason:
        raise Parking(reason, again_s=_GRACE_S)
    raise ToolProblem(reason)


@tool()
def ask_human(context: ToolContext, arguments: AskHuman) -> dict[str, Any]:
    """Ask the operator by mail. Your task pauses until the answer comes."""
    return wait.call(context, {"step": arguments.step, "until": {"human": arguments.question}})
