"""Tidy: a turn's consequences: the conversation has all of it, working memory keeps what stays, the task goes on or rests."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hivemind.masking import mask_values
from hivemind.minds import Turn

if TYPE_CHECKING:
    from hivemind.agent.agent import Agent

_GOING_ROUND = "The same calls have had the same results again and again."
_TOO_LONG = "{turns} turns were taken, and there is no end of it yet."


def tidy(agent: Agent, turn: Turn) -> None:
    """Record the turn, see to it that an answer without calls is gone on from, and tell the scheduler."""
    focus = turn.focus
    if agent.gives_up(turn):
        return
    used = [agent.tools[one.call.tool] for one in turn.results if one.call.tool in agent.tools]
    if focus.work is not None and not focus.work.is_ended and not all(tool.is_read_only for tool in used):
        focus.work.commit()
    if not agent.scheduler.only_looked(turn):
        _record(agent, turn)
        if focus.work is not None:
            focus.work.trace(turn.results, focus.step)
            if not focus.work.is_ended and not agent.works_by_rule(turn):
                _go_on(agent, turn)
        elif focus.message is not None and turn.problem is None and turn.parking is None:
            agent.memory.keep_message(focus.message)
    goes_on = agent.program is not None or (turn.thought is not None and turn.thought.cut)
    if turn.problem is None and turn.parking is None and not turn.results and focus.work is not None and not goes_on:
        turn.problem = "its mind sees nothing to do"
    agent.scheduler.after(turn)
    if focus.message is not None:
        agent.let_go(focus.message)
    ended = focus.id if focus.work is not None and focus.work.is_ended else None
    agent.memory_tidy(ended)
    agent.tell_status(turn)


def _record(agent: Agent, turn: Turn) -> None:
    """What a mind that reads has said stands in the conversation already; a rule's turn is written whole, in one go."""
    focus = turn.focus
    if not agent.works_by_rule(turn):
        return
    if focus.work is None:
        _log_mail(agent, turn)
        return
    thought = turn.thought
    if thought is None or (turn.parking is not None and not turn.results):
        return  # it only looked whether what it waits for has come
    if thought.text or thought.actions:
        step = None if focus.step is None else focus.step.id
        agent.conversation(turn).add_turn(thought, turn.results, step=step)


def _go_on(agent: Agent, turn: Turn) -> None:
    """An answer that led nowhere gets a word; one that goes round in circles, or on for too long, is a person's to judge."""
    talk, thought = agent.conversation(turn), turn.thought
    if thought is not None and thought.cut:
        talk.add_news(
            "Your answer was cut off at its longest. Go on from where it ended, in smaller parts.", cause="continuation"
        )
    elif thought is not None and not thought.actions and turn.parking is None:
        talk.add_news("No tool was called. Call one; if nothing is left to do, finish_task.", cause="correction")
        turn.problem = turn.problem or "its mind called no tool"
    if talk.pending_calls or turn.parking is not None:
        return
    if talk.is_repeating:
        agent.ask_person(turn, _GOING_ROUND)
    elif talk.turns >= agent.max_turns:
        agent.ask_person(turn, _TOO_LONG.format(turns=talk.turns))


def _log_mail(agent: Agent, turn: Turn) -> None:
    """A rule's turn about a letter, for the agent's own log."""
    if turn.thought is None and turn.problem is None:
        return
    record = {
        "kind": "turn", "time": round(time.time(), 3), "agent": agent.name, "about": turn.focus.target,
        "text": "" if turn.thought is None else turn.thought.text, "calls": [one.as_record() for one in turn.results],
    }  # fmt: skip
    if turn.problem is not None:
        record["problem"] = turn.problem
    agent.log.note(mask_values(record))
