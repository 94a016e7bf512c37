"""The check whether a swarm can do any more work. It reads the hive's files (`hivemind up --until-idle`)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.layout import EXCHANGE, LANDING, Layout
from hivemind.presence.identity import holder_pid
from hivemind.presence.parts import Parts
from hivemind.presence.status import AgentStatus, read_status
from hivemind.presence.watching import agent_problems, supervisor_lock
from hivemind.swarm.task_return import absences
from hivemind.tasks import BEING_WRITTEN, Task, TaskState, TaskSummary

_ROOM_BYTES = 16_384
SHORT_WAIT = timedelta(seconds=60)
"""The swarm is busy while a task waits for a time within this span (or within the time of a review), and while a file
that came within this span is still being written."""


@frozen
class Survey:
    """The work of a swarm. `busy` names work that can continue (empty: the swarm is idle), `parked` work that waits."""

    busy: tuple[str, ...]
    parked: tuple[tuple[str, str], ...] = ()


def survey(hive: Parts, names: Collection[str]) -> Survey:
    """Return the work of the swarm. The agents are checked first, which is cheap, and the folders only if all agents
    are idle."""
    from hivemind.mail import count_backlog  # late: other callers need neither package
    from hivemind.taskrun.waits import DISK_FULL

    states: dict[str, AgentStatus] = {}
    for name in names:
        status = read_status(hive.layout.agent_state(name), name)
        if status is None or not status.rests:
            return Survey((f"agent {name}",))
        states[name] = status
    busy: list[str] = []
    stuck = {name: f"{name} is stuck: {status.problem}" for name, status in states.items() if status.problem}
    horizon = datetime.now(UTC) + max(SHORT_WAIT, timedelta(seconds=hive.config.review_timeout_s))
    parked: list[tuple[str, str]] = [(f"agent {name}", reason) for name, reason in stuck.items()]
    names = [name for name in names if name not in stuck]
    for name in names:
        if count_backlog(hive.mail, name, hive.layout.agent_state(name)):
            reason = _mail_pause(states[name], horizon)
            parked.append((f"mail for {name}", reason)) if reason else busy.append(f"mail for {name}")
    active = hive.tasks.list(TaskState.ACTIVE)
    active_counts = Counter(task.owner for task in active)
    for task in hive.tasks.listing.list_waiting():
        if task.waiting == BEING_WRITTEN and datetime.now(UTC) - task.since < SHORT_WAIT:
            busy.append(f"task {task.id} is being written")
            continue
        if task.assignee == LANDING:
            busy.append(f"task {task.id} lands")
            continue
        reason = task.waiting or claim_obstacle(hive, task, names)
        if reason is None and not any(_can_claim(hive, name, task, active_counts) for name in names):
            reason = DISK_FULL if is_full(hive.layout) else "every agent that may claim it already has max_active tasks"
        parked.append((task.id, reason)) if reason else busy.append(f"task {task.id} waits to be claimed")
    returning = {
        task
        for absence in absences(hive)
        if absence.remaining_s <= SHORT_WAIT.total_seconds()
        for task in absence.tasks
    }
    lander_rests = all(task.owner != LANDING for task in active) or _lander_rests(hive)
    for task in active:
        if task.id in returning:
            busy.append(f"task {task.id} goes back to the inbox")
            continue
        parking = task.parked
        if task.owner == EXCHANGE and parking is not None:  # it is in another hive
            is_parked = parking.until is None or not hive.linked_hives.is_linked or hive.linked_hives.outage is not None
            parked.append((task.id, parking.reason)) if is_parked else busy.append(f"task {task.id}: {parking.reason}")
            continue
        if task.owner == LANDING and parking is not None:
            is_parked = parking.until is None and lander_rests and not _is_answered(hive, task.id)
            parked.append((task.id, parking.reason)) if is_parked else busy.append(f"task {task.id} lands")
            continue
        if task.owner not in names:
            reason = "no agent has claimed it: hivemind doctor --fix moves it to the inbox"
            if task.owner is not None:
                reason = stuck.get(task.owner, f"its agent {task.owner} is not running")
            parked.append((task.id, reason))
            continue
        if parking is None or (parking.until is not None and parking.until <= horizon) or _is_answered(hive, task.id):
            busy.append(f"task {task.id}")
        else:
            parked.append((task.id, parking.reason))
    return Survey(tuple(busy), tuple(parked))


def _lander_rests(hive: Parts) -> bool:
    """Check that the lander (the process that merges finished work) does not run, or has no work now.

    A lander that has not yet looked at its queue since it started does not count as resting.
    """
    pid = holder_pid(hive.layout, LANDING)
    status = None if pid is None else read_status(hive.layout.agent_state(LANDING), LANDING)
    return pid is None or (status is not None and status.pid == pid and status.rests)


def _is_answered(hive: Parts, task_id: str) -> bool:
    """Check whether a parked task can continue because its wait is over or a text was added, although its agent still reports
    `idle`.
    """
    from hivemind.taskrun.waits import has_come

    try:
        task = hive.tasks.get(task_id)
        return task.parked is None or has_addition(task) or has_come(hive, task, task.parked.reason)
    except Unreadable:
        return False
    except UserError:  # moved meanwhile: somebody works
        return True


def has_addition(task: Task) -> bool:
    """Check whether a text was added to a task since it was parked. Raises Unreadable."""
    with boundary("task's record", task.id):
        return task.parked is not None and any(
            datetime.fromisoformat(addition.at) > task.parked.since for addition in task.said
        )


def start_problems(hive: Parts) -> dict[str, str]:
    """Return, by agent, the reasons why agents do not run.

    The running supervisor has noted them. If the swarm is down, they are what is missing for a start.
    """
    if supervisor_lock(hive.layout.locks).holder() is not None:
        return agent_problems(hive.layout.locks)
    problems: dict[str, str | None] = {}  # by mind: the agents of a hive have few
    problems_by_agent = {}
    for name, config in hive.agents.items():
        if config.mind != "extractive" and holder_pid(hive.layout, name) is None:
            if (mind := str(config.mind)) not in problems:
                problems[mind] = _start_problem(hive, config.mind)
            if (problem := problems[mind]) is not None:
                problems_by_agent[name] = problem
    return problems_by_agent


def _start_problem(hive: Parts, mind: str | dict[str, Any]) -> str | None:
    from hivemind.minds.open import check_start  # late: few commands need it

    try:
        check_start(mind, hive.layout.root)
    except UserError as error:
        return f"cannot start here: {error}"
    return None


def claim_obstacle(
    hive: Parts, task: Task | TaskSummary, names: Collection[str], problems: Mapping[str, str] | None = None
) -> str | None:
    """Return why none of the running agents `names` may claim a waiting task, or None if one may. `max_active` is not checked.

    `problems` are the reasons why agents do not run, by agent; if one of these agents might claim the task, its reason is added.
    """
    if task.assignee is not None and (aside := hive.agent_files.problem_of(task.assignee)) is not None:
        return f"its assignee {task.assignee} is set aside: {aside}"
    if task.assignee is not None and task.assignee not in names:
        reason = f"its assignee {task.assignee} is not running"
    elif task.role is not None and task.role not in {hive.agents[name].role for name in names}:
        reason = f"no running agent has the role {task.role}"
    elif problems and not names:
        reason = "no agent is running"
    elif names and not any(_fits(hive, name, task) for name in names):
        reason = "the agents that run take only tasks for their name or role (claims: named)"
    else:
        return None
    culprits = [name for name in problems or () if task.assignee in (None, name)]
    culprits = [name for name in culprits if task.role is None or hive.agents[name].role == task.role]
    return f"{reason}: {culprits[0]} {problems[culprits[0]]}" if problems and culprits else reason


def with_wait_reasons(
    hive: Parts, tasks: Iterable[TaskSummary], problems: Mapping[str, str] | None = None
) -> list[TaskSummary]:
    """Return the tasks, waiting ones with a reason if no running agent may claim them, or if the only agent that may is busy.

    `problems` are the reasons why agents do not run (default: `start_problems`).
    """
    summaries = list(tasks)
    if not any(task.state is TaskState.INBOX for task in summaries):
        return summaries
    problems = start_problems(hive) if problems is None else problems
    running = [name for name in hive.agents if holder_pid(hive.layout, name) is not None]
    if not running:  # the swarm is down: then the check is against all agents that can start
        running = [name for name in hive.agents if name not in problems]
    notes = {name: _busy_note(hive, name) for name in running}  # thousands of tasks may wait for the same agent
    return [
        replace(task, waiting=claim_obstacle(hive, task, running, problems) or _only_note(hive, task, notes))
        if task.state is TaskState.INBOX and task.waiting is None
        else task
        for task in summaries
    ]


def _only_note(hive: Parts, task: TaskSummary, notes: Mapping[str, str | None]) -> str | None:
    """Return the note about the only agent that may claim a waiting task. Return None if several agents may claim it, or none.

    `notes` are by agent; None for an agent without work.
    """
    able = [note for name, note in notes.items() if _fits(hive, name, task)]
    return able[0] if len(able) == 1 else None


def _busy_note(hive: Parts, name: str) -> str | None:
    """Return a note that a task waits for an agent, with what the agent works on; None if it is idle or does not run."""
    if holder_pid(hive.layout, name) is None:
        return None
    status = read_status(hive.layout.agent_state(name), name)
    is_working = status is not None and status.state == "working"
    return f"waits for {name}, which works on {status.task or 'a letter'}" if status and is_working else None


def is_full(layout: Layout) -> bool:
    """Check whether the hive's disk has no room for another file."""
    status = os.statvfs(layout.root)
    return status.f_bavail * status.f_frsize < _ROOM_BYTES or bool(status.f_files and not status.f_favail)


def _can_claim(hive: Parts, name: str, task: TaskSummary, active_counts: Mapping[str | None, int]) -> bool:
    return _fits(hive, name, task) and active_counts[name] < hive.config.max_active


def _fits(hive: Parts, name: str, task: Task | TaskSummary) -> bool:
    agent, is_named = hive.agents[name], task.assignee is not None or task.role is not None
    return task.assignee in (None, name) and task.role in (None, agent.role) and (is_named or agent.claims == "any")


def _mail_pause(status: AgentStatus, horizon: datetime) -> str | None:
    """Return the reason for which an agent reads no mail until after `horizon`, or None if it reads mail before that."""
    until = status.mail_rests_until
    with suppress(Unreadable), boundary("time"):
        return status.mail_rests if until is None or datetime.fromisoformat(until) > horizon else None
    return None
