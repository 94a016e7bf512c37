"""Sense: new mail is taken in, and each letter becomes exactly one block, also across a crash."""

from __future__ import annotations

from hivemind.agent.scheduler import Scheduler


def sense(scheduler: Scheduler) -> None:
    """Take in new mail, and let the tasks that wait hear it."""
    scheduler.sense()
