"""The page of costs: tokens and money by day and by agent, task or model."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Any

from hivemind.web.index import TokenUse
from hivemind.web.site import Page, PageQuery, Site

_DAY_S = 86_400
_GROUPINGS = {"agent": "by agent", "task": "by task", "model": "by model"}
_DAYS = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "a year"}
_MAX_CURVES = 8  # all further names share one more curve
_MAX_ROWS = 100


def show_costs(site: Site, query: PageQuery) -> Page:
    """Build a table of the costs of the last `days` days `by` agent, task or model (parameters of the query), and
    curves of the highest costs."""
    grouping, days = query.choice("by", _GROUPINGS, "agent"), int(query.choice("days", _DAYS, "30"))
    today = int(time.time() // _DAY_S)
    usage = site.index.usage_by(grouping, (today - days + 1) * _DAY_S)
    totals: dict[str, TokenUse] = defaultdict(TokenUse)
    grand_total = TokenUse()
    for (_, name), token_use in usage.items():
        for total in (totals[name], grand_total):
            total.add(token_use)
    unit = "money" if grand_total.money else "tokens" if grand_total.tokens else "turns"
    rows = sorted(totals.items(), key=lambda pair: (-getattr(pair[1], unit), -pair[1].turns, pair[0]))
    seen, task_count = site.index.progress
    context: dict[str, Any] = {
        "by": grouping,
        "bys": _GROUPINGS,
        "days": str(days),
        "spans": _DAYS,
        "what": unit,
        "rows": rows[:_MAX_ROWS],
        "rest": max(0, len(rows) - _MAX_ROWS),
        "whole": grand_total,
        "curve": _curve_json(usage, [name for name, _ in rows], today, days, unit),
        "indexed": seen,
        "there": task_count,
    }
    return Page("costs.html", context, "Costs", ("index",))


def _curve_json(usage: dict[tuple[int, str], TokenUse], names: list[str], today: int, days: int, unit: str) -> str:
    """Return the data of the curves as JSON: the days up to `today`, and for each name its value in `unit` on each day.

    Only the first names have a curve of their own; one curve has the sum of the others.
    """
    span = range(today - days + 1, today + 1)
    curve_names, other_names = names[:_MAX_CURVES], set(names[_MAX_CURVES:])
    lines = [(name, [getattr(usage.get((day, name), TokenUse()), unit) for day in span]) for name in curve_names]
    if other_names:
        other_totals: dict[int, float] = defaultdict(float)
        for (day, name), token_use in usage.items():
            other_totals[day] += getattr(token_use, unit) if name in other_names else 0
        lines.append(("others", [other_totals[day] for day in span]))
    return json.dumps(
        {
            "days": [day * _DAY_S for day in span],
            "lines": [{"name": name or "no task", "values": values} for name, values in lines],
            "what": unit,
        }
    )
