"""The current state of a hive for people: running agents and their work, tasks, leases, mail (`hivemind status`).

An agent's status file counts only while a process holds the agent's lock, because a killed process cannot correct the
file. Tasks and mail are counted from the folders.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, boundary
from hivemind.coordination import JournalState, StepLease, check_agent
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.layout import EXCHANGE, HUMAN, LANDING, POSTMASTER, TELEMETRY, Layout
from hivemind.names import is_name
from hivemind.presence.identity import holder_pid
from hivemind.presence.parts import Parts
from hivemind.presence.status import AgentStatus, read_status
from hivemind.presence.status import State as AgentState
from hivemind.presence.watching import agent_problems, supervisor_lock, watch_lock
from hivemind.sandbox import has_sandbox
from hivemind.swarm.task_return import absences
from hivemind.swarm.until_idle import is_full, start_problems, with_wait_reasons
from hivemind.tasks import ScheduledTask, TaskState, TaskSummary, landing_state

if TYPE_CHECKING:
    from hivemind.config import RootConfig
    from hivemind.embedding import Embedder

_MINUTE_S = 60


@frozen
class AgentOverview(AgentStatus):
    """The state of one agent. `task` is its current task or, if the agent is down, a task that waits for it.

    Without a process `pid` is None and `state` is `down`, `stopped` or `set aside`; the other fields are from the agent's last
    status.
    """

    role: str | None = None


@frozen
class LeaseOverview(StepLease):
    """The lease of a step. `left` is the number of events until the lease expires (not a time). `task` and `title` are
    None if no task has the step."""

    task: str | None
    title: str | None
    left: int


@frozen
class Overview:
    """The state of a hive. `supervisor` is the record of the running supervisor (pid, since) or None. `tasks` counts
    tasks by state; active ones include parked ones. `waiting` and `parked` are pairs of task and reason. `mail_waits`
    pairs an agent with the reason why its unread mail will stay unread. `needs_you` pairs a letter's id with its
    problem: an unknown address. `unboxed` are the coding agents without a box. `search` describes how texts
    are searched. `left` pairs a task of an absent member with the time of its return. `has_new_settings`: hive.yaml has
    changed since the supervisor started."""

    hive: Path
    workspace: str
    supervisor: dict[str, object] | None
    watching: str | None
    search: str
    agents: tuple[AgentOverview, ...]
    leases: tuple[LeaseOverview, ...]
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
    landing: str | None = None
    telemetry: str | None = None
    unboxed: tuple[str, ...] = ()
    has_new_settings: bool = False


def overview(hive: Parts, active: list[TaskSummary] | None = None) -> Overview:
    """Return the state of a hive. `active` are its active tasks, if the caller has listed them."""
    active = hive.tasks.list(TaskState.ACTIVE) if active is None else active
    inbox = hive.tasks.listing.list_waiting()
    problems = start_problems(hive)
    agents = agents_now(hive, active, problems)
    parked = tuple((task.id, task.parked.reason) for task in active if task.parked and landing_state(task) != "lands")
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
        landing=_landing_now(hive, active),
        telemetry=_telemetry_now(hive),
        unboxed=tuple(name for name, config in hive.agents.items() if config.lacks_box),
        has_state=hive.layout.state.is_dir(),
        has_new_settings=supervisor is not None and _settings_time(hive.layout) > str(supervisor.get("since", "~")),
        watching=str(watcher["watching"]) if "watching" in watcher else None,
        search=search_now(hive),
        agents=agents,
        leases=leases_now(hive),
        human_unread=hive.mail.count_unread(HUMAN),
        tasks={**hive.tasks.listing.counts(), "inbox": len(inbox), "active": len(active), "parked": len(parked)},
        waiting=tuple((task.id, task.waiting) for task in with_wait_reasons(hive, inbox, problems) if task.waiting),
        parked=parked,
        needs_you=tuple(
            (letter.id, letter.subject)
            if letter.sender == POSTMASTER
            else (letter.id, f"a letter from the unknown address {letter.sender}: {letter.subject or letter.preview}")
            for letter in hive.mail.unread_from_strangers(HUMAN)
        ),
        mail_waits=tuple(
            (agent.name, f"{agent.unread} unread, until its program connects: hivemind mcp --agent {agent.name}")
            for agent in agents
            if agent.unread and agent.pid is None and hive.agents[agent.name].outside
        ),
    )


def _settings_time(layout: Layout) -> str:
    """Return the time of hive.yaml's last change, written as the `since` of a lock's holder; "" without the file."""
    with suppress(FileNotFoundError, Unreadable), boundary("time"):
        return datetime.fromtimestamp(layout.config.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return ""


def search_now(hive: Parts) -> str:
    """Describe how this hive searches texts: by words and by a model's vectors, or by words only, with the reason."""
    from hivemind.embedding import INSTALL, EmbedderUnavailable

    try:
        embedder = hive.embedder
    except EmbedderUnavailable as error:
        return f"full text only: {error}"
    if embedder is not None:
        return f"words and meaning ({embedder.name}){_describe_embedding(hive, embedder)}"
    setting = os.environ.get("HIVEMIND_EMBEDDER") or hive.config.embedder
    return "full text only" if setting == "none" else f"full-text search only: {INSTALL}"


def search_gap(hive: Parts) -> str:
    """Return a sentence on the documents that are not searched by meaning, or ""."""
    from hivemind.documents import describe_gap

    try:
        embedder = hive.embedder
    except UserError:  # `status` says why
        return ""
    embedded, total, _ = embedding_progress(hive, embedder)
    return describe_gap(embedded, total)


def _exchange_now(hive: Parts, active: list[TaskSummary]) -> str | None:
    """Describe the link: the linked hives, an outage, unsent letters, foreign tasks. Return None if the hive is not
    linked."""
    if not hive.linked_hives.is_linked:
        return None
    notes = "".join(f"; {note}" for note in _exchange_notes(hive, active))
    if (deaths := agent_problems(hive.layout.locks).get(EXCHANGE)) is not None:
        return f"its process {deaths}{notes}"
    if (away := hive.linked_hives.outage) is not None:
        return f"away {away}{notes}"
    names = sorted(hive.linked_hives.agents)
    return f"linked with {', '.join(names) or 'no other hive yet'}{notes}"


def _landing_now(hive: Parts, active: list[TaskSummary]) -> str | None:
    """Describe the landing: how many tasks land (are being merged) or wait for it, roots where it is held, checks without a box.

    Return None if nothing lands here.
    """
    roots = {
        root: settings for root, settings in hive.config.repository_roots(hive.layout).items() if settings.land != "off"
    }
    states = [state for task in active if (state := landing_state(task)) is not None]
    if not roots and not states:
        return None
    queued = states.count("lands")
    waiting = len(states) - queued
    notes = [f"{queued} task{' is' if queued == 1 else 's are'} to land"] if queued else []
    notes += [f"{waiting} task{' waits' if waiting == 1 else 's wait'}"] if waiting else []
    if (deaths := agent_problems(hive.layout.locks).get(LANDING)) is not None:
        notes.append(f"its process {deaths}")
    from hivemind.landing.target import held_roots, unpushed_roots  # late: few hives have landings

    notes += [f"{root} is held: {hold.reason}" for root, hold in held_roots(hive.config, hive.layout).items()]
    notes += [f"{root} is not pushed: {reason}" for root, reason in unpushed_roots(hive.config, hive.layout).items()]
    for root, settings in roots.items():
        if settings.check and settings.check_box == "auto" and not has_sandbox():
            notes.append(f"the check of {root} runs without a box: bubblewrap does not run here")
        if settings.sign == "off" and _signs_commits(hive.layout, root, settings, int(time.monotonic() // _MINUTE_S)):
            notes.append(f"your git signs commits in {root}, landings are not signed (sign: off)")
    return "; ".join(notes) or "nothing is to land"


def _telemetry_now(hive: Parts) -> str | None:
    """Describe where traces go, or the reason why they wait. Return None if no traces are sent."""
    if holder_pid(hive.layout, TELEMETRY) is None:
        return None
    status = read_status(hive.layout.agent_state(TELEMETRY), TELEMETRY)
    return None if status is None else status.problem or status.last_action


@lru_cache(64)
def _signs_commits(layout: Layout, root: Path, settings: RootConfig, _minute: int) -> bool:
    """Check whether the person's git signs commits in the repository `root`.

    `_minute` is the current minute: it is part of the cache's key, so git is asked again every minute.
    """
    from hivemind.landing.target import Target

    try:
        return Target.at(layout, root, settings).signs_commits
    except UserError:
        return False


def _exchange_notes(hive: Parts, active: list[TaskSummary]) -> Iterator[str]:
    if unsent := hive.linked_hives.unsent_count():
        yield f"{unsent} letter{'s' * (unsent != 1)} to be sent"
    if remote := sum(task.owner == EXCHANGE for task in active):
        yield f"{remote} task{'s' if remote > 1 else ''} elsewhere"
    if foreign := hive.linked_hives.foreign_task_count():
        yield f"{foreign} task{'s' if foreign > 1 else ''} of other hives here"


def embedding_progress(hive: Parts, embedder: Embedder | None) -> tuple[int, int, bool]:
    """Return (number of embedded passages, number of all passages, whether the language of the documents is known)."""
    try:
        if hive.layout.documents_db.exists():
            from hivemind.documents import read_progress  # late: it opens a database

            return read_progress(hive.layout.documents_db, embedder)
    except UserError:  # damaged, or of another version: `doctor` and searches report it
        pass
    return 0, 0, True


def _describe_embedding(hive: Parts, embedder: Embedder) -> str:
    """Describe how far the embedding of the documents is, if it is not complete, and say if their language is not known."""
    embedded, total, knows_language = embedding_progress(hive, embedder)
    progress = ""
    if embedded < total:
        from hivemind.documents import describe_progress

        progress = f"; {describe_progress(embedded, total)}"
    return progress + (
        "" if knows_language else "; words are found only as written: the documents' language is not known"
    )


def agents_now(
    hive: Parts, active: list[TaskSummary] | None = None, problems: Mapping[str, str] | None = None
) -> tuple[AgentOverview, ...]:
    """Return every agent of agents/*.yaml by name. Agents whose file is set aside come last, with the reason as their `problem`.

    `active` are the active tasks, `problems` the reasons why agents do not run; without them, both are read from the hive.
    """
    owned: dict[str | None, str] = {}
    for task in hive.tasks.list(TaskState.ACTIVE) if active is None else active:
        owned.setdefault(task.owner, task.id)
    overviews = [_agent_overview(hive, name, owned.get(name)) for name in hive.agents]
    set_aside = [
        _set_aside_overview(hive, name, str(problem), owned.get(name))
        for name, problem in hive.agent_files.problems.items()
    ]
    problems = start_problems(hive) if problems is None else problems
    return (
        *(replace(overview, problem=overview.problem or problems.get(overview.name)) for overview in overviews),
        *set_aside,
    )


def _set_aside_overview(hive: Parts, name: str, problem: str, task_id: str | None) -> AgentOverview:
    pid = holder_pid(hive.layout, name) if is_name(name) else None
    state: AgentState = "set aside" if pid is None else "as before"
    return AgentOverview(name, pid, state=state, task=task_id, mind="?", problem=problem)


def _agent_overview(hive: Parts, name: str, task_id: str | None) -> AgentOverview:
    config = hive.agents[name]
    pid = holder_pid(hive.layout, name)
    status = read_status(hive.layout.agent_state(name), name) or AgentStatus(name)
    if pid is None:
        state: AgentState = "stopped" if (hive.layout.stopped / name).exists() else "down"
        status = replace(status, pid=None, state=state, task=task_id, step=None, problem=None)
    elif status.pid != pid:  # the status of an earlier process
        status = AgentStatus(name, pid)
    fields = {**asdict(status), "mind": _mind_label(config.mind), "unread": hive.mail.count_unread(name)}
    return AgentOverview(**fields, role=config.role)


def leases_now(hive: Parts, agent: str | None = None) -> tuple[LeaseOverview, ...]:
    """Return the active leases of all agents, or of the agent `agent`, by step. Raises CoordinationError for an invalid
    name."""
    holder = None if agent is None else check_agent(agent)

    def collect(state: JournalState) -> tuple[LeaseOverview, ...]:
        steps = sorted(state.leases if holder is None else state.leased_step_ids.get(holder, ()))
        return tuple(_lease_overview(state, lease) for step in steps if (lease := state.lease(step)) is not None)

    leases: tuple[LeaseOverview, ...] = hive.journal.view(collect)
    return leases


def how_freed(lease: StepLease, *, runs: bool) -> str:
    """Describe how a leased step becomes free. `runs` says whether the holder's process runs.

    Nobody can wait for the lease to expire, because it expires after a number of events, not after a time.
    """
    if runs:
        return f"{lease.holder_agent_id} ends the step, or its process ends"
    return f"hivemind lease release {lease.step_id} --agent {lease.holder_agent_id}"


def lease_now(hive: Parts, lease: StepLease) -> LeaseOverview:
    lease_overview: LeaseOverview = hive.journal.view(lambda state: _lease_overview(state, lease))
    return lease_overview


def _lease_overview(state: JournalState, lease: StepLease) -> LeaseOverview:
    step = state.step(lease.step_id)
    task, title = (None, None) if step is None else (step.task, step.title)
    return LeaseOverview(**asdict(lease), task=task, title=title, left=max(0, lease.expires_seq - state.seq))


def _mind_label(mind: str | dict[str, Any]) -> str:
    """Format a mind in a few characters: `anthropic:MODEL`, `command: think.py --fast`."""
    if isinstance(mind, str):
        return mind
    [(kind, settings), *_] = [*mind.items(), ("?", "")]
    if isinstance(settings, dict):
        return f"{kind}:{settings.get('model', '?')}"
    return f"{kind}: {' '.join(map(str, settings)) if isinstance(settings, list) else settings}"
