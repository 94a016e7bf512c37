"""Handing over: to whom, and a single step as a task of its own that the step waits for."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from hivemind.errors import UserError
from hivemind.masking import mask
from hivemind.names import check_name
from hivemind.taskrun.task_run import PlannedStep
from hivemind.tasks import TaskProblem, TaskState
from hivemind.tools.session import Session
from hivemind.tools.tool import ToolProblem

__all__ = ["delegate", "whom"]

_MAX_ID = 64
_SHOWN_CHARS = 8000
_CARDS = 20


def whom(session: Session, to: str | None, role: str | None) -> tuple[str | None, str | None]:
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


def delegate(session: Session, step: PlannedStep, to: str | None, role: str | None, reason: str) -> dict[str, Any]:
    """Make a task of one step, and wait for it; once it is done its result is a card of the step, with a receipt.

    Called again it makes nothing twice: the task's id is made from the step. Raises Parking while it is not done.
    """
    work, tasks = session.work, session.hive.tasks
    name = f"{work.task.id[: _MAX_ID - 12]}.s{step.step.position}"
    name += f".{work.attempt}" if work.attempt > 1 else ""
    _add_once(session, name, step, to, role, reason)
    begun = work.waits.begin(step.id, {"task": name}, datetime.now(UTC))
    if (begun.kind, begun.what) != ("task", name):
        raise ToolProblem(f"the step waits for something else: {begun.kind} {begun.what}")
    found = tasks.get(name)
    if found.state is TaskState.FAILED:
        raise ToolProblem(f"the task {name} failed: {(found.path / 'error.md').read_text('utf-8', 'replace')[:400]}")
    work.waits.check(step.id, datetime.now(UTC), tasks.is_done)
    raw = (session.hive.layout.done / name / "result.md").read_bytes()
    text, place = raw.decode("utf-8", "replace"), f"tasks/done/{name}/result.md"
    work.add_card(step, "note", text[:_SHOWN_CHARS], title=f"{to or role} did this")
    receipt = {"kind": "LINK", "text": place, "digest": hashlib.sha256(raw).hexdigest()}
    session.hive.steps.capture(step.id, receipt, **session.shown(step))
    return {"step": step.id, "task": name, "state": "done", "result": text[:_SHOWN_CHARS], "path": place}


def _add_once(session: Session, name: str, step: PlannedStep, to: str | None, role: str | None, reason: str) -> None:
    try:
        known = session.hive.tasks.get(name)
    except TaskProblem:
        raise
    except UserError:  # there is none yet
        session.hive.tasks.add(
            mask(_told(session, step, reason)),
            by=session.agent,
            id=name,
            title=mask(step.todo.title),
            assignee=to,
            role=role,
        )
        return
    if known.maker != session.agent:
        raise ToolProblem(f"there is a task {name} of {known.maker} already")


def _told(session: Session, step: PlannedStep, reason: str) -> str:
    """What whoever does the step has to know: the question, what it must meet, why it comes, what is known of it."""
    todo, work = step.todo, session.work
    lines = [str(todo.argument) if todo.kind == "ask" else todo.title, ""]
    lines += [f"* must hold: {one}" for one in todo.success_criteria] + [f"* test: {one}" for one in todo.tests]
    lines += [f"{session.agent} hands this over, from its task {work.task.id}: {reason}", ""]
    lines += [f"* known ({card.kind}): {card.text}" for card in work.trail.of_step(step.id)[:_CARDS]]
    return "\n".join(lines).strip() + "\n"
