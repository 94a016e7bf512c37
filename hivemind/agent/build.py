"""Build: the conversation that is sent to the mind. It begins with an opening; after that, messages are only appended."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hivemind.agent.metering import MeteredMind
from hivemind.agent.news import News
from hivemind.agent.opening import KNOWN, LESSONS, letter, message_opening, shorten_to, task_opening
from hivemind.agent.select import NewEpoch
from hivemind.agent.window import ContextWindow
from hivemind.lessons.choice import choose, count_shown, lesson_block
from hivemind.mail import Message
from hivemind.minds import ChatMessage
from hivemind.minds.pictures import PICTURE_TOKENS
from hivemind.presence.parts import Parts
from hivemind.taskrun.conversation_fold import fold_conversation
from hivemind.tools import ToolContext

THREAD = 0.4
"""The share of an opening that the earlier letters of a thread may have."""
_LETTERS = 4  # fit at least: longer ones are shortened


def build(
    context: ToolContext, window: ContextWindow, epoch: NewEpoch | None, news: News, mind: MeteredMind
) -> Sequence[ChatMessage]:
    """Begin the `epoch` with its opening, or append the news if it is None. Return the messages of the conversation.

    Raises UserError if the budget leaves no room for a turn, Parking if nodes of the task's graph must be folded and another
    agent holds them.
    """
    if epoch is not None:
        _begin(context, window, epoch, news, mind)
    elif not window.talk.pending_calls:
        news.tell(context, window)
    return window.talk.messages


def _begin(context: ToolContext, window: ContextWindow, epoch: NewEpoch, news: News, mind: MeteredMind) -> None:
    focus, entries, shown = context.focus, epoch.selected.entries, list[dict[str, Any]]()
    system = ChatMessage("system", window.system)
    if focus.work is not None:
        trail, before = focus.work.trail, list(window.talk.turn_messages())
        folding_mind = mind.mind_for(focus.work, window.talk) if context.config.graph == "model" else None

        def outline(tokens: int) -> str:
            if not before:
                return ""
            return fold_conversation(trail, focus.title, before, tokens, context.hive.count_tokens, folding_mind)

        pictures = news.pictures.of_task(focus.work.task, window.opening_room)
        room = window.opening_room - len(pictures) * PICTURE_TOKENS
        relevance = epoch.selected.relevance
        lessons = choose(context.hive, focus.work, context.config, relevance.factor)
        text = task_opening(context.hive, focus.work, context.config, entries, room, outline, lessons)
        if f"## {LESSONS}\n" in text:
            count_shown(context.hive, focus.work, lessons)
            shown += relevance.record(map(lesson_block, lessons))
        if f"## {KNOWN}\n" in text:
            shown += relevance.record(epoch.selected.blocks)
        marks: dict[str, Any] = {"said": len(focus.work.task.said)}
    else:
        pictures = news.pictures.of_letter(context.message)
        earlier = _earlier(context.hive, context.agent, context.message, int(window.opening_room * THREAD))
        text = message_opening(context.message, entries, earlier, stranger=focus.stranger)
        marks = {"letter": context.message.id}
    window.talk.begin(
        epoch.cause, [system, ChatMessage("user", text, parts=tuple(pictures), news=marks)],
        shape=window.shape, mind=context.config.mind, selected=epoch.selected.reasons(), shown=shown,
    )  # fmt: skip


def _earlier(hive: Parts, name: str, message: Message, tokens: int) -> list[str]:
    """Return the earlier letters of the message's thread, sent and received. Take the newest that fit into `tokens` tokens, and
    list them oldest first."""
    letters: list[str] = []
    count, mail = hive.count_tokens, hive.mail
    earlier_messages = itertools.takewhile(lambda candidate: candidate.id != message.id, mail.thread(name, message.id))
    max_letter_tokens = tokens // _LETTERS
    for earlier_message in reversed([*earlier_messages]):
        body = shorten_to(earlier_message.body, max_letter_tokens, count, f"read_file(path={earlier_message.path!r})")
        text = letter(replace(earlier_message, body=body), stranger=not mail.is_known_sender(earlier_message.sender))
        tokens -= count(text)
        if tokens < 0:
            break
        letters.insert(0, text)
    return letters
