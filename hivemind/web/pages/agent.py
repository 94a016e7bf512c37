"""One agent: what it does, what its context would be now and why, its history, what it costs."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import islice
from typing import Any

from hivemind.agent.preview import preview_context
from hivemind.errors import HivemindError, UserError
from hivemind.presence.agent_log import AgentLog
from hivemind.swarm.overview import leases_now
from hivemind.tasks import TaskState
from hivemind.web.drawing.bars import budget_parts, draw_budget
from hivemind.web.pages.now import agent_rows
from hivemind.web.site import Page, Site

_DAY_S = 86_400
_SHOWN = 60
_HISTORY = 25
_TEXT_CHARS = 1_200


def agent(site: Site, name: str) -> Page:
    """The page of one agent. Raises UserError if there is none of that name."""
    hive = site.hive
    snapshot = site.watch.snapshot()
    row = next((one for one in agent_rows(site, snapshot.agents) if one["agent"].name == name), None)
    if row is None:
        raise UserError("there is no such agent", location=name, remedy="the first page has them all")
    preview, problem = None, None
    if name in hive.agents:
        try:
            preview = preview_context(hive, name)
        except (HivemindError, OSError) as error:
            problem = str(error)
    blocks = [] if preview is None else preview.choices()
    parts = [] if preview is None else budget_parts(preview)
    since = time.time() - 7 * _DAY_S
    used = {day: one for (day, who), one in site.index.used_by("agent", since).items() if who == name}
    context: dict[str, Any] = {
        "row": row,
        "agent": row["agent"],
        "config": hive.agents.get(name),
        "preview": preview,
        "problem": problem,
        "budget": None if preview is None else draw_budget(parts, preview.budget),
        "blocks": blocks[:_SHOWN],
        "block_count": len(blocks),
        "leases": leases_now(hive, name) if name in hive.agents else (),
        "tasks": [one for one in snapshot.open_tasks if one.owner == name and one.state is TaskState.ACTIVE],
        "history": _history(site, name),
        "used": sorted(used.items(), reverse=True),
        "day_s": _DAY_S,
    }
    return Page("agent.html", context, name, ("agents",))


def _history(site: Site, name: str) -> list[dict[str, Any]]:
    """What it did last that belongs to no task, newest first."""
    records: list[dict[str, Any]] = []
    with suppress(HivemindError, OSError):
        log = AgentLog(site.hive.layout.agent_state(name))
        records = [one for one in log.read() if one.get("kind") == "turn"]
    return [
        {
            "at": one.get("at"),
            "time": one.get("time"),
            "text": str(one.get("text") or "")[:_TEXT_CHARS],
            "calls": ", ".join(str(call.get("tool")) for call in one.get("calls") or () if isinstance(call, dict)),
        }
        for one in islice(reversed(records), _HISTORY)
    ]
