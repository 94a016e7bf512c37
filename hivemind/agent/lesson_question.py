"""Learning at the end of a task: note which texts of the task's openings (the first messages of each epoch) were used, and ask
the mind once for lessons."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from hivemind.agent.metering import MeteredMind
from hivemind.agent.program import ProgramRunner
from hivemind.agent.relevance import learn_use
from hivemind.agent.window import ContextWindow
from hivemind.errors import HivemindError
from hivemind.lessons.admission import QUESTION
from hivemind.lessons.learning import learn
from hivemind.minds import ChatMessage, ToolResult, Turn
from hivemind.minds.command import CommandMind
from hivemind.minds.language import LanguageMind
from hivemind.tools import ToolContext

_ASK_S = 900
_log = logging.getLogger(__name__)


def learn_from(
    turn: Turn, context: ToolContext, window: ContextWindow | None, mind: MeteredMind, runner: ProgramRunner
) -> None:
    """Learn from a task that has ended in this turn. If that fails, log the error: the task has ended all the same.

    Only language models, programs that think (`mind: {command: …}`) and coding agents are asked for lessons. A model gets one
    short request on the cached conversation. This request has the cause `lesson` and is booked on the day's budgets, because the
    task's account is closed.
    """
    work, config = context.focus.work, context.hive.config
    if work is None or not work.is_ended or config.lessons == config.relevance == "off":
        return

    def ask_model(window: ContextWindow) -> str:
        for call in window.talk.pending_calls:  # the process died before it could note that they ended the task
            window.talk.result(ToolResult(call, "The task is over."))
        question = ChatMessage("user", QUESTION, news={"cause": "lesson"})
        question_turn = Turn(turn.agent, turn.focus, messages=[*window.talk.messages, question])
        model = mind.mind_for(None, window.talk)
        if isinstance(model, LanguageMind):
            # the next task does not wait for a provider that is down
            model.patience = replace(model.patience, max_tries=1)
        return model.think(question_turn, window.schemas).text

    ask = None
    if window is not None and config.lessons == "ask":
        if mind.program is not None:
            ask = partial(runner.ask, QUESTION, context, window)
        elif isinstance(mind.mind, LanguageMind | CommandMind):
            ask = partial(ask_model, window)
    parts = {
        partial(learn_use, context.hive, work): config.relevance,
        partial(learn, context.hive, work, ask): config.lessons,
    }
    for learn_part, setting in parts.items():
        try:
            with context.pulse.busy(_ASK_S):
                if setting != "off":
                    learn_part()
        except (HivemindError, OSError) as error:
            _log.warning("%s: not all is learned from %s: %s", context.agent, work.task.id, error)
        except Exception:  # the boundary of learning: the task has ended, and a fault must not delay the next one
            _log.exception("%s: learning from %s broke", context.agent, work.task.id)
