"""Select: at the start of an epoch, what of all blocks is worth its place in the opening (spec 2, *Score, select*; spec 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind.agent.build import new_epoch, opening_room
from hivemind.agent.recall import subjects_of
from hivemind.minds import Turn

if TYPE_CHECKING:
    from hivemind.agent.agent import Agent

__all__ = ["select", "share_of"]

SHARE, MOST = 0.3, 2_000
"""Of an opening's room, at most; and tokens: what is not there can be recalled."""


def share_of(room: int) -> int:
    """The tokens that what is selected may have of an opening's room."""
    return min(MOST, int(room * SHARE))


def select(agent: Agent, turn: Turn) -> None:
    """Choose what the opening shows beside the task. What stands in a conversation is not selected again."""
    agent.selected = None
    if agent.works_by_rule(turn):
        return
    turn.epoch = agent.begins or new_epoch(agent, turn)
    if turn.epoch is not None:
        tokens = share_of(opening_room(agent, turn))
        agent.selected = agent.memory.select(turn.focus, subjects_of(turn.focus), tokens)
