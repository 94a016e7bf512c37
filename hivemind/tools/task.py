"""Tools for the whole task: waiting, asking a person, handing over, ending."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from hivemind.names import check_name
from hivemind.tools.asking import ask_person
from hivemind.tools.criteria import check_no_review
from hivemind.tools.finish import finish
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool

__all__ = ["TASK_TOOLS"]


class Wait(Arguments):
    step: str | None = None
    until: dict[str, Any] = Field(
        description="one of {seconds}, {until: ISO time}, {mail: agent}, {task: id}, {human: question}"
    )


class AskHuman(Arguments):
    question: str = Field(min_length=1)
    step: str | None = None


class HandOver(Arguments):
    to: str | None = Field(None, description="an agent's name")
    role: str | None = Field(None, description="or a role: any other agent that has it")
    reason: str = Field(min_length=1)


class FinishTask(Arguments):
    result: str = Field("", description="the answer in your own words; quotes and sources are added from the graph")


class FailTask(Arguments):
    reason: str = Field(min_length=1)


@tool
def wait(session: Session, arguments: Wait) -> dict[str, Any]:
    """Wait for a time, a mail, a person or another task; the task rests until then."""
    if len(arguments.until) != 1 or not set(arguments.until) <= {"seconds", "until", "mail", "task", "human"}:
        raise ToolProblem("until is one of {seconds}, {until}, {mail}, {task}, {human}")
    step, work = session.step(arguments.step), session.work
    begun = work.waits.begin(step.id, arguments.until, datetime.now(UTC))
    if begun.kind == "human" and begun.message_id is None:
        ask_person(session, step, begun.what)
    over = work.waits.check(step.id, datetime.now(UTC), session.hive.tasks.outcome)
    if over.answer is None:
        return {"step": step.id, "over": True}
    answer = session.hive.mail.read(session.agent, over.answer, mark=False)
    said = answer.body.strip()
    work.add_card(step, "note", said, title=f"{answer.sender} answered")
    return {"step": step.id, "over": True, "answer": said, "from": answer.sender}


@tool
def ask_human(session: Session, arguments: AskHuman) -> dict[str, Any]:
    """Ask the operator by mail; the task rests until the answer comes."""
    return wait.call(session, {"step": arguments.step, "until": {"human": arguments.question}})


@tool
def hand_over(session: Session, arguments: HandOver) -> dict[str, Any]:
    """Give the task to another agent, with all that was done and why. (delegate gives away parts of it.)"""
    to, role = _whom(session, arguments.to, arguments.role)
    session.work.hand_over(to, role, arguments.reason)
    return {"task": session.work.task.id, "state": "handed over", "to": to or role}


def _whom(session: Session, to: str | None, role: str | None) -> tuple[str | None, str | None]:
    """The agent or the role, checked: there is one, and it is another. Raises ToolProblem."""
    if (to is None) == (role is None):
        raise ToolProblem("say to whom: an agent (to), or a role")
    others = {name: agent.role for name, agent in session.hive.agents.items() if name != session.agent}
    if to is not None:
        to = check_name(to, "agent name")
        if to not in others:
            raise ToolProblem(f"there is no other agent {to!r}", mend=f"there are {', '.join(others) or 'none'}")
    elif role not in others.values():
        known = sorted({one for one in others.values() if one})
        raise ToolProblem(f"no other agent has the role {role!r}", mend=f"roles: {', '.join(known) or 'none'}")
    return to, role


@tool
def finish_task(session: Session, arguments: FinishTask) -> dict[str, Any]:
    """End the task: its quotes are checked by another agent first, and the task's criteria by a reviewer if it wants that (what
    is missing comes back); then the answer is published and the result written."""
    check_no_review(session)
    still_open = [step.id for step in session.work.steps() if step.step.status != "done" and not step.is_implicit]
    if still_open:
        raise ToolProblem(f"steps are not done yet: {', '.join(still_open)}", mend="finish_step closes one")
    return finish(session, arguments.result)


@tool
def fail_task(session: Session, arguments: FailTask) -> dict[str, Any]:
    """Give the task up, saying why in words that help a person."""
    where = session.work.fail(arguments.reason)
    return {"task": session.work.task.id, "state": "failed", "path": session.hive.layout.relative(where)}


TASK_TOOLS = (wait, ask_human, hand_over, finish_task, fail_task)
