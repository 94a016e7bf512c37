"""A model's folded conversation, made again turn by turn from the graph as it was then: what it folded stands in there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hivemind.errors import HivemindError
from hivemind.reasoning import TaskGraph
from hivemind.replay.compare import Difference
from hivemind.taskrun.conversation import TaskConversation
from hivemind.taskrun.trail import Trail
from hivemind.tasks import Task
from hivemind.tokens import TokenCounter

__all__ = ["conversation_differs"]

Record = Mapping[str, Any]


def conversation_differs(task: Task, turn: Record, before: Sequence[Record], count: TokenCounter) -> Difference | None:
    """Where the conversation of a task would now stand otherwise in the context of a turn, `before` being the task's records
    until then; None if it would not, or if the log does not say how it was made."""
    told = _told(turn)
    if told is None:
        return None
    was, (first, last), budget = str(told["sha256"]), told["seqs"], told["budget"]
    now = ""
    for seq in range(last, first - 1, -1):  # beside the agent a patch may have been written meanwhile
        now = _again(task, before, count, seq, budget)
        if now == was:
            return None
    return Difference("context", f"context:conversation:{task.id}", was, now)


def _again(task: Task, before: Sequence[Record], count: TokenCounter, seq: int, budget: int) -> str:
    """The digest of the conversation from the graph as it was after line `seq`, or why there is none."""
    try:
        trail = Trail(task, "replay", "agent/replay", durable=False, committed=_is_there, guard=_may)
        then = TaskGraph(task.path, durable=False).at(seq)
        return TaskConversation(trail, task.title, before, count, looking=True, then=then).again(budget)
    except HivemindError as error:
        return f"cannot be made: {error}"


def _told(turn: Record) -> Record | None:
    """What the log says of how it was made, if it does and a person has not changed it."""
    essentials = turn.get("essentials")
    told = essentials.get("conversation") if isinstance(essentials, Mapping) else None
    if not isinstance(told, Mapping) or not isinstance(told.get("budget"), int):
        return None
    seqs = told.get("seqs")
    whole = isinstance(seqs, list) and len(seqs) == 2 and all(type(one) is int for one in seqs)
    return told if whole and "sha256" in told else None


def _is_there(_: str) -> bool:
    return True


def _may(_: Sequence[str]) -> AbstractContextManager[None]:
    """Nothing is written, so nothing is refused."""
    return nullcontext()
