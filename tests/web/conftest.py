"""A hive with a little of everything, and the page of it, served by a separate process."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import pytest

from hivemind import Hive
from hivemind.tasks import Task
from tests.cli.conftest import make_hive
from tests.program import Program

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

SERVE = ("web", "--port", "0")
EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)">'


@dataclass(frozen=True)
class Got:
    """The page's answer."""

    status: int
    headers: dict[str, str]
    text: str


@dataclass(frozen=True)
class Site:
    """The page of a hive, as a browser that has opened the link sees it."""

    hive: Hive
    port: int
    root: str
    pid: int

    def get(self, path: str, **headers: str) -> Got:
        return self.ask("GET", self.root + path, headers=headers)

    def number(self) -> str:
        """The number of a form that the page has just shown."""
        numbers = re.findall(r'name="number" value="([\w-]+)"', self.get("/").text)
        return str(numbers[-1])

    def post(self, act: str, **form: str) -> Got:
        """Submit a form of the page."""
        return self.send(f"/do/{act}", {"number": self.number(), **form})

    def send(self, path: str, form: dict[str, str], **headers: str) -> Got:
        """A form as a browser sends it: it names no origin, as the page lets it send no referrer."""
        all_headers = {"Origin": "null", "Content-Type": "application/x-www-form-urlencoded", **headers}
        return self.ask("POST", self.root + path, urlencode(form).encode(), all_headers)

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Got:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Got(
                answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
            )
        finally:
            connection.close()

    def followed(self, got: Got) -> str:
        """The page that a form leads to."""
        assert got.status == 303, got.text
        address = urljoin(f"http://127.0.0.1:{self.port}{self.root}/do/it", got.headers["location"])
        assert address.startswith(f"http://127.0.0.1:{self.port}{self.root}/"), address
        return self.get(address.partition(self.root)[2]).text

    def listening(self, *topics: str) -> Iterator[str]:
        """The names of the changes, as the page receives them."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", f"{self.root}/live?of={','.join(topics)}")
        answer = connection.getresponse()
        try:
            while line := answer.readline().decode():
                if line.startswith("event: "):
                    yield line.removeprefix("event: ").strip()
                elif line.startswith("retry"):
                    yield "open"
        finally:
            connection.close()


@contextmanager
def serving(root: Path, **streams: Any) -> Iterator[Site]:
    """The page of the hive at `root`, until the block is left."""
    at = {**os.environ, "HIVEMIND_HIVE": os.fspath(root)}
    process = Program(SERVE, stdout=subprocess.PIPE, text=True, env=at, **streams)
    try:
        assert process.stdout is not None
        link = urlsplit(process.stdout.readline().split()[-1])
        assert link.port is not None
        yield Site(Hive.open(root), link.port, link.path.rstrip("/"), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def claimed(hive: Hive, agent: str, text: str, **more: str) -> Task:
    """A task that an agent has in hand."""
    task_id = hive.tasks.add(text, **more)
    task = hive.tasks.claims.claim_one(agent, task_id)
    assert task is not None
    return task


def filled(root: Path) -> Hive:
    """A hive in which tasks wait, rest, are done and have failed, letters lie, and some of it would like to be a script."""
    hive = Hive.open(make_hive(root))
    hive.mail.ensure("human")
    done = claimed(hive, "analyst", "What is a lease?", id="lease")
    fields = {
        "kind": "epoch",
        "epoch": 1,
        "agent": "analyst",
        "mind": "test:model",
        "opening": [],
        "at": "2026-11-20T10:00:00+00:00",
    }
    hive.tasks.active.log(done, fields)
    for number in range(1, 4):
        at = f"2026-11-20T10:00:0{number}+00:00"
        call = {"id": f"c{number}", "tool": "read_file", "arguments": {"path": f"knowledge/{number}.md"}}
        usage = {"tokens_in": 1_000, "tokens_out": 50, "cached": 500, "money": 0.01}
        hive.tasks.active.log(done, {"id": f"m{number}", "role": "assistant", "text": f"I read file {number}.", "calls": [call],
                              "usage": usage, "at": at, "agent": "analyst", "step": "lease.s1"})  # fmt: skip
        hive.tasks.active.log(
            done, {"id": f"r{number}", "role": "tool", "call_id": f"c{number}", "ok": True, "text": EVIL, "at": at}
        )
    (hive.layout.knowledge).mkdir(exist_ok=True)
    (hive.layout.knowledge / "lease.md").write_text("# Leases\n\nA lease is the right to work on one step.\n")
    hive.tasks.finish(done, f"A lease is a right.\n\n> A lease\n\n— `knowledge/lease.md:3-3`\n\n{EVIL}\n")
    count = claimed(hive, "researcher", f"Count {EVIL}", id="count", title=EVIL)
    hive.tasks.fail(count, f"it cannot be counted {EVIL}")
    paint = claimed(hive, "reviewer", "Paint the boats", id="paint")
    mail = hive.mail.send(
        "reviewer", "human", "Which colour?", f"Red or blue? {EVIL}", message_id="ask.paint.s1.7@hive", task="paint"
    )
    hive.tasks.active.park(paint, f"asks: Red or blue? (answer with: hivemind mail reply human {mail.message_id} TEXT)")
    hive.mail.send(
        "researcher", "human", EVIL, f"[press](javascript:alert(3)) ![x](http://elsewhere.example/x.png) {EVIL}"
    )
    hive.tasks.add("Wait for it", id="later", priority=4)
    return hive


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One page for the tests of a module that only look."""
    root = tmp_path_factory.mktemp("web") / "hive"
    filled(root)
    with serving(root) as page:
        yield page


@pytest.fixture(scope="module")
def own_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Another page for tests that change something."""
    root = tmp_path_factory.mktemp("web") / "hive"
    filled(root)
    with serving(root) as page:
        yield page


def events(hive: Hive) -> list[dict[str, object]]:
    """Return the person's actions in the journal."""
    return [
        json.loads(json.dumps(event.payload))
        for event in Hive.look(hive.layout.root).journal.read()
        if event.kind == "human.did"
    ]
