"""What happened, event by event, newest first; and the signals of the tasks in hand."""

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

_ROWS = 100
_CHUNK = 2_000
_HEARTBEAT = "agent.heartbeat"  # one a second while anybody works: shown only to who asks for that kind
_SEARCH_S = 0.12  # a search goes back so long; where it stopped it can be taken up
_TASKS = 20  # in hand whose signals are shown
_VALUE_CHARS = 200


def journal(site: Site, query: PageQuery) -> Page:
    """The events before `before`, of the family `kind`, by the agent `agent`, about the task `task`."""
    hive = site.hive
    newest = hive.journal.seq
    before = min(query.number("before") or newest + 1, newest + 1)
    wanted = {name: query.get(name, "").strip()[:200] for name in ("kind", "agent", "task")}
    rows, reached = _back(hive, before, wanted)
    context = {
        "rows": [_row(event, moment) for event, moment in rows],
        "heartbeat": _HEARTBEAT,
        "newest": newest,
        "before": before,
        "reached": reached,
        "signals": _signals(site) if before == newest + 1 and not any(wanted.values()) else [],
        **wanted,
    }
    return Page("journal.html", context, "Journal", ("journal",))


def _back(hive: Hive, before: int, wanted: Mapping[str, str]) -> tuple[list[tuple[Event, int | None]], int]:
    """(events, newest first, each with the time of the newest up to it that has one, and the number of the oldest that was
    looked at): bounded by rows and by time."""
    rows: list[tuple[Event, int | None]] = []
    until = time.monotonic() + _SEARCH_S
    size = _CHUNK if any(wanted.values()) else 2 * _ROWS
    while before > 1 and len(rows) < _ROWS and time.monotonic() < until:
        start = max(0, before - 1 - size)
        chunk, moment = list[tuple[Event, int | None]](), None
        for event in hive.journal.events(start):
            if event.seq >= before:
                break
            if isinstance(event.payload.get("time"), int):
                moment = event.payload["time"]
            chunk.append((event, moment))
        before, size = start + 1, _CHUNK
        for event, moment in reversed(chunk):
            if _is_wanted(event, wanted):
                rows.append((event, moment))
                if len(rows) == _ROWS:
                    return rows, event.seq
    return rows, before


def _is_wanted(event: Event, wanted: Mapping[str, str]) -> bool:
    kind, agent, task = wanted["kind"], wanted["agent"], wanted["task"]
    told = event.payload
    about = (told.get("task_id"), told.get("task"), str(told.get("step_id", "")).rpartition(".s")[0])
    return (
        (event.kind != _HEARTBEAT if not kind else event.kind == kind or event.kind.startswith(f"{kind}."))
        and (not agent or agent in (told.get("agent_id"), told.get("holder_agent_id")))
        and (not task or task in about)
    )


def _row(event: Event, moment: int | None) -> dict[str, Any]:
    payload = {key: value for key, value in event.payload.items() if key != "time"}
    return {"seq": event.seq, "kind": event.kind, "time": moment, "told": list(_told(payload))}


def _told(payload: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in payload.items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            yield key, text if len(text) <= _VALUE_CHARS else text[:_VALUE_CHARS] + "…"


def _signals(site: Site) -> list[tuple[str, list[SignalFound]]]:
    """What is worth knowing about each task in hand, the gravest first."""
    found = []
    for task in [one for one in site.watch.snapshot().open_tasks if one.state is TaskState.ACTIVE][:_TASKS]:
        with suppress(HivemindError, OSError):
            told = signals(site.hive, task=task.id, limit=5)
            if told:
                found.append((task.id, told))
    return found
