"""Build: the conversation that the mind is sent. It is begun with an opening, and after that only grows (spec 8)."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hivemind.agent.opening import RENDERER, letter, message_opening, task_opening, within
from hivemind.config import place_of_key
from hivemind.errors import UserError
from hivemind.mail import Message
from hivemind.minds import ChatMessage, Turn
from hivemind.minds.pictures import PICTURE_TOKENS, picture_part
from hivemind.presence.parts import Parts
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.fold import folded
from hivemind.tasks import Task

if TYPE_CHECKING:
    from hivemind.agent.agent import Agent

__all__ = ["LEAST_ROOM", "build", "new_epoch", "opening_room", "room_of", "tell_news"]

FULL, OPENING = 0.75, 0.5
"""Shares of the agent's `max_tokens`: an epoch's end, and its opening."""
THREAD = 0.4
"""Of an opening's room, at most: the earlier letters of a thread."""
_LETTERS = 4  # for which there is room there, however long they are
LEAST_ROOM = 512
_CACHE_S = 3600.0  # a task that rested for longer begins anew: nothing of it is in a provider's cache any more
_BUDGET_NEWS = 0.8  # of a task's budget
_FEW = 2  # turns for which a new opening would say no less than they do


def new_epoch(agent: Agent, turn: Turn) -> str | None:
    """Why the turn begins an epoch; None if the conversation goes on."""
    talk = agent.conversation(turn)
    if talk.epoch is None:
        return "start"
    if talk.pending:  # they are answered first
        return None
    if talk.epoch.get("shape") != _shape(agent):
        return "changed"
    if agent.program is not None:  # it sees to the length of its sessions itself
        return None
    most, fixed = agent.most_tokens(turn), agent.fixed_tokens
    if agent.tokens_of(talk) - fixed > (FULL * most - fixed if fixed < OPENING * most else FULL * (most - fixed)):
        return "full"
    return "cold" if agent.rested_s(turn) > _CACHE_S and sum(1 for _ in talk.exchanged()) > _FEW else None


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
    elif not talk.pending:
        tell_news(agent, turn, talk)
    turn.messages = talk.messages


def _begin(agent: Agent, turn: Turn, talk: Conversation, cause: str) -> None:
    focus = turn.focus
    selected = agent.selected
    entries = selected.entries if selected is not None else ()
    system = ChatMessage("system", agent.system)
    if focus.work is not None:
        focus.work.worktrees.ready()
        trail, before = focus.work.trail, list(talk.exchanged())
        mind = agent.usages.mind_for(focus.work, talk) if agent.config.graph == "model" else None

        def outline(tokens: int) -> str:
            return folded(trail, focus.title, before, tokens, agent.hive.count_tokens, mind) if before else ""

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
    facts: dict[str, Any] = {"shape": _shape(agent), "mind": agent.config.mind}
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
        told = letter(replace(one, body=body), stranger=not mail.knows(one.sender))
        tokens -= count(told)
        if tokens < 0:
            break
        found.insert(0, told)
    return found


def _pictures(agent: Agent, task: Task, room: int) -> list[dict[str, str]]:
    """The attachments that a mind which takes pictures is shown as such: as many as half of the room has place for."""
    if not agent.takes_pictures:
        return []
    parts = (picture_part(agent.hive.layout.root, path) for path in task.attachments)
    return [one for one in parts if one is not None][: room // (2 * PICTURE_TOKENS)]


def room_of(hive: Parts, name: str, task: Task | None, most: int, fixed: int) -> int:
    """The tokens that an opening may have beside the system message and the tools, which have `fixed`, in a request of `most`.
    Raises UserError that names the budget which leaves too few."""
    if most - fixed >= LEAST_ROOM:
        return max(LEAST_ROOM // 2, int(most * OPENING) - fixed)
    if task is not None and task.max_tokens == most:
        where = hive.layout.relative(task.path / "task.md")
    else:
        where = place_of_key(hive.layout, name, "max_tokens")
    raise UserError(
        f"max_tokens: {most} leaves no room for a turn: tools and rules alone have {fixed} tokens",
        where=where, mend=f"at least {fixed + LEAST_ROOM}, or fewer tools in the agent's file",
    )  # fmt: skip


def opening_room(agent: Agent, turn: Turn) -> int:
    """The same for the opening of a turn."""
    work = turn.focus.work
    return room_of(
        agent.hive, agent.name, None if work is None else work.task, agent.most_tokens(turn), agent.fixed_tokens
    )


def _shape(agent: Agent) -> str:
    """What an epoch depends on: with other tools, another model or another form it cannot go on byte for byte."""
    whole = [agent.system, agent.schemas, agent.config.mind, RENDERER]
    return hashlib.sha256(json.dumps(whole, default=str).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def tell_news(agent: Agent, turn: Turn, talk: Conversation) -> None:
    """Append what happened since that this conversation should know: each thing once, told with where it is from."""
    focus = turn.focus
    if focus.work is None:
        message = focus.message
        if message is not None and not talk.has_letter(message.id) and talk.epoch is not None and talk.turns:
            told = letter(message, stranger=focus.stranger)
            talk.tell(told, agent.pictures_of(message), letter=message.id)
        return
    for number, said in enumerate(focus.work.task.said[talk.said :], talk.said + 1):
        who = "The operator" if said.by == "human" else said.by
        by = "person" if said.by == "human" else said.by
        talk.tell(f"{who} adds to the task:\n\n{said.text.strip()}", said=number, by=by)
    if changed := sorted(agent.read_files.changed(talk, agent.session(turn))):
        talk.tell(f"Changed by someone else since you read it: {', '.join(changed)}.", files=changed)
    most, was_told = agent.config.budget.task.tokens, any((one.news or {}).get("budget") for one in talk.messages)
    if most is not None and not was_told and (spent := focus.work.spent().tokens) >= most * _BUDGET_NEWS:
        talk.tell(f"{spent:,} of the task's {most:,} tokens are used. Come to an end.", budget=True)
    if (lost := focus.work.lost_lease()) is not None:
        focus.work.lease = None
        talk.tell(f"{lost} Look at what has changed.", lease=True)
