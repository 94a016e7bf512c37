"""What was used up: tokens and money by day, agent, task and model."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Any

from hivemind.web.index import TokenUse
from hivemind.web.site import Page, PageQuery, Site

_DAY_S = 86_400
_BY = {"agent": "by agent", "task": "by task", "model": "by model"}
_DAYS = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "a year"}
_LINES = 8  # of the curve; the others together are one more
_ROWS = 100


def costs(site: Site, query: PageQuery) -> Page:
    """The last `days` days, `by` agent, task or model: a table, and a curve for each of those that used most."""
    by, days = query.choice("by", _BY, "agent"), int(query.choice("days", _DAYS, "30"))
    today = int(time.time() // _DAY_S)
    used = site.index.used_by(by, (today - days + 1) * _DAY_S)
    totals: dict[str, TokenUse] = defaultdict(TokenUse)
    whole = TokenUse()
    for (_, name), one in used.items():
        for total in (totals[name], whole):
            total.add(one)
    what = "money" if whole.money else "tokens" if whole.tokens else "turns"
    ranked = sorted(totals.items(), key=lambda one: (-getattr(one[1], what), -one[1].turns, one[0]))
    seen, there = site.index.progress
    context: dict[str, Any] = {
        "by": by,
        "bys": _BY,
        "days": str(days),
        "spans": _DAYS,
        "what": what,
        "rows": ranked[:_ROWS],
        "rest": max(0, len(ranked) - _ROWS),
        "whole": whole,
        "curve": _curve(used, [name for name, _ in ranked], today, days, what),
        "unread": there - seen,
        "there": there,
    }
    return Page("costs.html", context, "Costs", ("index",))


def _curve(used: dict[tuple[int, str], TokenUse], names: list[str], today: int, days: int, what: str) -> str:
    """What the curves are drawn from, as JSON: days, and for each name its numbers."""
    span = range(today - days + 1, today + 1)
    shown, others = names[:_LINES], set(names[_LINES:])
    lines = [(name, [getattr(used.get((day, name), TokenUse()), what) for day in span]) for name in shown]
    if others:
        rest: dict[int, float] = defaultdict(float)
        for (day, name), one in used.items():
            rest[day] += getattr(one, what) if name in others else 0
        lines.append(("others", [rest[day] for day in span]))
    return json.dumps(
        {
            "days": [day * _DAY_S for day in span],
            "lines": [{"name": name or "no task", "values": values} for name, values in lines],
            "what": what,
        }
    )
