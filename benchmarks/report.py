"""A run of the benchmarks as files: JSON and tab-separated rows for programs, Markdown for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from math import log
from pathlib import Path

from benchmarks.machine import Machine
from benchmarks.table import COLUMNS, Row, cells
from benchmarks.topics import Outcome

__all__ = ["Report"]


@dataclass(frozen=True, slots=True)
class Report:
    """One run. `loads` are the averages of the last minute at its beginning, after each topic, and so at its end."""

    began: datetime
    machine: Machine
    quick: bool
    outcomes: Sequence[Outcome]
    loads: Sequence[float]

    @property
    def name(self) -> str:
        """The name of its files: the time and the machine."""
        return f"{self.began:%Y-%m-%d-%H%M}-{self.machine.name}{'-quick' if self.quick else ''}"

    def write(self, path: Path) -> None:
        """Write `path`.json, `path`.tsv and `path`.md."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(path.name + ".json").write_text(self.as_json(), "utf-8")
        path.with_name(path.name + ".tsv").write_text(self.as_rows(), "utf-8")
        path.with_name(path.name + ".md").write_text(self.as_markdown(), "utf-8")

    def as_json(self) -> str:
        topics = [
            {
                "name": outcome.topic.name,
                "title": outcome.topic.title,
                "seconds": round(outcome.seconds, 1),
                "error": outcome.error,
                "rows": [{**asdict(row), "ratio": row.ratio, "met": row.met} for row in outcome.rows],
            }
            for outcome in self.outcomes
        ]
        record = {
            "kind": "benchmarks",
            "version": 1,
            "began": self.began.isoformat(timespec="seconds"),
            "quick": self.quick,
            "machine": asdict(self.machine),
            "loads": [round(load, 2) for load in self.loads],
            "topics": topics,
        }
        return json.dumps(record, indent=1, ensure_ascii=False) + "\n"

    def as_rows(self) -> str:
        """Return all rows, with the topic before each, as tab-separated values."""
        rows: list[tuple[str, ...]] = [("topic", *COLUMNS)]
        rows += [(outcome.topic.name, *cells(row)) for outcome in self.outcomes for row in outcome.rows]
        return "".join("\t".join(row) + "\n" for row in rows)

    def as_markdown(self) -> str:
        """Return a verdict on each topic with its worst miss, and the errors of failed topics."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        machine = self.machine
        yield f"# Benchmarks of {self.began:%Y-%m-%d %H:%M}"
        yield ""
        yield (
            f"{machine.processor}, {machine.cores} cores, {machine.memory_gb} GB, {machine.disk}; "
            f"{machine.system}, Python {machine.python}."
        )
        yield (
            f"Load over the last minute: {self.loads[0]:.1f} at the beginning, {self.loads[-1]:.1f} at the end, "
            f"{max(self.loads):.1f} at most (measuring is part of it; {machine.cores} would be all cores)."
        )
        if self.quick:
            yield "A quick run, for seeing that it runs: few rounds, small sizes."
        yield ""
        yield from self._summary()
        for outcome in self.outcomes:
            if outcome.error is not None:
                yield from (
                    "",
                    f"## {outcome.topic.title}",
                    "",
                    f"Failed after {outcome.seconds:.0f} s: {outcome.error}",
                )

    def _summary(self) -> Iterator[str]:
        rows = [row for outcome in self.outcomes for row in outcome.rows]
        yield f"Targets: {_met(rows)} met. Failed topics: {self._failed_topics()}."
        yield from ("", "| topic | rows | met | worst miss |", "|---|---:|---:|---|")
        for outcome in self.outcomes:
            yield f"| {outcome.topic.name} | {len(outcome.rows)} | {_met(outcome.rows)} | {_worst_miss(outcome.rows)} |"

    def _failed_topics(self) -> str:
        return ", ".join(outcome.topic.name for outcome in self.outcomes if outcome.error is not None) or "none"


def _met(rows: Sequence[Row]) -> str:
    aims = [row for row in rows if row.target is not None]
    return f"{sum(row.met is True for row in aims)} of {len(aims)}" if aims else ""


def _worst_miss(rows: Sequence[Row]) -> str:
    """Return the missed target that is furthest from its value, with both."""
    missed = [(row.target, row) for row in rows if row.target is not None and not row.met]
    if not missed:
        return ""
    target, row = max(missed, key=lambda miss: abs(log((miss[1].value or 1e-9) / (miss[0] or 1e-9))))
    return f"{row.name}: {row.value:.4g} {row.unit}, target {target:g}"
