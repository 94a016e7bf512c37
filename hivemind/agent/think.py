"""Think: ask the mind, within the budgets (spec 7)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from hivemind.agent.build import build
from hivemind.agent.program import run_program
from hivemind.agent.select import select
from hivemind.minds import ContextTooLong, Thought, Turn

if TYPE_CHECKING:
    from hivemind.agent.agent import Agent

_SMALLER = 3
_log = logging.getLogger(__name__)


def think(agent: Agent, turn: Turn) -> None:
    """Ask the mind for a thought, durable before any of its calls is made. Calls that were asked for and have no result yet
    (the process ended, the task rested) are taken up instead. A coding agent is run, and makes its calls meanwhile.

    A conversation that was too long for the mind is begun anew, shorter. Raises Parking if a budget is used up,
    MindUnavailable if what the mind needs is down, MindError if its answer is none.
    """
    if turn.focus.blocked is not None:
        agent.take_lease(turn.focus)  # raises Parking: what stands in the way is another's to mend
    if agent.works_by_rule(turn):
        thought = agent.rule.think(turn, ())  # it knows its tools
        turn.thought = replace(thought, seconds=turn.seconds)
        return
    talk = agent.conversation(turn)
    if talk.pending_calls:
        turn.thought, turn.taken_up = Thought(actions=tuple(talk.pending_calls)), True
        return
    if agent.program is not None:
        run_program(agent, turn, agent.program)
        return
    for tried in range(_SMALLER + 1):
        try:
            thought = agent.usages.think(turn, agent.schemas, turn.focus.work, talk)
            break
        except ContextTooLong as error:
            if tried == _SMALLER:
                raise
            _log.warning("%s: %s; begun anew with half", agent.name, error)
            agent.shorten(turn, talk)
            select(agent, turn)
            build(agent, turn)
    step = turn.focus.step
    thought = replace(thought, seconds=turn.seconds)
    said = talk.answer(thought, step=None if step is None else step.id, request=agent.usages.request)
    agent.asked |= {call.id for call in said.calls}
    turn.thought = replace(thought, actions=said.calls)
