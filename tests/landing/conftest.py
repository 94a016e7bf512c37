"""A hive with a repository in which finished work lands: agents that do what a test says, and the lander in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.fs.sockets import wait_for_input
from hivemind.landing.lander import Lander
from hivemind.landing.reverts import claim_tasks, resume_claims
from hivemind.minds import Thought, ToolCall
from tests.agent.conftest import Crew, Mind
from tests.agent.test_worktree import Repo


class Harbour:
    """A crew, the person's repository, and the lander."""

    def __init__(self, crew: Crew, repo: Repo) -> None:
        self.crew, self.repo, self.root = crew, repo, crew.root
        self.settings: dict[str, Any] = {"path": "../app", "worktree": True, "land": "auto"}
        self._agents: dict[str, Agent] = {}
        self.configure()

    def configure(self, **settings: Any) -> None:
        """Change the settings of the root, and restart the agents that are used next."""
        self.settings = {**self.settings, **settings}
        self.crew.configure(f"roots: {json.dumps([self.settings])}\n")
        self.close()

    def close(self) -> None:
        for agent in self._agents.values():
            self.crew.end(agent)
        self._agents.clear()

    def agent(self, name: str = "ada") -> Agent:
        if name not in self._agents:
            self.crew.agent_file("shell: true\nrole: builder\n", name)
            self._agents[name] = self.crew.start(lambda turn: Thought(), name)
        return self._agents[name]

    def turn(self, *calls: tuple[str, dict[str, Any]], by: str = "ada") -> None:
        """One turn in which the agent's mind makes these calls."""
        agent = self.agent(by)
        agent.mind = Mind(lambda turn: Thought("", tuple(ToolCall(tool, arguments) for tool, arguments in calls)))
        assert agent.cycle()

    def work(self, task: str, by: str = "ada", head: str = "", **files: str) -> None:
        """Drop a task; an agent writes the files and finishes it."""
        self.agent(by)
        self.crew.drop(f"---\nassignee: {by}\n{head}---\nDo {task}.\n", f"{task}.md")
        self.turn(*writes(**files), *FINISH, by=by)

    def land(self) -> None:
        """Run the lander until no task can land."""
        with_hive(self.root)

    def state(self, task: str) -> str:
        """The folder that the task is in."""
        return Hive.open(self.root).tasks.get(task).state.value

    def reason(self, task: str) -> str:
        """The reason why a task waits; empty if it does not."""
        parked = Hive.open(self.root).tasks.get(task).parked
        return "" if parked is None else parked.reason

    def entry(self, task: str) -> dict[str, Any]:
        return dict(Hive.open(self.root).tasks.get(task).kept["landing"])

    def result(self, task: str) -> str:
        return (self.root / "tasks/done" / task / "result.md").read_text()

    def events(self) -> list[tuple[str, str]]:
        """The events of landings: their last word and the task."""
        events = Hive.open(self.root).journal.events()
        return [
            (e.kind.partition(".")[2], e.payload.get("task_id", "")) for e in events if e.kind.startswith("landing.")
        ]


def with_hive(root: Path) -> Lander:
    """Step a new lander until it rests."""
    hive = Hive.open(root)
    resume_claims(hive)
    claim_tasks(hive)
    lander = Lander(hive)
    try:
        lander.step()
        while lander.is_busy:
            if lander.processes:
                wait_for_input(lander.processes, 1)
            lander.step()
    finally:
        lander.close()
    return lander


FINISH = (("finish_step", {}), ("finish_task", {"result": "Done."}))


def writes(**files: str) -> list[tuple[str, dict[str, Any]]]:
    """Calls that write files; `__` in a name means `/`."""
    return [("write_file", {"path": name.replace("__", "/"), "text": text}) for name, text in files.items()]


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path / "hive")
    yield crew
    crew.close()


@pytest.fixture
def harbour(crew: Crew, tmp_path: Path) -> Iterator[Harbour]:
    repo = Repo(tmp_path / "app")
    repo.commit(boat="a boat\n", src__sail="a sail\n")
    harbour = Harbour(crew, repo)
    yield harbour
    harbour.close()
