"""Check the graphs of tasks: find logs that are missing or cannot be read to their end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import write
from hivemind.fs.integrity import Aside, DoctorFinding
from hivemind.reasoning.graph_log import LOG_NAME
from hivemind.reasoning.task_graph import SNAPSHOT_NAME, TaskGraph


def check_graph(folder: Path, aside: Aside) -> Iterator[DoctorFinding]:
    """Yield a finding if the graph.jsonl in a task's folder is lost or cannot be read to its end. `aside` receives
    damaged files."""
    log = folder / LOG_NAME
    if not log.is_file() or log.stat().st_size == 0:
        if (folder / SNAPSHOT_NAME).is_file() and _has_nodes(folder / SNAPSHOT_NAME):
            message = f"is missing or empty: only {SNAPSHOT_NAME} still contains the task's graph"
            remedy = "restore it from a copy, so `hivemind graph show` can show the graph"
            yield DoctorFinding(log, message, remedy, note=True)
        return
    try:
        _ = TaskGraph(folder).graph
    except UnknownVersion as error:
        yield DoctorFinding(log, error.message, error.remedy or "move the file away")
    except UserError as error:
        # The log's error names a line, numbered from 1; without a number the whole file is unreadable.
        number = (error.location or "").rpartition(":")[2]
        intact_lines = int(number) - 1 if number.isdecimal() else 0
        yield DoctorFinding(
            Path(f"{log}:{number}") if number.isdecimal() else log,
            f"{error.message}: the graph cannot be opened",
            f"restore it from a copy, or hivemind doctor --fix sets it aside and keeps its first {intact_lines} lines",
            partial(_truncate_log, log, intact_lines, aside),
            quiet=True,
        )


def _has_nodes(snapshot: Path) -> bool:
    """Return False for the snapshot of an empty graph: a task without nodes has that snapshot and no log."""
    with suppress(Unreadable), boundary("snapshot", snapshot):
        return bool(json.loads(snapshot.read_bytes())["nodes"])
    return True


def _truncate_log(log: Path, intact_lines: int, aside: Aside) -> str:
    lines = log.read_bytes().split(b"\n")[:intact_lines]
    summary = aside.set_aside(log)
    if intact_lines > 1:  # the first line is the file's header
        write(log, b"\n".join(lines) + b"\n")
    return f"{summary}; {intact_lines if intact_lines > 1 else 0} lines kept"
