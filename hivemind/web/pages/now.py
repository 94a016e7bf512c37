"""The first page: who needs a person, what each agent does, the board of tasks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from hivemind.swarm.overview import AgentNow
from hivemind.tasks import TaskState, TaskSummary
from hivemind.web.drawing.bars import sparkline
from hivemind.web.index import SLOT_S, PageIndex, TaskRow, TokenUse
from hivemind.web.site import Page, PageQuery, Site
from hivemind.web.snapshot import Snapshot

_ROWS = 50
_SPENT = 500  # open tasks whose costs are looked up
_SLOTS = 36  # of ten minutes each: six hours
_STATES = {"all": "All", "waiting": "Waiting", "active": "Active", "done": "Done", "failed": "Failed"}
_SORTS = {"newest": "newest first", "oldest": "oldest first", "title": "by title", "tokens": "by tokens"}
_BUSY = {"working": 0, "stuck": 1, "starting": 2, "stopping": 3, "idle": 4}
_NEEDS = 12


def now(site: Site, query: PageQuery) -> Page:
    """The page, with the board filtered by `state` and `q`, sorted by `sort`, `page` by page."""
    snapshot = site.watch.snapshot()
    board = _board(site, snapshot, query)
    needs = snapshot.needs
    context = {
        "snapshot": snapshot,
        "needs": needs[:_NEEDS],
        "more_needs": max(0, len(needs) - _NEEDS),
        "agents": agent_rows(site, snapshot.agents),
        "board": board,
        "roles": sorted({agent.role for agent in snapshot.agents if agent.role}),
    }
    return Page("now.html", context, f"({len(needs)}) Now" if needs else "Now", ("agents", "tasks", "mail", "index"))


def agent_rows(site: Site, agents: Sequence[AgentNow]) -> list[dict[str, Any]]:
    """The agents, those at work first, each with what it used today and a line of its last hours."""
    moment = time.time()
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    last = int(moment // SLOT_S)
    since = min(midnight, moment - _SLOTS * SLOT_S)
    activity = site.index.activity(since)
    rows = []
    for agent in sorted(agents, key=lambda one: (one.pid is None, _BUSY.get(one.state, 5), one.name)):
        slots = activity.get(agent.name, {})
        today = TokenUse()
        for slot, one in slots.items():
            if slot * SLOT_S >= midnight:
                today.add(one)
        heights = [slots[slot].turns if slot in slots else 0 for slot in range(last - _SLOTS + 1, last + 1)]
        rows.append({"agent": agent, "today": today, "line": sparkline(heights, "turns in the last six hours")})
    return rows


def _board(site: Site, snapshot: Snapshot, query: PageQuery) -> dict[str, Any]:
    state = query.choice("state", _STATES, "all")
    sort = query.choice("sort", _SORTS, "newest")
    text, page = query.get("q", "")[:200], max(1, query.number("page", 1))
    first = [*open_rows((task for task in snapshot.open_tasks if _wanted(task, state, text)), site.index)]
    if sort in ("title", "tokens"):
        first.sort(key=lambda row: row.title if sort == "title" else -row.tokens)
    states = {"all": ("done", "failed"), "done": ("done",), "failed": ("failed",)}.get(state, ())
    start = (page - 1) * _ROWS
    shown, rest = first[start : start + _ROWS], max(0, start - len(first))
    ended, total = site.index.ended(states, text, sort, _ROWS - len(shown), rest) if states else ([], 0)
    counts = snapshot.overview.tasks
    waiting, active = counts.get("inbox", 0), counts.get("active", 0)
    done, failed = counts.get("done", 0), counts.get("failed", 0)
    seen, there = site.index.progress
    return {
        "rows": [*shown, *ended],
        "total": len(first) + total,
        "page": page,
        "pages": max(1, -(-(len(first) + total) // _ROWS)),
        "state": state,
        "states": [
            (name, word, {"all": waiting + active + done + failed, "waiting": waiting, "active": active, "done": done,
                          "failed": failed}[name])
            for name, word in _STATES.items()
        ],
        "sort": sort,
        "sorts": _SORTS,
        "text": text,
        "unread": there - seen,
        "there": there,
    }  # fmt: skip


def _wanted(task: TaskSummary, state: str, text: str) -> bool:
    if state not in ("all", "active" if task.state is TaskState.ACTIVE else "waiting"):
        return False
    found = " ".join(filter(None, (task.id, task.title, task.owner, task.project))).casefold()
    return all(word in found for word in text.casefold().split())


def open_rows(tasks: Iterable[TaskSummary], index: PageIndex) -> Iterator[TaskRow]:
    """Tasks that are not over, each with what was used for it so far."""
    tasks = list(tasks)
    spent = index.spent_on([task.id for task in tasks[:_SPENT]])
    for task in tasks:
        state = "waiting" if task.state is TaskState.INBOX else "parked" if task.parked else "active"
        note = task.waiting or (task.parked.reason if task.parked else None) or task.problem
        owner = task.owner or task.assignee or (f"role {task.role}" if task.role else None)
        used = spent.get(task.id, TokenUse())
        yield TaskRow(task.id, state, task.since.timestamp(), task.title, owner, note, used.tokens, used.money)
