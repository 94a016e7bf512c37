"""The page of the journal: events, newest first, and the signals of active tasks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from hivemind.coordination import Event
from hivemind.errors import HivemindError
from hivemind.hive import Hive
from hivemind.tasks import TaskState
from hivemind.views import SignalFound, signals
from hivemind.web.site import Page, PageQuery, Site

_MAX_ROWS = 100
_CHUNK_EVENTS = 2_000
_HEARTBEAT = "agent.heartbeat"  # one per second while an agent works: shown only if this kind is requested
_SEARCH_S = 0.12  # a search stops after this time; the page offers to continue it
_MAX_TASKS = 20  # active tasks with signals on the page
_VALUE_CHARS = 200


def show_journal(site: Site, query: PageQuery) -> Page:
    """Build a list of the events before number `before`, filtered by `kind` (or its first part), `agent` and `task`,
    all in the query."""
    hive = site.hive
    newest = hive.journal.seq
    before = min(query.number("before") or newest + 1, newest + 1)
    filters = {name: query.get(name, "").strip()[:200] for name in ("kind", "agent", "task")}
    rows, oldest_seq = _search_back(hive, before, filters)
    context = {
        "rows": [_event_row(event, moment) for event, moment in rows],
        "heartbeat": _HEARTBEAT,
        "newest": newest,
        "before": before,
        "reached": oldest_seq,
        "signals": _active_task_signals(site) if before == newest + 1 and not any(filters.values()) else [],
        **filters,
    }
    return Page("journal.html", context, "Journal", ("journal",))


def _search_back(hive: Hive, before: int, filters: Mapping[str, str]) -> tuple[list[tuple[Event, int | None]], int]:
    """Search backwards for matching events, up to a number of events and a time limit.

    Return the matches as (event, time), newest first, and the number of the oldest event that was examined. Times are
    in seconds since 1970. An event without a time has that of the event before it, None if this is unknown.
    """
    rows: list[tuple[Event, int | None]] = []
    deadline = time.monotonic() + _SEARCH_S
    chunk_size = _CHUNK_EVENTS if any(filters.values()) else 2 * _MAX_ROWS
    while before > 1 and len(rows) < _MAX_ROWS and time.monotonic() < deadline:
        start = max(0, before - 1 - chunk_size)
        chunk, moment = list[tuple[Event, int | None]](), None
        for event in hive.journal.events(start):
            if event.seq >= before:
                break
            if isinstance(event.payload.get("time"), int):
                moment = event.payload["time"]
            chunk.append((event, moment))
        before, chunk_size = start + 1, _CHUNK_EVENTS
        for event, moment in reversed(chunk):
            if _is_match(event, filters):
                rows.append((event, moment))
                if len(rows) == _MAX_ROWS:
                    return rows, event.seq
    return rows, before


def _is_match(event: Event, filters: Mapping[str, str]) -> bool:
    kind, agent, task = filters["kind"], filters["agent"], filters["task"]
    payload = event.payload
    about = (payload.get("task_id"), payload.get("task"), str(payload.get("step_id", "")).rpartition(".s")[0])
    return (
        (event.kind != _HEARTBEAT if not kind else event.kind == kind or event.kind.startswith(f"{kind}."))
        and (not agent or agent in (payload.get("agent_id"), payload.get("holder_agent_id")))
        and (not task or task in about)
    )


def _event_row(event: Event, moment: int | None) -> dict[str, Any]:
    payload = {key: value for key, value in event.payload.items() if key != "time"}
    return {"seq": event.seq, "kind": event.kind, "time": moment, "told": list(_format_payload(payload))}


def _format_payload(payload: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in payload.items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            yield key, text if len(text) <= _VALUE_CHARS else text[:_VALUE_CHARS] + "…"


def _active_task_signals(site: Site) -> list[tuple[str, list[SignalFound]]]:
    """Return (task id, signals) of each active task. Signals are remarks of rules about a task's graph, the most severe first."""
    signals_by_task = []
    for task in [open_task for open_task in site.watch.snapshot().open_tasks if open_task.state is TaskState.ACTIVE][
        :_MAX_TASKS
    ]:
        with suppress(HivemindError, OSError):
            task_signals = signals(site.hive, task=task.id, limit=5)
            if task_signals:
                signals_by_task.append((task.id, task_signals))
    return signals_by_task
