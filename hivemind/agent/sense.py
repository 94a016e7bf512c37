"""Sense: take in new mail. Each letter becomes exactly one block, also after a crash."""

from __future__ import annotations

from hivemind.agent.scheduler import Scheduler


def sense(scheduler: Scheduler) -> None:
    """Take in new mail, and deliver it to the tasks that wait for it."""
    scheduler.sense()
