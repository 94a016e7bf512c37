"""Whether a swarm can do anything more, judged by what lies on the disk (`hivemind up --until-idle`)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.layout import EXCHANGE, Layout
from hivemind.presence.identity import holder_of
from hivemind.presence.parts import Parts
from hivemind.presence.status import AgentStatus, read_status
from hivemind.swarm.absence import absences
from hivemind.tasks import BEING_WRITTEN, TaskState, TaskSummary

_ROOM_BYTES = 16_384
SHORT_WAIT = timedelta(seconds=60)
"""A task that waits for a time no further off than this (or than a review may take) is waited for; a later one is parked.
So is a file that came no longer ago than this and is still being written."""


@frozen
class Survey:
    """`busy`: what can still go on (empty: the swarm is idle). `parked`: (task, why) of what waits for something else."""

    busy: tuple[str, ...]
    parked: tuple[tuple[str, str], ...] = ()


def survey(hive: Parts, names: Collection[str]) -> Survey:
    """Look at the agents first, which is cheap, and at the folders only if all of them are idle."""
    from hivemind.mail import count_waiting  # late: whoever only asks why a task waits needs neither room
    from hivemind.taskrun.waits import DISK_FULL

    states: dict[str, AgentStatus] = {}
    for name in names:
        status = read_status(hive.layout.agent_state(name), name)
        if status is None or not status.rests:
            return Survey((f"agent {name}",))
        states[name] = status
    busy: list[str] = []
    stuck = {name: f"{name} is stuck: {status.problem}" for name, status in states.items() if status.problem}
    soon = datetime.now(UTC) + max(SHORT_WAIT, timedelta(seconds=hive.config.review_timeout_s))
    parked: list[tuple[str, str]] = [(f"agent {name}", why) for name, why in stuck.items()]
    names = [name for name in names if name not in stuck]
    for name in names:
        if count_waiting(hive.mail, name, hive.layout.agent_state(name)):
            why = _mail_rests(states[name], soon)
            parked.append((f"mail for {name}", why)) if why else busy.append(f"mail for {name}")
    active = hive.tasks.list(TaskState.ACTIVE)
    held = Counter(task.owner for task in active)
    for task in hive.tasks.listing.list_waiting():
        if task.waiting == BEING_WRITTEN and datetime.now(UTC) - task.since < SHORT_WAIT:
            busy.append(f"task {task.id} is being written")
            continue
        why = task.waiting or nobody_for(hive, task, names)
        if why is None and not any(_could_take(hive, name, task, held) for name in names):
            why = (
                DISK_FULL
                if is_full(hive.layout)
                else "the agents that may claim it have max_active tasks in hand already"
            )
        parked.append((task.id, why)) if why else busy.append(f"task {task.id} waits to be claimed")
    back = {
        task for absence in absences(hive) if absence.left_s <= SHORT_WAIT.total_seconds() for task in absence.tasks
    }
    for task in active:
        if task.id in back:
            busy.append(f"task {task.id} goes back to the inbox")
            continue
        rest = task.parked
        if task.owner == EXCHANGE and rest is not None:  # another hive works on it, or may; else a person is asked
            waits = rest.until is None or not hive.linked.is_linked or hive.linked.away is not None
            parked.append((task.id, rest.reason)) if waits else busy.append(f"task {task.id}: {rest.reason}")
            continue
        if task.owner not in names:
            why = "nobody has claimed it: hivemind doctor --fix moves it to the inbox"
            if task.owner is not None:
                why = stuck.get(task.owner, f"its agent {task.owner} is not running")
            parked.append((task.id, why))
            continue
        if rest is None or (rest.until is not None and rest.until <= soon) or _is_answered(hive, task.id):
            busy.append(f"task {task.id}")
        else:
            parked.append((task.id, rest.reason))
    return Survey(tuple(busy), tuple(parked))


def _is_answered(hive: Parts, task_id: str) -> bool:
    """Whether what a parked task waits for has come, or more was said to it: its agent will find that, though its status
    says idle until it has looked."""
    from hivemind.taskrun.waits import has_come

    try:
        task = hive.tasks.get(task_id)
        rest = task.parked
        with boundary("task's record", task_id):
            told = rest is not None and any(datetime.fromisoformat(one.at) > rest.since for one in task.said)
        return rest is None or told or has_come(hive, task, rest.reason)
    except Unreadable:
        return False
    except UserError:  # moved meanwhile: something goes on
        return True


def nobody_for(hive: Parts, task: TaskSummary, names: Collection[str]) -> str | None:
    """Why none of the running agents `names` may claim a waiting task, if so; whether they have room is another matter."""
    if task.assignee is not None and (aside := hive.agent_files.why_aside(task.assignee)) is not None:
        return f"its assignee {task.assignee} is set aside: {aside}"
    if task.assignee is not None and task.assignee not in names:
        return f"its assignee {task.assignee} is not running"
    if task.role is not None and task.role not in {hive.agents[name].role for name in names}:
        return f"no running agent has the role {task.role}"
    return None


def said_why(hive: Parts, tasks: Iterable[TaskSummary]) -> list[TaskSummary]:
    """The same tasks, those for whom no running agent is there told to wait for one (if any agent runs at all)."""
    found = list(tasks)
    if not any(task.assignee or task.role for task in found if task.state is TaskState.INBOX):
        return found
    running = [name for name in hive.agents if holder_of(hive.layout, name) is not None]
    if not running:  # the swarm is down: that is no matter of this task or that
        running = list(hive.agents)
    return [
        replace(task, waiting=nobody_for(hive, task, running))
        if task.state is TaskState.INBOX and task.waiting is None and (task.assignee or task.role)
        else task
        for task in found
    ]


def is_full(layout: Layout) -> bool:
    """Whether the hive's disk has no room for another file."""
    found = os.statvfs(layout.root)
    return found.f_bavail * found.f_frsize < _ROOM_BYTES or bool(found.f_files and not found.f_favail)


def _could_take(hive: Parts, name: str, task: TaskSummary, held: Mapping[str | None, int]) -> bool:
    fits = task.assignee in (None, name) and task.role in (None, hive.agents[name].role)
    return fits and held[name] < hive.config.max_active


def _mail_rests(status: AgentStatus, soon: datetime) -> str | None:
    """Why an agent does not read its mail, if that will last."""
    until = status.mail_rests_until
    with suppress(Unreadable), boundary("time"):
        return status.mail_rests if until is None or datetime.fromisoformat(until) > soon else None
    return None
