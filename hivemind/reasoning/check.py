"""What may be wrong with the graphs of tasks: a log that cannot be read to its end, or is gone (README, *graph.jsonl*)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import write
from hivemind.fs.check import Aside, Finding
from hivemind.reasoning.graph_log import LOG_NAME
from hivemind.reasoning.task_graph import SNAPSHOT_NAME, TaskGraph


def check_graph(folder: Path, aside: Aside, *, durable: bool) -> Iterator[Finding]:
    """graph.jsonl of a task that has one, or should have."""
    log = folder / LOG_NAME
    if not log.is_file() or log.stat().st_size == 0:
        if (folder / SNAPSHOT_NAME).is_file() and _has_nodes(folder / SNAPSHOT_NAME):
            what = f"is gone or empty: what the task's graph was stands in {SNAPSHOT_NAME} alone"
            mend = "put it back from a copy, if `hivemind graph show` is to show the graph"
            yield Finding(log, what, mend, note=True)
        return
    try:
        _ = TaskGraph(folder).graph
    except UnknownVersion as error:
        yield Finding(log, error.what, error.mend or "move the file away")
    except UserError as error:
        # Lines are numbered from 1 in what the log says of itself; without a number nothing of it can be read.
        number = (error.where or "").rpartition(":")[2]
        good = int(number) - 1 if number.isdecimal() else 0
        yield Finding(
            Path(f"{log}:{number}") if number.isdecimal() else log,
            f"{error.what}: the graph cannot be opened",
            f"put it back from a copy, or hivemind doctor --fix sets it aside and goes on with its first {good} lines",
            partial(_cut, log, good, aside, durable),
            quiet=True,
        )


def _has_nodes(snapshot: Path) -> bool:
    """Whether a task has a graph; one whose mind noted nothing in it has the snapshot of an empty one, and no log."""
    with suppress(Unreadable), boundary("snapshot", snapshot):
        return bool(json.loads(snapshot.read_bytes())["nodes"])
    return True


def _cut(log: Path, good: int, aside: Aside, durable: bool) -> str:
    lines = log.read_bytes().split(b"\n")[:good]
    said = aside.take(log)
    if good > 1:  # the first one says what the file is; alone it says nothing
        write(log, b"\n".join(lines) + b"\n", durable=durable)
    return f"{said}; {good if good > 1 else 0} lines go on"
