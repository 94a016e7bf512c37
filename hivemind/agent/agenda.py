"""The agenda of a task: how far its steps have come, and which are still to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

from hivemind.memory import ContextMemoryBlock, Priority
from hivemind.memory.weighing import Weigher
from hivemind.taskrun.task_run import PlannedStep

__all__ = ["agenda", "still_to_do"]

_TITLES = 30
_TITLE_CHARS = 120


def agenda(
    task: str, steps: Sequence[PlannedStep], focus: str | None, room: int, weigher: Weigher
) -> ContextMemoryBlock | None:
    """The steps as a block whose entry has at most `room` tokens: all open ones by number, the next ones by title.

    Numbers are steps' positions. None if there are no steps, or if not even the numbers fit.
    """
    if not steps:
        return None
    todo = _todo(steps)
    text = f"{len(steps) - len(todo)} of {len(steps)} steps are done. Still to do: {still_to_do(steps) or 'none'}."
    room -= weigher.tokens(_block(task, text))
    if room < 0:
        return None
    for step in todo[:_TITLES]:
        line = f"\n{_line(step, focus)}"
        room -= weigher.count(json.dumps(line))
        if room < 0:
            break
        text += line
    return _block(task, text)


def still_to_do(steps: Sequence[PlannedStep]) -> str:
    """The positions of the steps that are not done, runs of them as `from-to`: `3, 5-300`."""
    positions = enumerate(step.step.position for step in _todo(steps))
    runs = [[position for _, position in run] for _, run in groupby(positions, lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _todo(steps: Sequence[PlannedStep]) -> list[PlannedStep]:
    return [step for step in steps if step.step.status != "done"]


def _line(step: PlannedStep, focus: str | None) -> str:
    title = " ".join(step.todo.title.split())
    mark = " (now)" if step.id == focus else "" if step.step.status == "open" else f" ({step.step.status})"
    return f"{step.step.position}{mark} {title if len(title) <= _TITLE_CHARS else title[: _TITLE_CHARS - 1] + '…'}"


def _block(task: str, text: str) -> ContextMemoryBlock:
    return ContextMemoryBlock(
        id=f"context:steps:{task}",
        context_type="steps",
        summary=text,
        related_ids=[f"task:{task}"],
        priority=Priority.CRITICAL,
        metadata={"task_id": task},
    )
