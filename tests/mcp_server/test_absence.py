"""A client that leaves with a task in hand does not keep it for ever: it goes back to the inbox, and `status` says when."""

from __future__ import annotations

import json
import os
import subprocess
import time

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import hivemind
from hivemind.mcp_server.member import Member
from hivemind.swarm.task_return import return_tasks
from tests.mcp_server.conftest import LIMIT_S, Joined, run


def left(hive, text: str = "What is a keel?") -> str:
    """A task that claude has claimed and left."""
    task = hivemind.Hive.open(hive.root).tasks.add(text)
    member = Member(hivemind.Hive.open(hive.root), "claude")
    member.call("claim_task", {"task": task})
    member.close()
    return task


def set_return_after(hive, said: object) -> None:
    path = hive.root / "hive.yaml"
    path.write_text(f"settle_ms: 0\nmcp: {json.dumps({'return_after': said})}\n")


def long_ago(hive, seconds: float) -> None:
    beat = hive.root / ".hive/agents/claude/heartbeat"
    beat.touch()
    for path in (beat, hive.root / ".hive/locks/agent-claude.lock"):
        os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_a_task_whose_client_has_left_is_shown_and_returned_after_the_time_that_hive_yaml_says(hive):
    set_return_after(hive, "1h")
    task = left(hive)
    opened = hivemind.Hive.open(hive.root)
    assert return_tasks(opened) == []
    said = hive.run("status")
    assert f"{task}: claude left" in said
    assert "back in the inbox in 59 min" in said
    [row] = json.loads(hive.run("status", "--json"))["left"]
    assert row["task"] == task
    long_ago(hive, 3601)
    assert return_tasks(opened) == [task]
    assert (hive.root / "tasks/inbox" / task).is_dir()
    assert return_tasks(opened) == []
    assert [event["agent_id"] for event in hive.events() if event["kind"] == "task.returned"] == ["claude"]
    assert "claude left" not in hive.run("status")


@pytest.mark.parametrize("said", ["never", None])
def test_it_keeps_it_where_hive_yaml_says_never(hive, said):
    set_return_after(hive, said)
    left(hive)
    long_ago(hive, 10_000_000)
    assert return_tasks(hivemind.Hive.open(hive.root)) == []
    assert "until it returns" in hive.run("status")


def test_a_member_that_is_there_keeps_what_it_has(hive):
    left(hive)
    member = Member(hivemind.Hive.open(hive.root), "claude")
    long_ago(hive, 10_000_000)
    assert return_tasks(hivemind.Hive.open(hive.root)) == []
    member.close()


def test_the_swarm_returns_it_and_another_does_it(hive):
    set_return_after(hive, "1s")
    task = left(hive)
    hive.run("up", "--until-idle")
    assert (hive.root / "tasks/done" / task).is_dir()


def test_the_next_member_returns_what_another_left(hive):
    set_return_after(hive, 60)
    task = left(hive)
    long_ago(hive, 61)
    Member(hivemind.Hive.open(hive.root), "codex").close()
    assert (hive.root / "tasks/inbox" / task).is_dir()


def test_a_client_over_http_that_is_gone_loses_its_task_though_the_server_stays(hive):
    set_return_after(hive, "1s")
    task = hivemind.Hive.open(hive.root).tasks.add("What is a keel?")
    server = hive.start("mcp", "--agent", "claude", "--http", "--port", "0", stdout=subprocess.PIPE)
    try:
        address = server.stdout.readline().split()[0]
        token = (hive.root / ".hive/agents/claude/mcp.token").read_text().strip()

        async def come_and_go():
            http = httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"})
            async with http, Client(streamable_http_client(address, http_client=http)) as client:
                await Joined(client).ask("claim_task", task=task)

        run(come_and_go)
        hive.until((hive.root / "tasks/inbox" / task).is_dir)
        assert server.poll() is None
        run(come_and_go)  # and may have it again
        assert [event["kind"] for event in hive.events()].count("task.claimed") == 2
    finally:
        server.terminate()
        server.communicate(timeout=LIMIT_S)
