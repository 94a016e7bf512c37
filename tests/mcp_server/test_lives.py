from __future__ import annotations

import json
import os
import signal
import stat
import subprocess

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import hivemind
from tests.mcp_server.conftest import LIMIT_S, Joined, greeting, run


def test_it_ends_when_its_input_does(hive, served):
    out, _ = served.communicate(timeout=LIMIT_S)
    assert (served.returncode, out) == (0, "")
    assert hive.lives("claude") == ["started", "exited"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(hive, served, number):
    served.send_signal(number)
    assert served.wait(LIMIT_S) == 0
    assert hive.lives("claude") == ["started", "exited"]


def test_killed_it_is_buried_by_its_successor_and_its_lease_is_free(hive, served):
    hivemind.Hive.open(hive.root).leases.claim("boat.s1", "claude")
    served.kill()
    served.wait(LIMIT_S)
    assert hive.lives("claude") == ["started"]

    async def successor():
        async with hive.joined("claude") as claude:
            assert json.loads(hive.run("lease", "list", "--json")) == []
            await claude.ask("resume")

    run(successor)
    assert hive.lives("claude") == ["started", "exited", "started", "exited"]


def test_a_second_server_of_the_same_agent_is_refused_in_words(hive, served):
    said = hive.run("mcp", "--agent", "claude", status=2)
    assert f"the agent claude is running already: process {served.pid}" in said
    assert len(said.splitlines()) == 1


def test_the_swarm_does_not_start_members_from_outside(hive, served):
    hive.run("up", "--until-idle")
    assert hive.lives("claude") == ["started"]
    assert hive.lives("codex") == []
    assert "is a member" in hive.run("agent", "run", "codex", status=2)


def test_an_agent_that_the_swarm_runs_is_refused_to_a_client(hive):
    up = hive.start("agent", "run", "researcher", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        hive.until(lambda: hive.lives("researcher"))
        assert "is running already" in hive.run("mcp", "--agent", "researcher", status=2)
    finally:
        up.terminate()
        up.wait(LIMIT_S)


def test_nothing_but_the_protocol_reaches_standard_output(hive, served):
    (hive.root / "agents/claude.yaml").write_text("mind: mcp\n")
    for line in ("no json at all", '{"jsonrpc": "2.0", "id": 7}', greeting(2).strip()):
        served.stdin.write(line + "\n")
    out, _ = served.communicate(timeout=LIMIT_S)
    lines = out.splitlines()
    assert lines
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in lines)


def test_an_agent_that_the_hive_does_not_have_is_refused_with_the_command_that_makes_it(hive):
    assert "hivemind agent add gemini --mind mcp" in hive.run("mcp", "--agent", "gemini", status=2)


def test_a_port_that_is_none_is_refused_in_words(hive):
    said = hive.run("mcp", "--agent", "claude", "--http", "--port", "65536", status=2)
    assert "'65536' is not a whole number from 0 to 65535" in said


def test_over_http_a_client_shows_the_token(hive, listening):
    process, address, path = listening
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = path.read_text().strip()

    async def scenario():
        http = httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"})
        async with http, Client(streamable_http_client(address, http_client=http)) as client:
            claude = Joined(client)
            assert (await claude.ask("check_mailbox"))["messages"] == []
            assert (await claude.refused("finish_step"))["code"] == "REFUSED"

    run(scenario)
    process.terminate()
    assert process.wait(LIMIT_S) == 0
    assert hive.lives("claude") == ["started", "exited"]
    assert path.read_text().strip() == token


def test_over_http_nobody_else_gets_in(listening):
    _, address, path = listening
    token = path.read_text().strip()
    good = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    body = json.loads(greeting())
    assert httpx.post(address, json=body, headers=good).status_code == 200
    for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": token}, {"Authorization": "Basic eDp4"}):
        answer = httpx.post(address, json=body, headers={**good, "Authorization": "", **wrong})
        assert answer.status_code == 401
        assert token not in answer.text
    assert httpx.post(address, json=body, headers={**good, "Host": "evil.example"}).status_code == 421
    assert httpx.post(address, json=body, headers={**good, "Origin": "http://evil.example"}).status_code == 403


def test_a_token_that_others_may_read_is_refused(hive):
    path = hive.root / ".hive/agents/claude/mcp.token"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a" * 43)
    os.chmod(path, 0o644)
    assert "other users may read or change it" in hive.run(
        "mcp", "--agent", "claude", "--http", "--port", "0", status=2
    )
    assert hive.lives("claude") in ([], ["started", "exited"])


def test_a_port_in_use_is_said_in_words(hive, listening):
    port = listening[1].split(":")[2].split("/")[0]
    assert "cannot listen" in hive.run("mcp", "--agent", "codex", "--http", "--port", port, status=2)
