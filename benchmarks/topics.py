"""The topics, and running one of them in a separate process, in a fresh folder."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import Row, as_json

__all__ = ["TOPICS", "Outcome", "Topic", "run"]


@dataclass(frozen=True, slots=True)
class Topic:
    """A module with `run(quick: bool) -> list[Row]`."""

    name: str
    title: str
    module: str


def _topic(name: str, title: str) -> Topic:
    return Topic(name, title, f"benchmarks.{name}")


TOPICS: tuple[Topic, ...] = (
    _topic("swarm", "The swarm: start, memory, idling, whole tasks"),
    _topic("commands", "What a person waits for"),
    _topic("messages", "Messages from one process to another"),
    _topic("claims", "Claiming tasks"),
    _topic("leases", "Leases and the journal"),
    _topic("context", "Building a context"),
    _topic("reasoning", "The reasoning graph"),
    _topic("documents", "Document memory"),
    _topic("embedding", "The index of vectors"),
    _topic("longterm", "Long-term memory"),
    _topic("exchange", "Linked hives"),
    _topic("landing", "Landing parallel work"),
    _topic("mcp", "Calls over MCP"),
    _topic("minds", "A turn beside its model's own time"),
    _topic("growth", "How things grow"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a topic: its rows, or the last lines of its process if it failed; the seconds it took."""

    topic: Topic
    rows: tuple[Row, ...]
    seconds: float
    error: str | None = None


def run(topic: Topic, *, quick: bool, folder: Path) -> Outcome:
    """Run a topic in a separate process with the temporary folder `folder` (created, and not removed)."""
    folder.mkdir(parents=True)
    answer = folder / "rows.json"
    command = [sys.executable, "-m", "benchmarks.topics", topic.module, str(answer), *(["--quick"] if quick else [])]
    root = Path(__file__).parent.parent
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": _first(root, os.environ.get("PYTHONPATH"))}
    began = time.monotonic()
    limit = 600 if quick else 7200  # a topic that hangs fails; the others are still reported
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, timeout=limit)
    except subprocess.TimeoutExpired:
        return Outcome(topic, (), limit, f"not done after {limit:,} seconds, and stopped")
    seconds = time.monotonic() - began
    if done.returncode != 0 or not answer.exists():
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        return Outcome(topic, (), seconds, "\n    ".join((f"ended with status {done.returncode}:", "", *lines[-40:])))
    return Outcome(topic, tuple(Row(**fields) for fields in json.loads(answer.read_text())), seconds)


def _first(folder: Path, search_path: str | None) -> str:
    """Return a module search path that begins with `folder`: the benchmark measures this tree, not an installed one."""
    return str(folder) if not search_path else f"{folder}{os.pathsep}{search_path}"


def main(arguments: Iterable[str]) -> None:
    """The process of one topic: MODULE ANSWER [--quick]."""
    module, answer, *options = arguments
    rows = importlib.import_module(module).run(quick="--quick" in options)
    Path(answer).write_text(as_json(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
