"""A real hive with real processes. There are no mocks. Tests wait for events, with a generous limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.swarm.overview import AgentOverview, agents_now
from tests.program import Program, Start, run
from tests.waiting import until

LIMIT_S = 60

KNOWLEDGE = """---
title: Boats
---
# Boats

## Rowing boats
A rowing boat is moved with oars by the people who sit in it.

## Sailing boats
A sailing boat needs wind and has a keel that keeps it upright.
"""


class Swarm:
    """A hive in a folder, and the command line to work on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.processes: list[subprocess.Popen[str]] = []
        self.starts: Start = Program

    def run(self, *arguments: str, status: int | None = 0, **environment: str) -> str:
        """Run one command to its end and return its output."""
        done = run(
            arguments, start=self.starts, capture_output=True, text=True, cwd=self.root, timeout=LIMIT_S * 2,
            env=self._environment(environment),
        )  # fmt: skip
        if status is not None:
            assert done.returncode == status, f"{arguments} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.errors = done.stderr
        return done.stdout

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command and leave it running."""
        log = open(self.root / f"started-{len(self.processes)}.log", "w")  # noqa: SIM115 - the child keeps it
        process = self.starts(
            arguments, cwd=self.root, env=self._environment(environment), text=True, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        log.close()
        self.processes.append(process)
        return process

    def configure(self, **values: object) -> None:
        """Set keys of hive.yaml."""
        (self.root / "hive.yaml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items()))

    def task(self, name: str) -> str:
        """Return the state of a task, which is the parent of its folder."""
        for state in ("active", "done", "failed"):
            if (self.root / "tasks" / state / name).is_dir():
                return state
        return "inbox" if list((self.root / "tasks" / "inbox").glob(f"{name}*")) else "nowhere"

    def result(self, name: str) -> str:
        return (self.root / "tasks" / "done" / name / "result.md").read_text()

    def error(self, name: str) -> str:
        return (self.root / "tasks" / "failed" / name / "error.md").read_text()

    def drop(self, name: str, text: str) -> None:
        (self.root / "tasks" / "inbox" / name).write_text(text)

    def events(self) -> list[dict]:
        lines = [
            line
            for path in sorted((self.root / ".hive/journal").glob("*.jsonl"))
            for line in path.read_text().splitlines()[1:]
        ]
        lines_of_events = [json.loads(line) for line in lines]
        return [event for line in lines_of_events for event in (line if isinstance(line, list) else [line])]

    def pid_of(self, agent: str) -> int | None:
        """Return the process of an agent, if it lives."""
        return next((status.pid for status in self.agents() if status.name == agent), None)

    def agents(self) -> tuple[AgentOverview, ...]:
        """Return the rows of `agent list`, without starting a process that would compete with the agents."""
        return agents_now(Hive.look(self.root))

    def wait(self, condition, condition_name: str = "what was waited for"):
        return until(condition, lambda: f"{condition_name} did not happen\n{self.logs()}", LIMIT_S)

    def logs(self) -> str:
        paths = [*self.root.glob("started-*.log"), *(self.root / ".hive/logs").glob("*.log")]
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in paths)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        for pid in self.agents_alive():
            os.kill(pid, signal.SIGKILL)

    def agents_alive(self) -> list[int]:
        """Return the live processes of this hive's agents."""
        pids = []
        for lock in (self.root / ".hive/locks").glob("agent-*.lock"):
            text = lock.read_text()
            pid = json.loads(text).get("pid") if text else None
            if pid and is_alive(pid):
                pids.append(pid)
        return pids

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        return {**os.environ, "HIVEMIND_HIVE": str(self.root), **more}


def is_alive(pid: int) -> bool:
    """Check that a process lives. A zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def hive(tmp_path):
    """A hive with three agents and a little knowledge."""
    swarm = Swarm(tmp_path / "hive")
    Hive.init(swarm.root)
    for path in (swarm.root / "knowledge").rglob("*.md"):
        path.unlink()
    (swarm.root / "knowledge" / "boats.md").write_text(KNOWLEDGE)
    yield swarm
    swarm.end()
