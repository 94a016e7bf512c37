"""The page of one agent: its state, a preview of its context with the reasons, its history and its costs."""

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
_MAX_BLOCKS = 60
_MAX_HISTORY = 25
_TEXT_CHARS = 1_200


def show_agent(site: Site, name: str) -> Page:
    """Build the page of one agent. Raises UserError if the agent does not exist."""
    hive = site.hive
    snapshot = site.watch.snapshot()
    row = next((candidate for candidate in agent_rows(site, snapshot.agents) if candidate["agent"].name == name), None)
    if row is None:
        raise UserError("this agent does not exist", location=name, remedy="the first page lists all agents")
    preview, problem = None, None
    if name in hive.agents:
        try:
            preview = preview_context(hive, name)
        except (HivemindError, OSError) as error:
            problem = str(error)
    blocks = [] if preview is None else preview.choices()
    parts = [] if preview is None else budget_parts(preview)
    since = time.time() - 7 * _DAY_S
    usage_by_day = {
        day: usage for (day, agent_name), usage in site.index.usage_by("agent", since).items() if agent_name == name
    }
    context: dict[str, Any] = {
        "row": row,
        "agent": row["agent"],
        "config": hive.agents.get(name),
        "preview": preview,
        "problem": problem,
        "budget": None if preview is None else draw_budget(parts, preview.budget),
        "blocks": blocks[:_MAX_BLOCKS],
        "block_count": len(blocks),
        "leases": leases_now(hive, name) if name in hive.agents else (),
        "tasks": [task for task in snapshot.open_tasks if task.owner == name and task.state is TaskState.ACTIVE],
        "history": _recent_turns(site, name),
        "used": sorted(usage_by_day.items(), reverse=True),
        "day_s": _DAY_S,
    }
    return Page("agent.html", context, name, ("agents",))


def _recent_turns(site: Site, name: str) -> list[dict[str, Any]]:
    """Return the last turns that the agent took outside tasks, newest first."""
    records: list[dict[str, Any]] = []
    with suppress(HivemindError, OSError):
        log = AgentLog(site.hive.layout.agent_state(name))
        records = [record for record in log.read() if record.get("kind") == "turn"]
    return [
        {
            "at": record.get("at"),
            "time": record.get("time"),
            "text": str(record.get("text") or "")[:_TEXT_CHARS],
            "calls": ", ".join(str(call.get("tool")) for call in record.get("calls") or () if isinstance(call, dict)),
        }
        for record in islice(reversed(records), _MAX_HISTORY)
    ]
