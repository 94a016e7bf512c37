"""A hive with a repository whose tests need a variable, and a model that a test plays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.agent.preview import preview_context
from hivemind.layout import Layout
from hivemind.lessons.choice import book_of
from hivemind.lessons.record import make_lessons_folder
from hivemind.lessons.tracked_lesson import TrackedLesson
from tests.agent.conftest import Crew, until_idle
from tests.agent.conftest import crew as crew_of_agents
from tests.agent.test_worktree import Repo
from tests.minds.server import Request, model_server

__all__ = ["crew_of_agents"]
TRAP = 'test -n "$APP_ENV" || { echo APP_ENV is missing; exit 2; }\n'


class Project:
    """A crew at a repository, with a model that makes the calls of a script, task by task."""

    def __init__(self, crew: Crew, folder: Path, server) -> None:
        self.crew, self.server, self.questions = crew, server, list[Request]()
        self.answer = "[]"
        self.repo = Repo(folder / "app")
        self.repo.commit(**{"check.sh": TRAP, "src__sail": "a sail\n", "docs__notes.md": "Notes.\n"})
        self.configure()
        mind = {"openai-compatible": {"url": server.url, "model": "played", "max_output": 500}}
        crew.agent_file(json.dumps({"mind": mind, "toolset": "coder", "shell": True, "sandbox": "bwrap"}))

    def configure(self, more: str = "", land: str = "off") -> None:
        self.crew.configure(f"embedder: none\nroots: [{{path: ../app, worktree: true, land: {land}}}]\n{more}")

    def work(self, *calls: tuple[str, dict[str, object]], text: str = "Mend src/sail.\n", name: str = "t") -> None:
        """Drop a task and do it with these calls, and `finish_task` if they do not end it."""
        self.play(*calls, text=text, name=name)
        agent = self.crew.start()
        until_idle(agent)
        self.crew.end(agent)

    def play(self, *calls: tuple[str, dict[str, object]], text: str = "Mend src/sail.\n", name: str = "t") -> None:
        """Drop a task for which the model makes these calls."""
        script = [*calls, *([] if calls and calls[-1][0] in ("finish_task", "fail_task") else [("finish_task", {})])]
        calls_left = iter(script)

        def think(request: Request) -> None:
            if "What would have saved you a turn" in str(request.conversation[-1]):
                self.questions.append(request)
                request.answer(self.answer, [])
            else:
                request.answer("so", [next(calls_left)])

        self.server.think = think
        self.crew.drop(text, f"{name}.md")

    def lessons_at(self, root: Path | None) -> list[TrackedLesson]:
        return book_of(Hive.open(self.crew.root), root).read()

    def live_at(self, root: Path | None) -> list[str]:
        return [record.text for record in self.lessons_at(root) if record.state == "live"]

    @property
    def lessons(self) -> list[TrackedLesson]:
        return self.lessons_at(self.repo.path)

    @property
    def live(self) -> list[str]:
        return self.live_at(self.repo.path)

    def opening(self, text: str, name: str = "next") -> str:
        """The opening of a task that waits."""
        self.crew.drop(text, f"{name}.md")
        opening = preview_context(Hive.open(self.crew.root), "ada", name).messages[1].text
        (self.crew.root / f"tasks/inbox/{name}.md").unlink()
        return opening


def run(command: str, cwd: str | None = None) -> tuple[str, dict[str, object]]:
    return "run_command", {"command": command, **({} if cwd is None else {"cwd": cwd})}


@pytest.fixture
def crew(crew_of_agents: Crew) -> Crew:
    make_lessons_folder(Layout.at(crew_of_agents.root))
    return crew_of_agents


@pytest.fixture
def project(crew: Crew, tmp_path: Path, language_models: None) -> Iterator[Project]:
    with model_server() as server:
        yield Project(crew, tmp_path, server)
