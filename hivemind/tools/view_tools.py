"""The tool that shows where an agent is: the view of its task, for members whose context the runtime does not build."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, tool
from hivemind.views import capsule
from hivemind.views import resume as view_of
from hivemind.views import signals as signals_of

__all__ = ["VIEW_TOOLS"]


class Resume(Arguments):
    task: str | None = Field(None, description="default: the task in focus")
    step: str | None = None
    view: Literal["capsule", "focus_only", "smart", "explore", "audit", "full"] = Field(
        "capsule", description="how much: where you are and what comes next, or the cards, notes and events too"
    )
    max_chars: int = Field(6000, ge=200, le=200_000)


class Signals(Arguments):
    task: str | None = None


@tool(reads=True)
def resume(session: Session, arguments: Resume) -> dict[str, Any]:
    """See where you are: task, step and its lease, what comes next; with a `view`, what is known too. Begin with this."""
    work = session.focus.work
    task = arguments.task
    if task is None and arguments.step is None and work is not None:
        task = work.task.id
    hive, view = session.hive, arguments.view
    if view == "capsule":
        found: dict[str, Any] = {"capsule": capsule(hive, session.agent, task, arguments.step)}
    else:
        found = {**view_of(hive, session.agent, task, arguments.step, view, arguments.max_chars)}
    coming = found["capsule"].get("next", {})
    for name, one in coming.items():
        if one is not None and one["tool"] == "list_files":  # the view's word for "begin": a member claims a task
            coming[name] = {"tool": "claim_task", "arguments": {}}
        elif one is not None:  # how Python would call it is nothing to a mind
            one.pop("call")
    return found


@tool(reads=True)
def signals(session: Session, arguments: Signals) -> dict[str, Any]:
    """See what is worth knowing of a task: contradictions, weak evidence, what is stuck, each with a call that helps."""
    task = arguments.task or (session.focus.work.task.id if session.focus.work is not None else None)
    return {"signals": signals_of(session.hive, session.agent, task)}


VIEW_TOOLS = (resume, signals)
