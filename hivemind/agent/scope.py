"""Scope: choose the letter or task of the turn, and the next step of a task."""

from __future__ import annotations

from collections.abc import Callable

from hivemind.agent.metering import MeteredMind
from hivemind.agent.pictures import Pictures
from hivemind.agent.scheduler import Scheduler
from hivemind.mail import Message
from hivemind.taskrun.focus import Focus


def scope(
    scheduler: Scheduler, mind: MeteredMind, keep: Callable[[Message], object], pictures: Pictures
) -> Focus | None:
    """Return the letter or the task of the turn, or None if there is neither. Letters that need no turn are passed to
    `keep`."""
    return scheduler.scope(reads=mind.reads, keep=keep, pictures=pictures.of_letter)
