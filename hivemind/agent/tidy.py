"""Tidy: record the turn, update working memory, and continue or park the task."""

from __future__ import annotations

import json
import time
from typing import Any

from hivemind.agent.act import ask_operator
from hivemind.agent.metering import MeteredMind
from hivemind.agent.scheduler import Scheduler
from hivemind.agent.working_memory import WorkingMemory
from hivemind.landing.early_warning import note_branches
from hivemind.masking import mask, mask_values
from hivemind.minds import Turn
from hivemind.presence.agent_log import AgentLog
from hivemind.taskrun.conversation import Conversation
from hivemind.tools import ToolContext

_MAX_CHARS, _MAX_CALLS = 200, 3
_GOING_ROUND = "The same calls have had the same results again and again."
_TOO_LONG = "{turns} turns were taken, and the task is not finished."


def tidy(
    turn: Turn,
    context: ToolContext,
    talk: Conversation | None,
    mind: MeteredMind,
    scheduler: Scheduler,
    memory: WorkingMemory,
    log: AgentLog,
) -> None:
    """Record the turn, prompt a mind that made no calls, and apply the consequences.

    `talk` is None for a turn by rule.
    """
    work, message = context.focus.work, context.focus.message
    used_tools = [context.tools[result.call.tool] for result in turn.results if result.call.tool in context.tools]
    is_at_work = work is not None and (work.is_landing or not work.is_ended)
    if work is not None and is_at_work and not all(tool.is_read_only for tool in used_tools):
        if not work.is_ended:
            work.commit()
        note_branches(context.hive, work)
    if not scheduler.only_looked(turn):
        if talk is None:
            _record(turn, context, log)
        elif message is not None and (turn.thought is not None or turn.problem is not None):
            calls = [{"tool": result.call.tool, "ok": result.ok, "error": result.problem} for result in turn.results]
            _note_turn(turn, context, log, thread=message.thread_id, calls=calls)
        if work is not None:
            work.note_actions(turn.results, context.focus.step)
            if talk is not None and not work.is_ended:
                _prompt_again(turn, context, talk, mind)
        elif message is not None and turn.problem is None and turn.parking is None:
            memory.keep_message(message)
    goes_on = mind.program is not None or (turn.thought is not None and turn.thought.cut)
    if turn.problem is None and turn.parking is None and not turn.results and work is not None and not goes_on:
        turn.problem = "its mind sees no work to do"
    scheduler.end_turn(turn)
    if work is not None and work.is_ended:
        memory.forget_task(context.focus.id)


def _record(turn: Turn, context: ToolContext, log: AgentLog) -> None:
    """Write a turn by rule at once: to the task's conversation, or to the agent's log if the turn is about a letter."""
    focus, thought = context.focus, turn.thought
    if focus.work is None:
        if thought is not None or turn.problem is not None:
            text = "" if thought is None else thought.text
            _note_turn(turn, context, log, text=text, calls=[result.as_record() for result in turn.results])
        return
    if thought is None or (turn.parking is not None and not turn.results):
        return  # it only looked whether its wait is over
    if thought.text or thought.actions:
        focus.work.conversation.add_turn(thought, turn.results, step=None if focus.step is None else focus.step.id)


def _note_turn(turn: Turn, context: ToolContext, log: AgentLog, **fields: Any) -> None:
    """Note a turn about a letter in the agent's log. If the mind reads conversations, the entry only names the `thread`: its
    log has the rest."""
    traceparent = None if context.focus.message is None else context.focus.message.traceparent
    optional_fields = {"problem": turn.problem, "traceparent": traceparent}
    log.note(mask_values({
        "kind": "turn", "time": round(time.time(), 3), "seconds": round(turn.seconds, 3), "agent": context.agent,
        "about": context.focus.subject, **fields,
        **{name: text for name, text in optional_fields.items() if text is not None},
    }))  # fmt: skip


def _prompt_again(turn: Turn, context: ToolContext, talk: Conversation, mind: MeteredMind) -> None:
    """Prompt a mind whose answer was cut off or had no calls. Ask the operator if the mind repeats itself, or takes too many
    turns."""
    thought = turn.thought
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
        calls = (
            f"{mask(f'{result.call.tool} {json.dumps(dict(result.call.arguments))}')[:_MAX_CHARS]}"
            f"{f': {result.problem}'[:_MAX_CHARS] if result.problem else ''}"
            for result in turn.results[:_MAX_CALLS]
        )
        ask_operator(turn, context, talk, f"{_GOING_ROUND} ({'; '.join(calls)})")
    elif talk.turns >= mind.max_turns(context.config):
        ask_operator(turn, context, talk, _TOO_LONG.format(turns=talk.turns))
