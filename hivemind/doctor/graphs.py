"""The graphs of tasks: readable from the first line to the last (hivemind/reasoning/README.md, *graph.jsonl*)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import write
from hivemind.reasoning import LOG_NAME, SNAPSHOT_NAME, TaskGraph

__all__ = ["check_graphs"]

_NAME = "graphs"


def check_graphs(patient: Patient) -> Iterator[Finding]:
    """graph.jsonl of every task that has one, or should have."""
    layout = patient.layout
    for place in (layout.active, layout.done, layout.failed, layout.inbox):
        for folder in sorted(place.glob("[!.]*/")) if place.is_dir() else ():
            log = folder / LOG_NAME
            if not log.is_file() or log.stat().st_size == 0:
                if (folder / SNAPSHOT_NAME).is_file():
                    yield _without_log(patient, log)
                continue
            try:
                _ = TaskGraph(folder).graph
            except UnknownVersion as error:
                yield Finding(_NAME, layout.relative(log), error.what, error.mend or "move the file away")
            except UserError as error:
                yield _damaged(patient, log, error)


def _without_log(patient: Patient, log: Path) -> Finding:
    return Finding(
        _NAME,
        patient.layout.relative(log),
        f"is gone or empty: what the task's graph was stands in {SNAPSHOT_NAME} alone",
        "put it back from a copy, if `hivemind graph show` is to show the graph",
        note=True,
    )


def _damaged(patient: Patient, log: Path, error: UserError) -> Finding:
    """Lines are numbered from 1 in what the log says of itself; without a number nothing of it can be read."""
    number = (error.where or "").rpartition(":")[2]
    good = int(number) - 1 if number.isdecimal() else 0
    return Finding(
        _NAME,
        patient.layout.relative(log) + (f":{number}" if number.isdecimal() else ""),
        f"{error.what}: the graph cannot be opened",
        f"put it back from a copy, or hivemind doctor --fix sets it aside and goes on with its first {good} lines",
        partial(_cut, patient, log, good),
        quiet=True,
    )


def _cut(patient: Patient, log: Path, good: int) -> str:
    lines = log.read_bytes().split(b"\n")[:good]
    said = patient.aside.take(log)
    if good > 1:  # the first one says what the file is; alone it says nothing
        write(log, b"\n".join(lines) + b"\n", durable=patient.durable)
    return f"{said}; {good if good > 1 else 0} lines go on"
