"""The hive as it stands now, for onlookers: who is up, what each agent does, how the tasks stand (`hivemind status`).

An agent's own status file is believed only while its name's lock is held: a process that was killed could not take it
back. What is counted is counted from the folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hivemind.coordination import JournalState, StepLease, check_agent
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.layout import EXCHANGE, HUMAN
from hivemind.names import is_name
from hivemind.presence.identity import holder_of
from hivemind.presence.parts import Parts
from hivemind.presence.status import AgentStatus, read_status
from hivemind.presence.status import State as AgentState
from hivemind.presence.watching import agent_problems, supervisor_lock, watch_lock
from hivemind.swarm.absence import absences
from hivemind.swarm.idle import is_full, said_why
from hivemind.tasks import ScheduledTask, TaskState, TaskSummary

if TYPE_CHECKING:
    from hivemind.embedding import Embedder


@frozen
class AgentNow(AgentStatus):
    """One agent. `pid` is None and `state` is `down`, `stopped` or `set aside` if no process has its name; the rest is then
    what it last said. `task` is what it works on, or, if it is down, a task that waits for it."""

    role: str | None = None


@frozen
class LeaseNow(StepLease):
    """The lease of a step, and what is left of it: so many events, never a time. A step that no task has is leased by
    its id alone."""

    task: str | None
    title: str | None
    left: int


@frozen
class Overview:
    """`supervisor` is the record of who is up (pid, since) or None; `tasks` counts them by state, parked ones among the
    active; `waiting` and `parked` are (task, why); `mail_waits` (agent, why): unread mail that nobody will read as things
    stand; `needs_you` (message id, what): letters from addresses that the hive does not know; `search` says how texts are
    found; `left` (task, what becomes of it): tasks of members that have gone."""

    hive: Path
    workspace: str
    supervisor: dict[str, object] | None
    watching: str | None
    search: str
    agents: tuple[AgentNow, ...]
    leases: tuple[LeaseNow, ...]
    human_unread: int
    tasks: dict[str, int]
    waiting: tuple[tuple[str, str], ...]
    parked: tuple[tuple[str, str], ...]
    mail_waits: tuple[tuple[str, str], ...] = ()
    needs_you: tuple[tuple[str, str], ...] = ()
    has_state: bool = True
    left: tuple[tuple[str, str], ...] = ()
    disk_full: bool = False
    schedule: tuple[ScheduledTask, ...] = ()
    untold: int = 0
    exchange: str | None = None


def overview(hive: Parts) -> Overview:
    """Look at everything once."""
    active = hive.tasks.list(TaskState.ACTIVE)
    inbox = hive.tasks.listing.list_waiting()
    agents = agents_now(hive, active)
    supervisor = supervisor_lock(hive.layout.locks).holder()
    watcher = supervisor or watch_lock(hive.layout.locks).holder() or {}
    return Overview(
        hive=hive.layout.root,
        workspace=hive.config.workspace,
        supervisor=supervisor,
        left=tuple((task, str(absence)) for absence in absences(hive) for task in absence.tasks),
        disk_full=is_full(hive.layout),
        schedule=tuple(hive.tasks.schedule.look(datetime.now(UTC))),
        untold=hive.tasks.outbox.count,
        exchange=_exchange_now(hive, active),
        has_state=hive.layout.state.is_dir(),
        watching=str(watcher["watching"]) if "watching" in watcher else None,
        search=search_now(hive),
        agents=agents,
        leases=leases_now(hive),
        human_unread=hive.mail.unread(HUMAN),
        tasks={
            **hive.tasks.listing.counts(),
            "inbox": len(inbox),
            "active": len(active),
            "parked": sum(task.parked is not None for task in active),
        },
        waiting=tuple((task.id, task.waiting) for task in said_why(hive, inbox) if task.waiting),
        parked=tuple((task.id, task.parked.reason) for task in active if task.parked),
        needs_you=tuple(
            (one.id, f"a letter from {one.sender}, whom the hive does not know: {one.subject or one.preview}")
            for one in hive.mail.from_strangers(HUMAN)
        ),
        mail_waits=tuple(
            (agent.name, f"{agent.unread} unread, until its program comes: hivemind mcp --agent {agent.name}")
            for agent in agents
            if agent.unread and agent.pid is None and hive.agents[agent.name].outside
        ),
    )


def search_now(hive: Parts) -> str:
    """How this hive finds texts: by words and the meaning that a model sees in them, or by words only, and why."""
    from hivemind.embedding import INSTALL, EmbedderUnavailable

    try:
        embedder = hive.embedder
    except EmbedderUnavailable as error:
        return f"full text only: {error}"
    if embedder is not None:
        return f"words and meaning ({embedder.name}){_left_to_embed(hive, embedder)}"
    asked = os.environ.get("HIVEMIND_EMBEDDER") or hive.config.embedder
    return "full text only" if asked == "none" else f"full-text search only: {INSTALL}"


def _exchange_now(hive: Parts, active: list[TaskSummary]) -> str | None:
    """With which hives this one is linked, whether it can be reached, what is still to be sent; None if it is not linked."""
    if not hive.linked.is_linked:
        return None
    waits = "".join(f"; {said}" for said in _under_way(hive, active))
    if (deaths := agent_problems(hive.layout.locks).get(EXCHANGE)) is not None:
        return f"its process {deaths}{waits}"
    if (away := hive.linked.away) is not None:
        return f"away {away}{waits}"
    names = sorted(hive.linked.agents)
    return f"linked with {', '.join(names) or 'no other hive yet'}{waits}"


def _under_way(hive: Parts, active: list[TaskSummary]) -> Iterator[str]:
    if left := hive.linked.left():
        yield f"{left} letters to be sent"
    if gone := sum(task.owner == EXCHANGE for task in active):
        yield f"{gone} task{'s' if gone > 1 else ''} elsewhere"
    if foreign := hive.linked.foreign():
        yield f"{foreign} task{'s' if foreign > 1 else ''} of other hives here"


def _left_to_embed(hive: Parts, embedder: Embedder) -> str:
    """How far the documents are, where some of them are found by their words only as yet."""
    if not hive.layout.documents_db.exists():
        return ""
    from hivemind.documents import how_far, progress_of

    try:
        known, total = progress_of(hive.layout.documents_db, embedder)
    except UserError:  # it is damaged, or of another version: `doctor` and whoever searches say so
        return ""
    return "" if known >= total else f"; {how_far(known, total)}"


def agents_now(hive: Parts, active: list[TaskSummary] | None = None) -> tuple[AgentNow, ...]:
    """Every agent of agents/*.yaml, by name; those that are set aside come last, with the reason as their `problem`."""
    owned: dict[str | None, str] = {}
    for task in hive.tasks.list(TaskState.ACTIVE) if active is None else active:
        owned.setdefault(task.owner, task.id)
    known = [_agent(hive, name, owned.get(name)) for name in hive.agents]
    aside = [_aside(hive, name, str(why), owned.get(name)) for name, why in hive.agent_files.aside.items()]
    why = agent_problems(hive.layout.locks)
    return (*(replace(one, problem=one.problem or why.get(one.name)) for one in known), *aside)


def _aside(hive: Parts, name: str, why: str, owned: str | None) -> AgentNow:
    pid = holder_of(hive.layout, name) if is_name(name) else None
    state: AgentState = "set aside" if pid is None else "as before"
    return AgentNow(name, pid, state=state, task=owned, mind="?", problem=why)


def _agent(hive: Parts, name: str, owned: str | None) -> AgentNow:
    config = hive.agents[name]
    pid = holder_of(hive.layout, name)
    said = read_status(hive.layout.agent_state(name), name) or AgentStatus(name)
    if pid is None:
        state: AgentState = "stopped" if (hive.layout.stopped / name).exists() else "down"
        said = replace(said, pid=None, state=state, task=owned, step=None, problem=None)
    elif said.pid != pid:  # its predecessor's last words
        said = AgentStatus(name, pid)
    shown = {**asdict(said), "mind": _mind(config.mind), "unread": hive.mail.unread(name)}
    return AgentNow(**shown, role=config.role)


def leases_now(hive: Parts, agent: str | None = None) -> tuple[LeaseNow, ...]:
    """The active leases of all agents or of one, by step. Raises CoordinationError for what is no agent's name."""
    who = None if agent is None else check_agent(agent)

    def look(state: JournalState) -> tuple[LeaseNow, ...]:
        steps = sorted(state.leases if who is None else state.leased_step_ids.get(who, ()))
        return tuple(_lease(state, lease) for step in steps if (lease := state.lease(step)) is not None)

    found: tuple[LeaseNow, ...] = hive.journal.view(look)
    return found


def how_freed(lease: StepLease, *, runs: bool) -> str:
    """Say what frees a step, whose holder's process runs or not: nobody can wait for a number of events."""
    if runs:
        return f"{lease.holder_agent_id} ends the step, or its process ends"
    return f"hivemind lease release {lease.step_id} --agent {lease.holder_agent_id}"


def lease_now(hive: Parts, lease: StepLease) -> LeaseNow:
    """One lease as it stands now."""
    found: LeaseNow = hive.journal.view(lambda state: _lease(state, lease))
    return found


def _lease(state: JournalState, lease: StepLease) -> LeaseNow:
    step = state.step(lease.step_id)
    task, title = (None, None) if step is None else (step.task, step.title)
    return LeaseNow(**asdict(lease), task=task, title=title, left=max(0, lease.expires_seq - state.seq))


def _mind(mind: str | dict[str, Any]) -> str:
    """A mind in a few characters: `anthropic:MODEL`, `command: think.py --fast`."""
    if isinstance(mind, str):
        return mind
    [(kind, told), *_] = [*mind.items(), ("?", "")]
    if isinstance(told, dict):
        return f"{kind}:{told.get('model', '?')}"
    return f"{kind}: {' '.join(map(str, told)) if isinstance(told, list) else told}"
