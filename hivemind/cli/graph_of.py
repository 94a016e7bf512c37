"""The reasoning graph that a command works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from hivemind.hive import Hive
    from hivemind.reasoning import ReasoningGraph, TaskGraph

__all__ = ["graph_at", "graph_of"]


def graph_of(hive: Hive, task_id: str, agent: str | None = None) -> TaskGraph:
    """The graph of a task, wherever it lies, open for `agent` to change. Raises UserError if it has none.

    A change of what belongs to a step is refused while another holds it (StepLeaseHeld).
    """
    from hivemind.coordination import Commits
    from hivemind.reasoning import TaskGraph
    from hivemind.reasoning.log import LOG_NAME

    task = hive.tasks.get(task_id)
    log = task.path / LOG_NAME
    if not log.is_file() or not log.stat().st_size:  # it is made when it is first locked, before anything is written
        raise UserError(
            "the task has no graph yet",
            where=task.id,
            mend=f"it gets one with its first step: hivemind task show {task.id}",
        )

    def guard(steps: Sequence[str]) -> AbstractContextManager[None]:
        return hive.steps.guard_all(dict.fromkeys(steps), agent)

    return TaskGraph(task.path, durable=hive.config.durable, committed=Commits(hive.journal, task.id).has, guard=guard)


def graph_at(store: TaskGraph, branch: str | None, seq: int | None) -> ReasoningGraph:
    """The graph of a branch as it is, or as it was after line `seq` of its log. Raises GraphError."""
    return store.at(store.seq if seq is None else seq, branch)
