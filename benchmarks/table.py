"""Rows of measurements and how they are shown: every figure stands beside a baseline measured in the same run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

__all__ = ["Row", "as_json", "show"]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `ratio` is value / baseline as the reader should see it; `better` says which way is good."""

    name: str
    value: float
    unit: str
    baseline: str = ""
    baseline_value: float | None = None
    better: str = "less"
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.baseline_value if self.baseline_value else None


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(title: str, rows: Iterable[Row]) -> None:
    """Print the rows as a Markdown table."""
    print(f"\n## {title}\n")
    print("| what | value | unit | beside | its value | ratio | better |")
    print("|---|---:|---|---|---:|---:|---|")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        cells = (row.name, _number(row.value), row.unit, row.baseline, _number(row.baseline_value), ratio, row.better)
        print("| " + " | ".join(cells) + " |" + (f" {row.note}" if row.note else ""))


def as_json(rows: Iterable[Row]) -> str:
    return json.dumps([asdict(row) for row in rows], indent=1)
