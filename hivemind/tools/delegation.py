"""Tools that divide a task: create subtasks for other agents, wait for subtasks, add text, cancel, merge their work."""

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
from hivemind.landing.subtasks import land_subtasks
from hivemind.masking import mask
from hivemind.presence.watching import ring_all
from hivemind.taskrun.waits import Parking, TaskWait, is_over
from hivemind.tasks import Task, TaskState
from hivemind.tasks.folder import read_outcome
from hivemind.tools.path_access import read_bytes, readable
from hivemind.tools.tool import Arguments, ToolProblem, tool
from hivemind.tools.tool_context import ToolContext

MAX_DEPTH = 3
_MAX_TASKS = 32
_STEM = 48  # characters of the parent's id in a subtask's
_SHOWN_CHARS = 10_000
_ATTACHED_BYTES = 16 << 20


class Subtask(Arguments):
    text: str = Field(
        min_length=1, description="everything that the other agent must know; this text is all it sees of your task"
    )
    to: str | None = Field(None, description="an agent's name")
    role: str | None = Field(None, description="or a role; default: anyone")
    title: str | None = Field(None, max_length=200)
    depends_on: list[str | int] = Field(
        [], description="subtasks that must be done first: titles or numbers (from 1) in this call, or ids of tasks"
    )
    attach: list[str] = Field([], description="paths of files to attach")
    budget: int | None = Field(None, ge=1, description="tokens of your task's budget that the subtask may use")


class Delegate(Arguments):
    tasks: list[Subtask] = Field(min_length=1, max_length=_MAX_TASKS)


class WaitFor(Arguments):
    tasks: list[str] = Field(min_length=1, max_length=_MAX_TASKS, description="ids, as delegate returns them")
    mode: Literal["any", "all"] = "all"
    timeout_s: float | None = Field(None, gt=0, le=31_536_000)


class SendToTask(Arguments):
    id: str = Field(description="a subtask of yours")
    text: str = Field(min_length=1)


class CancelTask(Arguments):
    id: str = Field(description="a subtask of yours")
    reason: str = ""


@tool()
def delegate(context: ToolContext, arguments: Delegate) -> dict[str, Any]:
    """Divide your task: create subtasks, which other agents start at once, in parallel. Returns their ids in the order of
    `tasks`; wait_for returns their results. Subtasks end with your task. Another call adds more subtasks."""
    work, hive = context.work, context.hive
    if len(work.ancestors) >= MAX_DEPTH:
        raise ToolProblem(f"your task is {MAX_DEPTH} subtasks deep already", remedy="do it yourself")
    key = context.call_key("delegate", arguments)
    ids = [_subtask_id(work.task.id, work.attempt, key, number) for number in range(1, len(arguments.tasks) + 1)]
    dependencies = [_dependency_ids(context, arguments.tasks, ids, at) for at in range(len(ids))]
    files = [[_attachment(context, path) for path in subtask.attach] for subtask in arguments.tasks]
    for subtask in arguments.tasks:
        check_recipient(context, subtask.to, subtask.role)
    work.worktrees.begin()
    work.worktrees.commit(f"{work.task.title}: before it is divided")  # subtasks start from this commit
    work.record_subtasks(key, ids, context.focus.step)
    for at in _dependency_order(ids, dependencies):  # dependencies are added first
        subtask = arguments.tasks[at]
        if not is_created(context, ids[at]):
            hive.tasks.add(
                mask(subtask.text), by=context.agent, parent=work.task.id, id=ids[at],
                title=None if subtask.title is None else mask(subtask.title),
                assignee=subtask.to, role=subtask.role, dependencies=dependencies[at], attachments=files[at],
                budget=subtask.budget, traceparent=work.task.traceparent,
            )  # fmt: skip
    ring_all(hive)
    return {"ids": ids}


@tool()
def wait_for(context: ToolContext, arguments: WaitFor) -> dict[str, Any]:
    """Pause until `any` or `all` of these tasks are over, and get their results. A letter from a person, a question from one
    of the tasks, or text added to your task wakes you earlier. Make wait_for the last call of your turn."""
    work, hive = context.work, context.hive
    land_subtasks(hive, work)
    for task_id in arguments.tasks:
        if task_id not in work.task.subtasks:
            hive.tasks.get(task_id)  # raises if the task does not exist
        if task_id in (work.task.id, *(ancestor.id for ancestor in work.ancestors)):
            raise ToolProblem("waits for you", location=task_id)
    wait = work.wait_for(arguments.tasks, arguments.mode, arguments.timeout_s)
    with boundary("wait of a task", work.task.id):
        until = None if wait.until is None else datetime.fromisoformat(wait.until)
    now = datetime.now(UTC)
    news = early_news(context, wait)
    if not news and not wait.ends(lambda awaited_id: is_over(hive, work.task, awaited_id)):
        if until is None or now < until:
            raise Parking(wait.reason, until)
        news = {"timed_out": True}
    results = [_result(context, task_id) for task_id in wait.tasks]
    for result in results:
        if result["task"] in work.task.subtasks and (text := result.get("result") or result.get("error")):
            work.trail.add_subtask_result(
                result["task"], result["title"], text, None if context.focus.step is None else context.focus.step.id
            )
    work.end_wait()
    return {"tasks": results, **news}


@tool()
def send_to_task(context: ToolContext, arguments: SendToTask) -> dict[str, Any]:
    """Add text to a subtask of yours. The agent that works on it takes the text into account."""
    task = _own_subtask(context, arguments.id)
    context.hive.tasks.say(task.id, arguments.text, by=context.agent, key=context.call_key("send_to_task", arguments))
    return {"task": task.id, "state": task.state.value}


@tool()
def cancel_task(context: ToolContext, arguments: CancelTask) -> dict[str, Any]:
    """Cancel a subtask of yours, together with its own subtasks."""
    task = _own_subtask(context, arguments.id)
    if context.hive.tasks.listing.is_open(task.id):
        context.hive.tasks.cancel(task.id, by=context.agent, reason=mask(arguments.reason))
        if task.owner is not None:
            ring(context.hive.layout.doorbells, task.owner)
    return {"task": task.id, "state": context.hive.tasks.get(task.id).state.value}


# Creation


def _subtask_id(parent: str, attempt: int, key: str, number: int) -> str:
    """Return the id of a subtask. A repeated call in the same attempt gets the same ids."""
    digest = hashlib.sha256(f"{parent}\n{attempt}\n{key}".encode()).hexdigest()[:6]
    return f"{parent[:_STEM].rstrip('.')}.{digest}.{number}"


def is_created(context: ToolContext, task_id: str) -> bool:
    """Return True if an earlier try of this call created the subtask. Raises ToolProblem if the id has another parent."""
    try:
        task = context.hive.tasks.get(task_id)
    except UserError:
        return False  # adding the task refuses an id that is in use by a damaged task
    if task.parent != context.work.task.id:
        raise ToolProblem(f"there is already a task {task_id}, which is not a subtask of yours")
    return True


def _dependency_ids(context: ToolContext, tasks: Sequence[Subtask], ids: Sequence[str], at: int) -> list[str]:
    """Return the ids of the dependencies of the subtask at index `at`. Raises UserError for an unknown task."""
    titles = {subtask.title: task_id for subtask, task_id in zip(tasks, ids, strict=True) if subtask.title is not None}
    dependency_ids = []
    for name in tasks[at].depends_on:
        text = str(name).strip()
        if text in titles:
            dependency_ids.append(titles[text])
        elif text.isdecimal() and len(text) < 4 and 1 <= int(text) <= len(ids):
            dependency_ids.append(ids[int(text) - 1])
        elif isinstance(name, str):
            dependency_ids.append(context.hive.tasks.get(text).id)
        else:
            raise ToolProblem(f"depends_on: this call has no subtask {name}", remedy="count them from 1")
    return dependency_ids


def _dependency_order(ids: Sequence[str], dependencies: Sequence[Sequence[str]]) -> list[int]:
    """Return the indexes of the subtasks, each after its dependencies. Raises ToolProblem for a cycle."""
    graph = {
        at: [ids.index(dependency) for dependency in dependencies[at] if dependency in ids] for at in range(len(ids))
    }
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        cycle = " → ".join(str(at + 1) for at in error.args[1])
        raise ToolProblem(f"the subtasks depend on each other in a cycle: {cycle}") from None


def _attachment(context: ToolContext, path: str) -> tuple[str, bytes]:
    place = readable(context, path)
    return os.path.basename(path), read_bytes(context, place, _ATTACHED_BYTES)


def check_recipient(context: ToolContext, to: str | None, role: str | None, *, qualifier: str = "") -> None:
    """Raise ToolProblem unless there is an agent named `to` or, if that is None, one with the role. The qualifier "other "
    excludes the calling agent."""
    agents = {name: agent.role for name, agent in context.hive.agents.items() if not qualifier or name != context.agent}
    if to is not None and role is not None:
        raise ToolProblem("name an agent (to) or a role, not both")
    if to is not None and to not in agents:
        raise ToolProblem(f"there is no {qualifier}agent {to!r}", remedy=f"there are {', '.join(agents) or 'none'}")
    roles = sorted({agent_role for agent_role in agents.values() if agent_role})
    if role is not None and role not in roles:
        raise ToolProblem(f"no {qualifier}agent has the role {role!r}", remedy=f"roles: {', '.join(roles) or 'none'}")


def _own_subtask(context: ToolContext, task_id: str) -> Task:
    task = context.hive.tasks.get(task_id)
    if task.parent != context.work.task.id:
        raise ToolProblem("is not a subtask of yours", location=task_id)
    return task


# Results


def early_news(context: ToolContext, wait: TaskWait) -> dict[str, Any]:
    """Return the news that ends the wait early, a letter or text added to the task; an empty dict without news."""
    work = context.work
    news: dict[str, Any] = {}
    if wait.letter is not None:
        letter = context.hive.mail.read(context.agent, wait.letter, mark=False)
        header = {"id": letter.id, "from": letter.sender, "task": letter.task, "subject": letter.subject}
        news["letter"] = {**header, "body": letter.body[:_SHOWN_CHARS]}
    if len(work.task.said) > wait.said:
        news["added"] = [{"by": addition.by, "text": addition.text} for addition in work.task.said[wait.said :]]
    return news


def _result(context: ToolContext, task_id: str) -> dict[str, Any]:
    """Return a task's state, and the text of its result or error once the task is over."""
    hive = context.hive
    try:
        task = hive.tasks.get(task_id)
    except UserError:
        return {"task": task_id, "state": "gone"}
    fields: dict[str, Any] = {"task": task_id, "title": task.title, "state": task.state.value}
    if (text := read_outcome(task.path)) is not None:
        key = "result" if task.state is TaskState.DONE else "error"
        fields |= {key: text[:_SHOWN_CHARS], "path": hive.layout.relative(task.path / f"{key}.md")}
    if task.parked is not None:
        fields["parked"] = task.parked.reason
    return fields


DELEGATION_TOOLS = (delegate, wait_for, send_to_task, cancel_task)
