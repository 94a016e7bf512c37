"""Ids that no other task has: which are taken, and how a free one is found (README.md, *Ids*)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hivemind.errors import UserError
from hivemind.layout import Layout
from hivemind.names import MAX_LENGTH
from hivemind.tasks.drops import id_of
from hivemind.tasks.record import RECORD, load

__all__ = ["free_in_inbox", "free_name", "is_ended", "is_open", "on_its_way", "place_of", "with_number"]


def place_of(layout: Layout, task_id: str) -> Path | None:
    """The folder of the task with that id, looked for in the direction in which tasks move; None if it has none."""
    for folder in (layout.active, layout.done, layout.failed):
        if os.path.lexists(folder / task_id):
            return folder / task_id
    return None


def is_ended(layout: Layout, task_id: str) -> bool:
    """Whether a task with that id is done or failed."""
    return os.path.lexists(layout.done / task_id) or os.path.lexists(layout.failed / task_id)


def is_open(layout: Layout, task_id: str) -> bool:
    """Whether a task that was claimed once is worked on, or lies in the inbox again, handed over or given back; a task
    that a person has deleted is not. Looks at active/ twice, between which it may have come from the inbox."""
    active = layout.active / task_id
    return (
        os.path.lexists(active)
        or os.path.lexists(layout.inbox / task_id)
        or on_its_way(layout, task_id)
        or os.path.lexists(active)
    )


def on_its_way(layout: Layout, task_id: str) -> bool:
    """Whether a claim that is not finished yet may be this task's: it is then neither in the inbox nor in active/."""
    return any(
        task_id in (id_of(drop, True), id_of(drop, False))
        for agent in _names(layout.claimed)
        for name in _names(layout.claimed / agent)
        if (drop := _source(layout.claimed / agent / name) if name.startswith(".") else name) is not None
    )


def _source(build: Path) -> str | None:
    """The name of the drop that a folder is being made for; None while that lies beside it still."""
    try:
        record = load(build)
    except UserError:  # cut off by the power: then the drop's name stands on what is in it
        return next((name for name in _names(build) if name != RECORD), None)
    return None if record is None else record.source or None


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def with_number(name: str, number: int) -> str:
    """`name-2`, shortened so that it stays a name."""
    ending = f"-{number}"
    return name[: MAX_LENGTH - len(ending)] + ending


def free_name(name: str, taken: Callable[[str], bool]) -> str:
    """`name` if it is free, else `name-2`, `name-3` …; asks about few names, however many are taken."""
    if not taken(name):
        return name
    low, high = 1, 2
    while taken(with_number(name, high)):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if taken(with_number(name, middle)):
            low = middle
        else:
            high = middle
    return with_number(name, high)


def free_in_inbox(layout: Layout, name: str, folder: bool) -> str:
    """`name`, or with a number before its ending, such that nothing in the inbox has it."""
    stem, ending = (name, "") if folder else os.path.splitext(name)
    return free_name(stem, lambda one: os.path.lexists(layout.inbox / (one + ending))) + ending
