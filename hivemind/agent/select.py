"""Select: whether the turn begins an epoch, and what of all blocks is then worth its place in the opening (spec 2, *Score,
select*; spec 8)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from hivemind.agent.opening import RENDERER
from hivemind.agent.recall import subjects_of
from hivemind.config import key_location
from hivemind.errors import UserError
from hivemind.minds import Turn
from hivemind.presence.parts import Parts
from hivemind.tasks import Task

if TYPE_CHECKING:
    from hivemind.agent.agent import Agent
    from hivemind.agent.working_memory import SelectedMemory

SHARE, MOST = 0.3, 2_000
"""Of an opening's room, at most; and tokens: what is not there can be recalled."""
FULL, OPENING = 0.75, 0.5
"""Shares of the agent's `max_tokens`: an epoch's end, and its opening."""
LEAST_ROOM = 512
_CACHE_S = 3600.0  # a task that rested for longer begins anew: nothing of it is in a provider's cache any more
_FEW = 2  # turns for which a new opening would say no less than they do


def select(agent: Agent, turn: Turn) -> None:
    """Choose what the opening shows beside the task. What stands in a conversation is not selected again."""
    agent.selected = None
    if agent.works_by_rule(turn):
        return
    turn.epoch = agent.begins or _new_epoch(agent, turn)
    if turn.epoch is not None:
        agent.selected = selected_for(agent, turn)


def selected_for(agent: Agent, turn: Turn, stands: Callable[[str], bool] = lambda _: False) -> SelectedMemory:
    """What an opening of the turn's conversation would show, but for what `stands` there already."""
    tokens = share_of(opening_room(agent, turn))
    return agent.memory.select(turn.focus, subjects_of(turn.focus), tokens, stands)


def share_of(room: int) -> int:
    """The tokens that what is selected may have of an opening's room."""
    return min(MOST, int(room * SHARE))


def _new_epoch(agent: Agent, turn: Turn) -> str | None:
    """Why the turn begins an epoch; None if the conversation goes on."""
    talk = agent.conversation(turn)
    if talk.epoch is None:
        return "start"
    if talk.pending_calls:  # they are answered first
        return None
    if talk.epoch.get("shape") != shape(agent):
        return "changed"
    if agent.program is not None:  # it sees to the length of its sessions itself
        return None
    most, fixed = agent.most_tokens(turn), agent.fixed_tokens
    if agent.tokens_of(talk) - fixed > (FULL * most - fixed if fixed < OPENING * most else FULL * (most - fixed)):
        return "full"
    return "cold" if agent.rested_s(turn) > _CACHE_S and sum(1 for _ in talk.turn_messages()) > _FEW else None


def room_of(hive: Parts, name: str, task: Task | None, most: int, fixed: int) -> int:
    """The tokens that an opening may have beside the system message and the tools, which have `fixed`, in a request of `most`.
    Raises UserError that names the budget which leaves too few."""
    if most - fixed >= LEAST_ROOM:
        return max(LEAST_ROOM // 2, int(most * OPENING) - fixed)
    if task is not None and task.max_tokens == most:
        where = hive.layout.relative(task.path / "task.md")
    else:
        where = key_location(hive.layout, name, "max_tokens")
    raise UserError(
        f"max_tokens: {most} leaves no room for a turn: tools and rules alone have {fixed} tokens",
        location=where, remedy=f"at least {fixed + LEAST_ROOM}, or fewer tools in the agent's file",
    )  # fmt: skip


def opening_room(agent: Agent, turn: Turn) -> int:
    """The same for the opening of a turn."""
    work = turn.focus.work
    return room_of(
        agent.hive, agent.name, None if work is None else work.task, agent.most_tokens(turn), agent.fixed_tokens
    )


def shape(agent: Agent) -> str:
    """What an epoch depends on: with other tools, another model or another form it cannot go on byte for byte."""
    whole = [agent.system, agent.schemas, agent.config.mind, RENDERER]
    return hashlib.sha256(json.dumps(whole, default=str).encode("utf-8", "surrogatepass")).hexdigest()[:16]
