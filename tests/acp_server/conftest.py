"""A scripted editor. Each message of the agent is validated against the schema of the package `agent-client-protocol`."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("acp") is None:
    pytest.skip("the package agent-client-protocol is not installed", allow_module_level=True)

from tests.agent.conftest import crew
from tests.landing.conftest import harbour
from tests.program import Program
from tests.swarm.conftest import hive

__all__ = ["crew", "harbour", "hive"]  # fixtures

LIMIT_S = 60
RESULTS = {
    "initialize": "InitializeResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/prompt": "PromptResponse",
}


def check(model: str, value: dict[str, Any]) -> None:
    """The schema accepts the value, and has understood all of it: the package drops what it cannot read."""
    from acp import schema  # which takes two seconds: not in a worker that has no test with it

    understood = getattr(schema, model).model_validate(value).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert lacks(value, understood) == [], value


def lacks(value: Any, understood: Any, place: str = "") -> list[str]:
    if isinstance(value, dict) and isinstance(understood, dict):
        return [
            gap
            for key, inner in value.items()
            if inner is not None
            for gap in (lacks(inner, understood[key], f"{place}/{key}") if key in understood else [f"{place}/{key}"])
        ]
    if isinstance(value, list) and isinstance(understood, list) and len(value) == len(understood):
        return [gap for at, inner in enumerate(value) for gap in lacks(inner, understood[at], f"{place}/{at}")]
    return [] if value == understood else [place]


class Editor:
    """An editor with one `hivemind acp`: its `updates` are all that it was shown, `asked` the open permission requests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process = Program(
            ["--hive", str(root), "acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
        )
        self.updates: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.withdrawn: list[int] = []
        self.answers: dict[Any, dict[str, Any]] = {}
        self._methods: dict[int, str] = {}
        self._pending = b""
        self.session = ""

    def start(self, cwd: Path | None = None) -> Editor:
        """Begin with a session."""
        self.call("initialize", protocolVersion=1, clientCapabilities={})
        self.session = self.call("session/new", cwd=str(cwd or self.root), mcpServers=[])["sessionId"]
        return self

    def load(self, session: str, method: str = "session/load") -> Editor:
        self.call("initialize", protocolVersion=1)
        self.call(method, sessionId=session, cwd=str(self.root), mcpServers=[])
        self.session = session
        return self

    def send(self, **message: Any) -> None:
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, **params: Any) -> int:
        number = len(self._methods) + 1
        self._methods[number] = method
        self.send(id=number, method=method, params=params)
        return number

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request, and return its result. An error is a failure."""
        answer = self.answer(self.request(method, **params))
        assert "error" not in answer, answer
        return answer["result"]

    def prompt(self, *blocks: Any) -> int:
        """Send a prompt: texts and content blocks."""
        content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        return self.request("session/prompt", sessionId=self.session, prompt=content)

    def ask(self, *blocks: Any) -> str:
        """Send a prompt and wait for the end of its turn; the reason why it stopped."""
        return self.stop_reason(self.prompt(*blocks))

    def stop_reason(self, number: int) -> str:
        return self.answer(number)["result"]["stopReason"]

    def answer(self, number: Any) -> dict[str, Any]:
        self.until(lambda: number in self.answers)
        return self.answers[number]

    def choose(self, name: str) -> None:
        """Choose an option of the open permission request."""
        self.until(lambda: self.asked)
        request = self.asked.pop()
        [option] = [option["optionId"] for option in request["params"]["options"] if option["name"] == name]
        self.send(id=request["id"], result={"outcome": {"outcome": "selected", "optionId": option}})

    def until(self, holds: Callable[[], Any]) -> None:
        """Read messages until it holds."""
        while not holds():
            assert select.select([self.process.stdout], [], [], LIMIT_S)[0], (self.said, self.updates[-5:])
            self._read()

    def _read(self) -> None:
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        assert data, self.process.stderr.read().decode()
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        assert message.pop("jsonrpc") == "2.0"
        if "method" not in message:
            if "result" in message:
                check(RESULTS[self._methods[message["id"]]], message["result"])
            else:
                check("Error", message["error"])
            self.answers[message["id"]] = message
        elif message["method"] == "session/update":
            check("SessionNotification", message["params"])
            self.updates.append(message["params"]["update"])
        elif message["method"] == "session/request_permission":
            check("RequestPermissionRequest", message["params"])
            self.asked.append(message)
        else:
            assert message["method"] == "$/cancel_request"
            check("CancelRequestNotification", message["params"])
            self.withdrawn.append(message["params"]["requestId"])

    def kinds(self) -> list[str]:
        return [update["sessionUpdate"] for update in self.updates]

    @property
    def said(self) -> str:
        """Return the agent's messages, as the editor shows them."""
        return self.texts("agent_message_chunk")

    def texts(self, kind: str) -> str:
        contents = [update["content"] for update in self.updates if update["sessionUpdate"] == kind]
        return "".join(content.get("text") or f"<{content['uri']}>" for content in contents)

    def plan(self) -> list[tuple[str, str]]:
        """The last plan: each step and its status."""
        plans = [update["entries"] for update in self.updates if update["sessionUpdate"] == "plan"]
        return [(entry["content"], entry["status"]) for entry in plans[-1]]

    def close(self) -> None:
        """Leave. The agent then ends."""
        self.process.stdin.close()
        assert self.process.wait(LIMIT_S) == 0, self.process.stderr.read().decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)


@pytest.fixture
def editor() -> Iterator[Callable[[Path], Editor]]:
    """Starts editors, and ends them."""
    editors: list[Editor] = []

    def start(root: Path) -> Editor:
        editors.append(Editor(root))
        return editors[-1]

    yield start
    for editor in editors:
        if editor.process.poll() is None:
            editor.kill()
        for stream in (editor.process.stdin, editor.process.stdout, editor.process.stderr):
            stream.close()
