"""Sense: mail that has come in is taken up, and each message becomes exactly one block, also across a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind.minds import Turn

if TYPE_CHECKING:
    from hivemind.agent.agent import Agent


def sense(agent: Agent, turn: Turn) -> None:  # noqa: ARG001 - what comes in is for the turns to come, too
    """Take in new mail, and let the tasks that wait hear it."""
    agent.scheduler.sense()
