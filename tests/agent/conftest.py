"""A hive of one agent that takes its turns in this process, with a mind that the test is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.errors import HivemindError
from hivemind.minds import Thought, ToolCall, Turn
from hivemind.presence.identity import journal_start
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.waits import Parking
from tests.messages import calls_of


class Mind:
    """Think with a function; count the calls."""

    def __init__(self, think: Callable[[Any], Thought]) -> None:
        self.asked = 0
        self._think = think

    def think(self, turn: Turn, tools: Any) -> Thought:
        self.asked += 1
        return self._think(turn)

    def complete(self, text: str, schema: Any = None) -> str:
        return text


class Crew:
    """Agents of a hive, opened and closed as processes would, and what a person does around them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        Hive.init(root)
        (root / ".hive" / "workspace.json").unlink()  # it names the folder: the scenes are copied about
        self.configure()
        for path in [*(root / "agents").glob("*.yaml"), *(root / "knowledge").rglob("*.*")]:
            path.unlink()
        self.agent_file("role: analyst\n")
        self._agents: list[Agent] = []

    def configure(self, more: str = "") -> None:
        (self.root / "hive.yaml").write_text(f"durability: relaxed\nsettle_ms: 0\nguard: crew\n{more}")

    def agent_file(self, text: str, name: str = "ada") -> None:
        (self.root / "agents" / f"{name}.yaml").write_text(text)

    def start(self, think: Callable[[Any], Thought] | None = None, name: str = "ada") -> Agent:
        """Start an agent in a hive that is opened again, as a new process would."""
        hive = Hive.open(self.root)
        agent = Agent(hive, name, journal_start(hive.journal, name, os.getpid()))
        if think is not None:
            agent.mind = Mind(think)
        agent.scheduler.active_tasks.resume()
        self._agents.append(agent)
        return agent

    def end(self, agent: Agent) -> None:
        self._agents.remove(agent)
        agent.close()

    def drop(self, text: str, name: str = "t.md") -> None:
        (self.root / "tasks" / "inbox" / name).write_text(text)

    def write(self, text: str = "Hello?\n", name: str = "letter", box: str = "ada") -> None:
        """A message by hand."""
        folder = self.root / "mailboxes" / box / "new"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def events(self, kind: str) -> list[Any]:
        return [event for event in Hive.open(self.root).journal.events() if event.kind == kind]

    def close(self) -> None:
        while self._agents:
            self._agents.pop().close()


def until_idle(agent: Agent, turns: int = 200) -> int:
    """Take turns until the agent is idle, and return their number. Errors are not caught, unlike in the agent's loop."""
    for turn in range(turns):
        if not agent.cycle():
            return turn
    raise AssertionError(f"still busy after {turns} turns")


def doing(*actions: tuple[str, dict[str, Any]]) -> Callable[[Any], Thought]:
    """Return a mind that makes the same calls in every turn."""
    return lambda turn: Thought("", tuple(ToolCall(tool, arguments) for tool, arguments in actions))


def hands(crew: Crew, task: str = "---\nsteps: [{title: x}]\n---\nx\n") -> Callable[..., dict[str, Any]]:
    """Return a function that uses a tool of an agent with a task of one step, and returns the result or the error."""
    crew.drop(task)
    return using_tools(crew.start())


def using_tools(agent: Agent) -> Callable[..., dict[str, Any]]:
    """Return a function that uses a tool on the focus of the agent's next turn."""
    agent.scheduler.sense()
    focus = agent.scheduler.scope(reads=agent.metered_mind.reads, keep=agent.memory.keep_message) or Focus("rest")

    def use(tool: str, **arguments: Any) -> dict[str, Any]:
        agent.lease.take(focus)
        call = {"tool": tool, "arguments": arguments}
        try:
            return {**call, "result": agent.tools[tool].call(agent.tool_context(focus), arguments)}
        except Parking as parking:
            return {**call, "parked": parking.reason}
        except HivemindError as error:
            return {**call, "error": str(error), "result": getattr(error, "result", {})}

    return use


def wants(agent: Agent, *actions: tuple[str, dict[str, Any]], task: str = "t") -> dict[str, Any]:
    """Take one turn with these calls and return the last call of the task's conversation: tool, arguments, ok, text, result,
    error. If the task waits, return `parked` with the reason instead."""
    agent.mind = Mind(doing(*actions))
    assert agent.cycle()
    parked_task = agent.hive.tasks.get(task)
    call = next(reversed(calls_of(parked_task.path)), {})
    return {**call, "parked": parked_task.parked.reason} if parked_task.parked and "ok" not in call else call


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path / "hive")
    yield crew
    crew.close()
