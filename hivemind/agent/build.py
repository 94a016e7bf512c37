"""Build: the conversation that the mind is sent. It is begun with an opening, and after that only grows (spec 8)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hivemind.agent.news import tell_news
from hivemind.agent.opening import letter, message_opening, task_opening, within
from hivemind.agent.select import opening_room, shape
from hivemind.mail import Message
from hivemind.minds import ChatMessage, Turn
from hivemind.minds.pictures import PICTURE_TOKENS, describe_picture
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.fold import fold_conversation
from hivemind.tasks import Task

if TYPE_CHECKING:
    from hivemind.agent.agent import Agent

THREAD = 0.4
"""Of an opening's room, at most: the earlier letters of a thread."""
_LETTERS = 4  # for which there is room there, however long they are


def build(agent: Agent, turn: Turn) -> None:
    """Begin an epoch with an opening, or append the news; `turn.messages` is the conversation then.

    Raises UserError if the budget leaves no room for a turn, Parking if what is to be folded is in another's hands.
    """
    if agent.works_by_rule(turn):
        return
    talk = agent.conversation(turn)
    cause = turn.epoch
    if cause is not None:
        _begin(agent, turn, talk, cause)
    elif not talk.pending_calls:
        tell_news(agent, turn, talk)
    turn.messages = talk.messages


def _begin(agent: Agent, turn: Turn, talk: Conversation, cause: str) -> None:
    focus = turn.focus
    selected = agent.selected
    entries = selected.entries if selected is not None else ()
    system = ChatMessage("system", agent.system)
    if focus.work is not None:
        focus.work.worktrees.ready()
        trail, before = focus.work.trail, list(talk.turn_messages())
        mind = agent.usages.mind_for(focus.work, talk) if agent.config.graph == "model" else None

        def outline(tokens: int) -> str:
            return (
                fold_conversation(trail, focus.title, before, tokens, agent.hive.count_tokens, mind) if before else ""
            )

        room = opening_room(agent, turn)
        pictures = _pictures(agent, focus.work.task, room)
        text = task_opening(
            agent.hive, focus.work, agent.config, entries, room - len(pictures) * PICTURE_TOKENS, outline
        )
    else:
        assert focus.message is not None
        pictures = agent.pictures_of(focus.message)
        earlier = _earlier(agent, focus.message, int(opening_room(agent, turn) * THREAD))
        text = message_opening(focus.message, entries, earlier, stranger=focus.stranger)
    facts: dict[str, Any] = {"shape": shape(agent), "mind": agent.config.mind}
    if selected is not None:
        facts["selected"] = selected.reasons()
    news = {"letter": focus.message.id} if focus.work is None else {"said": len(focus.work.task.said)}
    talk.begin(cause, [system, ChatMessage("user", text, parts=tuple(pictures), news=news)], **facts)


def _earlier(agent: Agent, message: Message, tokens: int) -> list[str]:
    """The letters before it in its thread, sent and received: the newest that fit into so many tokens, oldest first."""
    found: list[str] = []
    count, mail = agent.hive.count_tokens, agent.hive.mail
    before = itertools.takewhile(lambda one: one.id != message.id, mail.thread(agent.name, message.id))
    each = tokens // _LETTERS
    for one in reversed([*before]):
        body = within(one.body, each, count, f"read_file(path={one.path!r})")
        told = letter(replace(one, body=body), stranger=not mail.is_known_sender(one.sender))
        tokens -= count(told)
        if tokens < 0:
            break
        found.insert(0, told)
    return found


def _pictures(agent: Agent, task: Task, room: int) -> list[dict[str, str]]:
    """The attachments that a mind which takes pictures is shown as such: as many as half of the room has place for."""
    if not agent.takes_pictures:
        return []
    parts = (describe_picture(agent.hive.layout.root, path) for path in task.attachments)
    return [one for one in parts if one is not None][: room // (2 * PICTURE_TOKENS)]
