"""Scope: choose what the turn is about, and what comes next in a task."""

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
    """Return the letter or the task of the turn, or None. `keep` gets letters that need no turn."""
    return scheduler.scope(reads=mind.reads, keep=keep, pictures=pictures.of_letter)
