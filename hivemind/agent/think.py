"""Think: ask the mind, within the budgets."""

from __future__ import annotations

from dataclasses import replace

from hivemind.agent.lease import FocusLease
from hivemind.agent.metering import MeteredMind
from hivemind.agent.program import ProgramRunner
from hivemind.agent.window import ContextWindow
from hivemind.minds import Thought, Turn
from hivemind.tools import ToolContext


def think(
    turn: Turn,
    context: ToolContext,
    window: ContextWindow | None,
    mind: MeteredMind,
    lease: FocusLease,
    runner: ProgramRunner,
) -> Thought | None:
    """Ask the mind for a thought, and write the thought to disk before its calls are made. Without a `window` the mind works by
    rule.

    If earlier calls have no result (the process ended, or the task was parked), return these calls instead of asking. A coding
    agent makes its calls while it runs: return only the call that ends its task, or None.

    Raises Parking if a step is blocked or a budget is used up, MindUnavailable if the mind is down, ContextTooLong or SessionLost
    if the conversation has to begin again, MindError if the answer cannot be used.
    """
    if context.focus.blocked is not None:
        lease.take(context.focus)  # raises Parking: only others can unblock it
    if window is None:
        return replace(mind.rule.think(turn, ()), seconds=turn.seconds)  # it knows its tools
    talk, step = window.talk, context.focus.step
    if talk.pending_calls:
        turn.taken_up = True
        return Thought(actions=tuple(talk.pending_calls))
    if mind.program is not None:
        return runner.run(turn, context, window)
    thought = replace(mind.think(turn, window.schemas, context.focus.work, talk), seconds=turn.seconds)
    answer = talk.answer(thought, step=None if step is None else step.id, request=mind.request)
    return replace(thought, actions=answer.calls)
