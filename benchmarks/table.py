"""Rows of measurements and their table: every figure has a baseline measured in the same run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

__all__ = ["COLUMNS", "Row", "as_json", "cells", "lines", "show"]

COLUMNS = ("what", "value", "unit", "target", "beside", "its value", "ratio", "better", "note")


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `ratio` is value / baseline as the reader should see it; `better` says which way is good.

    `target` is in the value's unit; `met` says whether it is reached (None: there is none).
    """

    name: str
    value: float
    unit: str
    baseline: str = ""
    baseline_value: float | None = None
    better: str = "less"
    note: str = ""
    target: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.baseline_value if self.baseline_value else None

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.better == "less" else self.value >= self.target


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    bound = "≤" if row.better == "less" else "≥"
    return f"{bound} {_number(row.target)}{'' if row.met else ' missed'}"


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row, in the order of COLUMNS."""
    ratio = "" if row.ratio is None else _number(row.ratio)
    return (
        row.name, _number(row.value), row.unit, _target(row),
        row.baseline, _number(row.baseline_value), ratio, row.better, row.note,
    )  # fmt: skip


def lines(title: str, rows: Iterable[Row]) -> Iterator[str]:
    """The rows as a Markdown table under a heading."""
    yield f"## {title}"
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---|---:|---|---:|---|---:|---:|---|---|"
    yield from ("| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in rows)


def show(title: str, rows: Iterable[Row]) -> None:
    """Print the rows as a Markdown table."""
    print("", *lines(title, rows), sep="\n", flush=True)


def as_json(rows: Iterable[Row]) -> str:
    """The rows as JSON: a list of their fields."""
    return json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False)
