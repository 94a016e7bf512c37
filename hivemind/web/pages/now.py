"""The first page: what waits for a person, the agents, and the board of tasks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from hivemind.outcome import ENDED
from hivemind.swarm.overview import AgentOverview
from hivemind.tasks import TaskState, TaskSummary, landing_state
from hivemind.web.drawing.bars import sparkline
from hivemind.web.index import SLOT_S, PageIndex, TaskRow, TokenUse
from hivemind.web.site import Page, PageQuery, Site
from hivemind.web.snapshot import Snapshot

_PAGE_ROWS = 50
_MAX_PRICED_TASKS = 500  # open tasks that are listed with their costs
_SPARKLINE_SLOTS = 36  # ten minutes each: six hours
_STATES = {"all": "All", "waiting": "Waiting", "active": "Active", "done": "Done", "failed": "Failed"}
_SORTS = {"newest": "newest first", "oldest": "oldest first", "title": "by title", "tokens": "by tokens"}
_STATE_ORDER = {"working": 0, "stuck": 1, "starting": 2, "stopping": 3, "idle": 4}
_MAX_NEEDS = 12


def show_first_page(site: Site, query: PageQuery) -> Page:
    """Build the first page. The query filters the board of tasks by `state` and text `q`, sorts it by `sort`, and
    selects its `page`."""
    snapshot = site.watch.snapshot()
    board = _task_board(site, snapshot, query)
    needs = snapshot.needs
    context = {
        "snapshot": snapshot,
        "needs": needs[:_MAX_NEEDS],
        "more_needs": max(0, len(needs) - _MAX_NEEDS),
        "agents": agent_rows(site, snapshot.agents),
        "board": board,
        "roles": sorted({agent.role for agent in snapshot.agents if agent.role}),
    }
    return Page("now.html", context, f"({len(needs)}) Now" if needs else "Now", ("agents", "tasks", "mail", "index"))


def agent_rows(site: Site, agents: Sequence[AgentOverview]) -> list[dict[str, Any]]:
    """Return a row for each agent with today's usage and a sparkline (small bar chart) of the last six hours. Running
    agents come first."""
    moment = time.time()
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    last_slot = int(moment // SLOT_S)
    since = min(midnight, moment - _SPARKLINE_SLOTS * SLOT_S)
    activity = site.index.activity(since)
    rows = []
    for agent in sorted(
        agents, key=lambda status: (status.pid is None, _STATE_ORDER.get(status.state, 5), status.name)
    ):
        slots = activity.get(agent.name, {})
        today = TokenUse()
        for slot, usage in slots.items():
            if slot * SLOT_S >= midnight:
                today.add(usage)
        heights = [
            slots[slot].turns if slot in slots else 0 for slot in range(last_slot - _SPARKLINE_SLOTS + 1, last_slot + 1)
        ]
        rows.append({"agent": agent, "today": today, "line": sparkline(heights, "turns in the last six hours")})
    return rows


def _task_board(site: Site, snapshot: Snapshot, query: PageQuery) -> dict[str, Any]:
    state = query.choice("state", _STATES, "all")
    sort = query.choice("sort", _SORTS, "newest")
    text, page = query.get("q", "")[:200], max(1, query.number("page", 1))
    open_tasks = [*open_rows((task for task in snapshot.open_tasks if _is_match(task, state, text)), site.index)]
    if sort in ("title", "tokens"):
        open_tasks.sort(key=lambda row: row.title if sort == "title" else -row.tokens)
    states = {"all": ENDED, "done": ("done",), "failed": ("failed",)}.get(state, ())
    start = (page - 1) * _PAGE_ROWS
    page_rows, ended_start = open_tasks[start : start + _PAGE_ROWS], max(0, start - len(open_tasks))
    ended_rows, total = (
        site.index.ended_tasks(states, text, sort, _PAGE_ROWS - len(page_rows), ended_start) if states else ([], 0)
    )
    counts = snapshot.overview.tasks
    waiting, active = counts.get("inbox", 0), counts.get("active", 0)
    done, failed = counts.get("done", 0), counts.get("failed", 0)
    seen, task_count = site.index.progress
    return {
        "rows": [*page_rows, *ended_rows],
        "total": len(open_tasks) + total,
        "page": page,
        "pages": max(1, -(-(len(open_tasks) + total) // _PAGE_ROWS)),
        "state": state,
        "states": [
            (name, word, {"all": waiting + active + done + failed, "waiting": waiting, "active": active, "done": done,
                          "failed": failed}[name])
            for name, word in _STATES.items()
        ],
        "sort": sort,
        "sorts": _SORTS,
        "text": text,
        "indexed": seen,
        "there": task_count,
    }  # fmt: skip


def _is_match(task: TaskSummary, state: str, text: str) -> bool:
    if state not in ("all", "active" if task.state is TaskState.ACTIVE else "waiting"):
        return False
    task_text = " ".join(filter(None, (task.id, task.title, task.owner, task.project))).casefold()
    return all(word in task_text for word in text.casefold().split())


def open_rows(tasks: Iterable[TaskSummary], index: PageIndex) -> Iterator[TaskRow]:
    """Yield a row for each open task, with the task's usage so far."""
    tasks = list(tasks)
    usage_by_task = index.usage_of_tasks([task.id for task in tasks[:_MAX_PRICED_TASKS]])
    for task in tasks:
        landing = landing_state(task)
        state = "waiting" if task.state is TaskState.INBOX else "parked" if task.parked else "active"
        state = "lands" if landing == "lands" else state
        note = landing or task.waiting or (task.parked.reason if task.parked else None) or task.problem
        owner = (
            (task.owner if landing is None else None) or task.assignee or (f"role {task.role}" if task.role else None)
        )
        usage = usage_by_task.get(task.id, TokenUse())
        yield TaskRow(task.id, state, task.since.timestamp(), task.title, owner, note, usage.tokens, usage.money)
