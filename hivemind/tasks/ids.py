"""Ids that no other task has: which are taken, and how a free one is found (README.md, *Ids*)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hivemind.layout import Layout
from hivemind.names import MAX_LENGTH
from hivemind.tasks.drops import id_of

__all__ = ["free_in_inbox", "free_name", "is_ended", "on_its_way", "place_of", "with_number"]


def place_of(layout: Layout, task_id: str) -> Path | None:
    """The folder of the task with that id, looked for in the direction in which tasks move; None if it has none."""
    for folder in (layout.active, layout.done, layout.failed):
        if os.path.lexists(folder / task_id):
            return folder / task_id
    return None


def is_ended(layout: Layout, task_id: str) -> bool:
    """Whether a task with that id is done or failed."""
    return os.path.lexists(layout.done / task_id) or os.path.lexists(layout.failed / task_id)


def on_its_way(layout: Layout, task_id: str) -> bool:
    """Whether a claim that is not finished yet may be this task's: it is then neither in the inbox nor in active/."""
    return any(
        name.startswith(".") or task_id in (id_of(name, True), id_of(name, False))
        for agent in _names(layout.claimed)
        for name in _names(layout.claimed / agent)
    )


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
