"""A small hive, and the command line in this process and in a separate one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hivemind import Hive
from hivemind.cli import main
from hivemind.mcp_server.member import Member
from hivemind.reasoning import TaskGraph
from tests import program

AGENTS = {"analyst": "role: analyst\n", "researcher": "role: researcher\n", "reviewer": "role: reviewer\n"}


@dataclass(frozen=True)
class Ended:
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Ended]


def make_hive(root: Path, *, durability: str = "relaxed") -> Path:
    """Write hive.yaml and three agents, as a person would."""
    (root / "agents").mkdir(parents=True)
    for name, text in AGENTS.items():
        (root / "agents" / f"{name}.yaml").write_text(text)
    (root / "hive.yaml").write_text(f"version: 1\nworkspace: hive\ndurability: {durability}\n")
    return root


@pytest.fixture
def hive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a hive; commands work in its folder."""
    root = make_hive(tmp_path / "hive")
    monkeypatch.setenv("HIVEMIND_HIVE", str(root))
    return root


@pytest.fixture
def graph(hive: Path) -> TaskGraph:
    """Make the graph of task `t`, claimed by the researcher: two steps, cards in two lanes, one fold, one link."""
    hive_store = Hive.open(hive)
    hive_store.tasks.add("Which lock is it?", id="t", title="Which lock")
    task = hive_store.tasks.claim("researcher")
    assert task is not None
    hive_store.journal.append("task.claimed", task_id="t", agent_id="researcher", title="Which lock")
    hive_store.steps.plan("t", [{"title": "Look"}, {"title": "Decide"}])
    store = TaskGraph(task.path)
    with store.change("researcher") as graph:
        graph.add_node("task", "Which lock is it?", title="Which lock")
        for number, title in ((1, "Look"), (2, "Decide")):
            graph.add_node("subtask", title, title=title, step=f"t.s{number}")
            graph.add_edge(1, number + 1, "decompose")
        for text in ("It is a flock", "It is a lease"):  # 4, 5
            graph.add_node("evidence", text, lane="agent/researcher", step="t.s1")
            graph.add_edge(2, graph.next_id - 1, "support")
        graph.add_node(
            "decision", "Take \x1b[2J the flock", lane="agent/researcher", step="t.s2", status="accepted"
        )  # 6
        graph.add_edge(3, 6)
        graph.add_link(4, 6, "supports")
    with store.change("researcher") as graph:
        graph.fold_nodes([4, 5], "Two kinds of lock")  # 7
    return store


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    """Call the command line in this process."""

    def call(*arguments: str) -> Ended:
        capsys.readouterr()
        try:
            status = main(arguments)
        except SystemExit as exit_error:
            status = int(exit_error.code or 0)
        out, err = capsys.readouterr()
        return Ended(status, out, err)

    return call


@pytest.fixture
def process() -> Command:
    """Run the command line as a process; `given` is its standard input, `more` is added to its environment."""

    def call(*arguments: str, given: bytes = b"", **more: str) -> Ended:
        is_interpreter_setting = any(name.startswith("PYTHON") for name in more)  # only a new interpreter reads these
        completed = program.run(
            arguments,
            start=program.cold if is_interpreter_setting else program.Program,
            input=given,
            capture_output=True,
            env={**os.environ, **more},
            timeout=60,
        )
        return Ended(completed.returncode, completed.stdout.decode(), completed.stderr.decode())

    return call


@pytest.fixture
def call(run: Command, hive: Path) -> Any:
    """Call a tool as an agent would."""

    def call(name: str, arguments: dict[str, Any] | None = None, *, agent: str = "researcher", **more: Any) -> Any:
        told = json.dumps({**(arguments or {}), **more})
        ended = run("tool", "call", name, "--agent", agent, "--arguments", told)
        assert ended.status == 0, (name, ended.out, ended.err)
        return ended.json

    return call


@pytest.fixture
def claude(run: Command, hive: Path) -> Iterator[Member]:
    """A member that has a task of two steps."""
    (hive / "agents/claude.yaml").write_text("mind: mcp\ncommands: ['true']\n")
    (hive / "knowledge").mkdir(exist_ok=True)
    (hive / "knowledge/keel.md").write_text("The keel is of oak.\n")
    run("task", "add", "Build a boat.", "--id", "boat")
    member = Member(Hive.open(hive), "claude", "full")
    member.call("claim_task", {"task": "boat"})
    member.call("plan_steps", {"steps": [{"title": "The keel"}, {"title": "The mast"}]})
    yield member
    member.close()
