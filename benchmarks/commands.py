"""Waiting times at the command line and of an MCP client: start times, the first answer, a full inbox.

Run as `python -m benchmarks.commands [--quick]`. Every command is a separate process, as a person starts it, in turn with
a process that only imports what any program of this kind needs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.hives import new_hive, up
from benchmarks.processes import until
from benchmarks.table import Row, show
from hivemind.hive import Hive
from hivemind.layout import Layout
from hivemind.tasks import Tasks

__all__ = ["run"]

_IMPORTS = "import pydantic, yaml; pydantic.BaseModel"
_COMMANDS = ((("--version",), 80), (("status",), 120), (("task", "list"), 120), (("task", "add", "Look at it"), 120))
_AT_A_TERMINAL = "import pty, sys; pty.spawn([sys.executable, '-m', 'hivemind', 'task', 'list'])"
_CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


def _new(agent: str = "role: worker\n") -> Layout:
    layout = new_hive(agent, "full", "# Pumps\n\nPump number seven drips, as its gasket is worn out.\n")
    Hive.open(layout.root)
    return layout


def _python(root: Path, *arguments: str) -> tuple[float, float]:
    """Run a Python; return its seconds on the clock and of the processor."""
    before, began = os.times(), time.perf_counter()
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    took, now = time.perf_counter() - began, os.times()
    return took, now.children_user + now.children_system - before.children_user - before.children_system


def _starts(rounds: int) -> Iterator[Row]:
    """Measure commands in a hive in which a task has ended."""
    layout = _new()
    tasks = Hive.open(layout.root).tasks
    tasks.add("Look at the pump.")
    task = tasks.claim("w")
    assert task is not None
    tasks.finish(task, "It drips.")
    plain: list[tuple[float, float]] = []
    took: dict[Sequence[str], list[tuple[float, float]]] = {command: [] for command, _ in _COMMANDS}
    for _ in range(rounds):  # interleaved: a machine that slows down slows all of them
        plain.append(_python(layout.root, "-c", _IMPORTS))
        for command, times in took.items():
            times.append(_python(layout.root, "-m", "hivemind", *command))
    floor = statistics.median(wall_s for wall_s, _ in plain) * 1000
    for command, target in _COMMANDS:
        wall, processor = (statistics.median(times) * 1000 for times in zip(*took[command], strict=True))
        name = f"hivemind {' '.join(command[:2])}"
        yield Row(
            name, wall, "ms", "importing pydantic, yaml", floor, note=f"processor {processor:.0f} ms", target=target
        )


def _first_answer(rounds: int) -> Iterator[Row]:
    """From the command `up` in a hive that was just made to the result of the question that waits there."""
    took = []
    for _ in range(rounds):
        layout = _new()
        (layout.inbox / "q.md").write_text("# Why does pump number seven drip?\n")
        began = time.perf_counter()
        with up(layout.root):
            until((layout.done / "q" / "result.md").exists, pause_s=0.005)
            took.append(time.perf_counter() - began)
    yield Row("first answer of a new hive, from the command", statistics.median(took) * 1000, "ms", target=1500)


def _inbox(count: int) -> Iterator[Row]:
    layout = _new()
    for number in range(count):
        (layout.inbox / f"t{number}.md").write_text(f"# Look at pump {number}\n")
    listing_s, _ = _python(layout.root, "-c", _AT_A_TERMINAL)
    began = time.perf_counter()
    Tasks(layout).recovery.drops.take("w")
    first = time.perf_counter() - began
    began = time.perf_counter()
    for entry in os.scandir(layout.inbox):
        Path(entry.path).read_bytes()
    floor = time.perf_counter() - began
    yield Row(f"first claim, {count:,} files in the inbox", first, "s", "listing and reading them", floor, target=1)
    yield Row(
        f"hivemind task list at a terminal, {count:,} files in the inbox",
        listing_s,
        "s",
        "listing and reading them",
        floor,
        target=1,
    )


def _door(rounds: int) -> Iterator[Row]:
    """An MCP server's first answers, over stdio."""
    layout = _new("role: worker\nmind: mcp\n")
    hive_times, empty = [], []
    for _ in range(rounds):  # interleaved
        hive_times.append(_first_answers("hivemind", "--hive", str(layout.root), "mcp", "--agent", "w"))
        empty.append(_first_answers("benchmarks.mcp_empty", "stdio"))
    for at, (call, target) in enumerate((("initialize", 300), ("its tools", 1000))):
        took, floor = (statistics.median(times[at] for times in runs) * 1000 for runs in (hive_times, empty))
        yield Row(f"MCP server: {call}, from the command", took, "ms", "the SDK's empty server", floor, target=target)


def _first_answers(*words: str) -> tuple[float, float]:
    """Return the seconds from the start of a server to its answers to `initialize` and `tools/list`."""
    began, took = time.perf_counter(), []
    with subprocess.Popen(
        [sys.executable, "-m", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for number, (method, parameters) in enumerate((("initialize", _CLIENT), ("tools/list", {})), 1):
            server.stdin.write(_line({"id": number, "method": method, "params": parameters}))
            server.stdin.flush()
            answer = json.loads(server.stdout.readline())
            assert "result" in answer, answer
            took.append(time.perf_counter() - began)
            server.stdin.write(_line({"method": "notifications/initialized"}))
        server.stdin.close()
    return took[0], took[1]


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def run(quick: bool = False) -> list[Row]:
    """The rows; about a minute, with `quick` some seconds."""
    rounds = 1 if quick else 7
    rows = [*_starts(rounds), *_first_answer(rounds), *_door(rounds)]
    return rows + list(_inbox(200 if quick else 50_000))


if __name__ == "__main__":
    show("What a person waits for", run(quick="--quick" in sys.argv))
