"""The questions for which a task waits, if the person in the editor can answer them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.hive import Hive
from hivemind.landing.queue import approve
from hivemind.layout import HUMAN
from hivemind.presence.identity import holder_pid
from hivemind.presence.watching import agent_problems, supervisor_lock
from hivemind.swarm.until_idle import claim_obstacle, has_addition
from hivemind.taskrun.replies import read_permission
from hivemind.taskrun.waits import StepWaits, TaskWait, find_question
from hivemind.tasks import Task, TaskState, landing_state

_PROPOSED_ANSWERS = re.compile(r"\bAnswer `[^`\n]{1,60}`(?:(?:,| or|, or) `[^`\n]{1,60}`)*")


@frozen
class Choice:
    """One way to answer a question: its label, its kind in the protocol, and the action. If `act` is None, the person answers in
    words."""

    name: str
    kind: str
    act: Callable[[], object] | None = None


@frozen
class Question:
    """A matter that waits for the person. `key` identifies it; `letter_id` is the letter that an answer replies to."""

    key: str
    text: str
    choices: tuple[Choice, ...] = ()
    letter_id: str | None = None


def question_of(hive: Hive, task: Task) -> Question | None:
    """Return the question for which an active task waits; None while it can work without the person."""
    landing, parked = landing_state(task), task.parked
    if parked is None or landing == "lands":
        return None
    if has_addition(task):  # its agent continues with that
        return None
    if landing is not None:
        return _landing_question(hive, task, landing)
    letter = find_question(hive, parked.reason)
    if letter is not None:
        if "R" in letter.flags:  # its agent has not read the answer yet
            return None
        text = letter.body.partition("\n\n(Task ")[0]
        return Question(letter.id, text, tuple(_letter_choices(hive, letter.id, text)), letter.id)
    step_waits = StepWaits(task.kept.get("waits"), lambda _: None)
    awaited = (parked.until, TaskWait.of(task.kept.get("wait_for")), step_waits.awaited_task(parked.reason))
    is_awaiting = any(condition is not None for condition in awaited)
    return None if is_awaiting else Question(parked.reason, f"It is parked: {parked.reason}")


def _letter_choices(hive: Hive, letter_id: str, text: str) -> Iterator[Choice]:
    """Yield the answers that a letter proposes, such as `once`, `always` and `deny`, and a last choice to answer in words."""
    if (proposal := _PROPOSED_ANSWERS.search(text)) is None:
        return
    for answer in proposal[0].split("`")[1::2]:
        verdict, lasts, _ = read_permission(answer) or ("allow", "once", "")
        kind = "reject_once" if verdict == "deny" else "allow_always" if lasts == "task" else "allow_once"
        yield Choice(answer, kind, partial(reply, hive, letter_id, answer))
    yield Choice("Answer in words", "reject_once")


def reply(hive: Hive, letter_id: str, text: str) -> None:
    """Answer a letter for the person. Raises UserError if the answer cannot be delivered."""
    if failed := hive.mail.reply(HUMAN, letter_id, f"{text}\n").failed:
        raise UserError("; ".join(f"not delivered to {name}: {reason}" for name, reason in failed.items()))


def _landing_question(hive: Hive, task: Task, reason: str) -> Question:
    text = f"The work is done, and is not in its branch yet: {reason}"
    if f"hivemind land {task.id}" not in reason:
        return Question(reason, text)
    landing = Choice("Let it land", "allow_once", partial(approve, hive, task.id))
    text = f"{text}\n\nIts changes: `hivemind task diff {task.id}`"
    return Question(reason, text, (landing, Choice("Not now", "reject_once")))


def obstacle_of(hive: Hive, task: Task) -> str | None:
    """Return why nobody works on a task now, and what to do about it; None if somebody may."""
    locks = hive.layout.locks
    is_up = supervisor_lock(locks).holder() is not None
    if is_up and task.state is not TaskState.INBOX:
        problem = agent_problems(locks).get(task.owner or "")
        return None if problem is None else f"The agent {task.owner} cannot work: {problem}"
    running = [name for name in hive.agents if holder_pid(hive.layout, name) is not None]
    if not is_up and not running:
        command = f"hivemind --hive {hive.layout.root} up"
        return f"No swarm is running in this hive, so nobody works on the task. Start one in a terminal: `{command}`"
    if task.state is TaskState.INBOX and running:
        with suppress(UserError):  # it is claimed meanwhile
            reason = hive.tasks.listing.waiting_for(task.id) or claim_obstacle(hive, task, running)
            return None if reason is None else f"The task waits: {reason}"
    return None
