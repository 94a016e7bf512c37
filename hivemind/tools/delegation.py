"""Tools that divide a task: subtasks for others, waiting for them, adding to them, ending them (spec 8, *Dividing work*)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

from pydantic import Field

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.fs.doorbell import ring
from hivemind.masking import mask
from hivemind.presence.watching import ring_all
from hivemind.taskrun.waits import Parking, TaskWait, is_over
from hivemind.tasks import Task, TaskState
from hivemind.tasks.folder import read_outcome
from hivemind.tools.path_access import read_bytes, readable
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool

MAX_DEPTH = 3
_MOST = 32
_STEM = 48  # characters of the parent's id in a subtask's
_SHOWN_CHARS = 10_000
_ATTACHED_BYTES = 16 << 20
_MERGING_S = 900


class Subtask(Arguments):
    text: str = Field(min_length=1, description="all that whoever does it must know: it sees nothing else of your task")
    to: str | None = Field(None, description="an agent's name")
    role: str | None = Field(None, description="or a role; default: anyone")
    title: str | None = Field(None, max_length=200)
    depends_on: list[str | int] = Field(
        [], description="what must be done before: titles or numbers (from 1) of others in this call, or ids of tasks"
    )
    attach: list[str] = Field([], description="files that go with it")
    budget: int | None = Field(None, ge=1, description="tokens that it may use up of your task's")


class Delegate(Arguments):
    tasks: list[Subtask] = Field(min_length=1, max_length=_MOST)


class WaitFor(Arguments):
    tasks: list[str] = Field(min_length=1, max_length=_MOST, description="ids, as delegate returns them")
    mode: Literal["any", "all"] = "all"
    timeout_s: float | None = Field(None, gt=0, le=31_536_000)


class SendToTask(Arguments):
    id: str = Field(description="a subtask of yours")
    text: str = Field(min_length=1)


class CancelTask(Arguments):
    id: str = Field(description="a subtask of yours")
    reason: str = ""


class MergeWorktree(Arguments):
    task: str = Field(description="a subtask of yours that is over")
    mark: bool = Field(
        False, description="write what conflicts into your files as well, between marks, for you to edit"
    )


@tool()
def delegate(session: Session, arguments: Delegate) -> dict[str, Any]:
    """Divide your task: make subtasks, which others begin at once, side by side. Returns their ids in the order of `tasks`;
    wait_for returns their results. They end with your task. Another call makes others, and takes nothing away."""
    work, hive = session.work, session.hive
    if len(work.ancestors) >= MAX_DEPTH:
        raise ToolProblem(f"your task is {MAX_DEPTH} subtasks deep already", remedy="do it yourself")
    key = session.call_key("delegate", arguments)
    ids = [_subtask_id(work.task.id, work.attempt, key, number) for number in range(1, len(arguments.tasks) + 1)]
    needed = [_needed(session, arguments.tasks, ids, at) for at in range(len(ids))]
    files = [[_attached(session, path) for path in one.attach] for one in arguments.tasks]
    for one in arguments.tasks:
        check_whom(session, one.to, one.role)
    work.worktrees.commit(f"{work.task.title}: before it is divided")  # subtasks begin from here
    work.delegates(key, ids, session.focus.step)
    for at in _in_order(ids, needed):  # what one depends on is there before it
        one = arguments.tasks[at]
        if not is_made(session, ids[at]):
            hive.tasks.add(
                mask(one.text), by=session.agent, parent=work.task.id, id=ids[at],
                title=None if one.title is None else mask(one.title),
                assignee=one.to, role=one.role, dependencies=needed[at], attachments=files[at], budget=one.budget,
            )  # fmt: skip
    ring_all(hive)
    return {"ids": ids}


@tool()
def wait_for(session: Session, arguments: WaitFor) -> dict[str, Any]:
    """Rest until `any` or `all` of these tasks are over, and get their results. A letter from a person, a question from one
    of them, or what is added to your task wakes you earlier. Make it the last call of your turn."""
    work, hive = session.work, session.hive
    for task_id in arguments.tasks:
        if task_id not in work.task.subtasks:
            hive.tasks.get(task_id)  # there is one
        if task_id in (work.task.id, *(one.id for one in work.ancestors)):
            raise ToolProblem("waits for you", location=task_id)
    wait = work.wait_for(arguments.tasks, arguments.mode, arguments.timeout_s)
    with boundary("wait of a task", work.task.id):
        until = None if wait.until is None else datetime.fromisoformat(wait.until)
    now = datetime.now(UTC)
    news = woken(session, wait)
    if not news and not wait.ends(lambda one: is_over(hive, work.task, one)):
        if until is None or now < until:
            raise Parking(wait.reason, until)
        news = {"timed_out": True}
    results = [_result(session, task_id) for task_id in wait.tasks]
    for one in results:
        if one["task"] in work.task.subtasks and (text := one.get("result") or one.get("error")):
            work.trail.brought(
                one["task"], one["title"], text, None if session.focus.step is None else session.focus.step.id
            )
    work.waited()
    return {"tasks": results, **news}


@tool()
def send_to_task(session: Session, arguments: SendToTask) -> dict[str, Any]:
    """Tell a subtask of yours more: it is added to its text, and whoever works on it goes on with that."""
    task = _own(session, arguments.id)
    session.hive.tasks.say(task.id, arguments.text, by=session.agent, key=session.call_key("send_to_task", arguments))
    return {"task": task.id, "state": task.state.value}


@tool()
def cancel_task(session: Session, arguments: CancelTask) -> dict[str, Any]:
    """End a subtask of yours, and what it has delegated."""
    task = _own(session, arguments.id)
    if session.hive.tasks.listing.is_open(task.id):
        session.hive.tasks.cancel(task.id, by=session.agent, reason=mask(arguments.reason))
        if task.owner is not None:
            ring(session.hive.layout.doorbells, task.owner)
    return {"task": task.id, "state": session.hive.tasks.get(task.id).state.value}


@tool()
def merge_worktree(session: Session, arguments: MergeWorktree) -> dict[str, Any]:
    """Merge what a subtask of yours has done in its worktree into yours. If both changed the same lines nothing is merged, and
    you are told which files conflict."""
    task = _own(session, arguments.task)
    if session.hive.tasks.listing.is_open(task.id):
        raise ToolProblem("is not over yet", location=task.id, remedy="wait_for it first")
    with session.pulse.busy(_MERGING_S):
        return {"merged": session.work.worktrees.merge(task.id, mark=arguments.mark)}


# making them


def _subtask_id(parent: str, attempt: int, key: str, number: int) -> str:
    """The id of a subtask: the same whenever the same call is made in the same attempt."""
    made = hashlib.sha256(f"{parent}\n{attempt}\n{key}".encode()).hexdigest()[:6]
    return f"{parent[:_STEM].rstrip('.')}.{made}.{number}"


def is_made(session: Session, task_id: str) -> bool:
    """Whether an earlier try of the same call has made it. Raises ToolProblem if it is somebody else's."""
    try:
        known = session.hive.tasks.get(task_id)
    except UserError:
        return False  # what is there under that id and is no task is refused when this one is made
    if known.parent != session.work.task.id:
        raise ToolProblem(f"there is a task {task_id} already, which is none of yours")
    return True


def _needed(session: Session, tasks: Sequence[Subtask], ids: Sequence[str], at: int) -> list[str]:
    """The ids of what a subtask depends on. Raises ToolProblem for what there is not."""
    titles = {one.title: made for one, made in zip(tasks, ids, strict=True) if one.title is not None}
    found = []
    for name in tasks[at].depends_on:
        text = str(name).strip()
        if text in titles:
            found.append(titles[text])
        elif text.isdecimal() and len(text) < 4 and 1 <= int(text) <= len(ids):
            found.append(ids[int(text) - 1])
        elif isinstance(name, str):
            found.append(session.hive.tasks.get(text).id)
        else:
            raise ToolProblem(f"depends_on: there is no number {name} in this call", remedy="the first is 1")
    return found


def _in_order(ids: Sequence[str], needed: Sequence[Sequence[str]]) -> list[int]:
    """Their places in an order in which each comes after what it depends on. Raises ToolProblem for a cycle."""
    graph = {at: [ids.index(one) for one in needed[at] if one in ids] for at in range(len(ids))}
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        way = " → ".join(str(at + 1) for at in error.args[1])
        raise ToolProblem(f"they depend on each other in a circle: {way}") from None


def _attached(session: Session, path: str) -> tuple[str, bytes]:
    place = readable(session, path)
    return os.path.basename(path), read_bytes(session, place, _ATTACHED_BYTES)


def check_whom(session: Session, to: str | None, role: str | None, *, other: str = "") -> None:
    """Raises ToolProblem if nobody is who it is for: an agent or a role, of all agents, or of all `other ` ones."""
    agents = {name: one.role for name, one in session.hive.agents.items() if not other or name != session.agent}
    if to is not None and role is not None:
        raise ToolProblem("say to whom: an agent (to), or a role, not both")
    if to is not None and to not in agents:
        raise ToolProblem(f"there is no {other}agent {to!r}", remedy=f"there are {', '.join(agents) or 'none'}")
    roles = sorted({one for one in agents.values() if one})
    if role is not None and role not in roles:
        raise ToolProblem(f"no {other}agent has the role {role!r}", remedy=f"roles: {', '.join(roles) or 'none'}")


def _own(session: Session, task_id: str) -> Task:
    task = session.hive.tasks.get(task_id)
    if task.parent != session.work.task.id:
        raise ToolProblem("is no subtask of yours", location=task_id)
    return task


# their results


def woken(session: Session, wait: TaskWait) -> dict[str, Any]:
    """What ended the wait early: a letter, or what was added to the task; nothing if neither did."""
    work = session.work
    news: dict[str, Any] = {}
    if wait.letter is not None:
        letter = session.hive.mail.read(session.agent, wait.letter, mark=False)
        told = {"id": letter.id, "from": letter.sender, "task": letter.task, "subject": letter.subject}
        news["letter"] = {**told, "body": letter.body[:_SHOWN_CHARS]}
    if len(work.task.said) > wait.said:
        news["added"] = [{"by": one.by, "text": one.text} for one in work.task.said[wait.said :]]
    return news


def _result(session: Session, task_id: str) -> dict[str, Any]:
    """How a task stands; with its result, or why it failed, if it is over."""
    hive = session.hive
    try:
        task = hive.tasks.get(task_id)
    except UserError:
        return {"task": task_id, "state": "gone"}
    told: dict[str, Any] = {"task": task_id, "title": task.title, "state": task.state.value}
    if (text := read_outcome(task.path)) is not None:
        key = "result" if task.state is TaskState.DONE else "error"
        told |= {key: text[:_SHOWN_CHARS], "path": hive.layout.relative(task.path / f"{key}.md")}
    if task.parked is not None:
        told["parked"] = task.parked.reason
    return told


DELEGATION_TOOLS = (delegate, wait_for, send_to_task, cancel_task, merge_worktree)
