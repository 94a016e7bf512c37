"""The context that an agent would think with now, laid out without thinking (`hivemind context AGENT`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hivemind.agent.desk import Desk
from hivemind.agent.scope import focus_on
from hivemind.memory import MemoryBlock, Selection
from hivemind.presence.parts import Parts
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.task_run import TaskRun
from hivemind.tasks import TaskState
from hivemind.tools import allowed_tools

__all__ = ["Preview", "preview_context"]


@dataclass(frozen=True, slots=True)
class Preview:
    """A context with its selection, and what it is about (None: the agent has nothing in hand).

    `explain` gives the parts that a block's score is the product of, at the time of the preview.
    """

    context: list[dict[str, Any]]
    selection: Selection
    target: dict[str, str] | None
    tokens: int
    budget: int
    explain: Callable[[MemoryBlock], dict[str, float]]


def preview_context(hive: Parts, name: str) -> Preview:
    """Lay out the context of the agent's next turn from what lies on the disk. Changes nothing that the agent has."""
    schemas = [tool.schema() for tool in allowed_tools(hive.agents[name].tools).values()]
    desk = Desk(hive, name, schemas, looking=True)
    works = [
        TaskRun(hive, hive.tasks.get(summary.id), name)
        for summary in hive.tasks.list(TaskState.ACTIVE)
        if summary.owner == name
    ]
    ready = [work for work in works if work.task.parked is None] or works
    focus = focus_on(min(ready, key=lambda work: (work.task.priority, work.task.id))) if ready else Focus("rest")
    context = desk.lay_out(focus, works)
    assert desk.selection is not None
    return Preview(context, desk.selection, focus.target, desk.tokens, desk.budget, desk.scorer.explain)
