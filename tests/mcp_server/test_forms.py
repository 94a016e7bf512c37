"""What `--config` prints is what each coding agent reads, and a client that does as it says is in the hive."""

from __future__ import annotations

import json
import os
import tomllib
from typing import get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from hivemind.cli.mcp import Form
from hivemind.mcp_server.forms import FORMS, configuration
from tests.mcp_server.conftest import Joined, run

COMMAND = ["/opt/hive mind/bin/hivemind", "mcp", "--agent", "claude"]
ADDRESS = "http://127.0.0.1:8765/mcp"


def server_of(form: str, text: str) -> dict:
    """The one server that a configuration names, found as the program finds it."""
    whole = tomllib.loads(text) if form == "codex" else json.loads(text)
    [server] = whole[{"codex": "mcp_servers", "vscode": "servers"}.get(form, "mcpServers")].values()
    return server


@given(st.sampled_from(sorted(FORMS)), st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_whatever_the_hive_is_called_each_form_says_the_same(form, root):
    server = server_of(form, configuration(form, COMMAND, {"HIVEMIND_HIVE": root}).text)
    assert [server["command"], *server["args"]] == COMMAND
    assert server["env"] == {"HIVEMIND_HIVE": root}
    assert server.get("type", "stdio") == "stdio"


@pytest.mark.parametrize(
    ("form", "key", "shown"),
    [
        ("claude", "url", "Bearer ${HIVEMIND_MCP_TOKEN}"),
        ("cursor", "url", "Bearer ${env:HIVEMIND_MCP_TOKEN}"),
        ("gemini", "httpUrl", "Bearer $HIVEMIND_MCP_TOKEN"),
        ("vscode", "url", "Bearer ${input:hivemind-token}"),
    ],
)
def test_over_http_no_form_has_the_token_itself(form, key, shown):
    server = server_of(form, configuration(form, COMMAND, {}, ADDRESS).text)
    assert (server[key], server["headers"]["Authorization"]) == (ADDRESS, shown)


def test_codex_names_the_variable_that_has_the_token():
    server = server_of("codex", configuration("codex", COMMAND, {}, ADDRESS).text)
    assert server == {"url": ADDRESS, "bearer_token_env_var": "HIVEMIND_MCP_TOKEN"}


def test_the_command_line_knows_all_forms():
    assert set(get_args(Form)) == set(FORMS)


def test_a_client_that_starts_what_is_printed_is_in_the_hive(hive):
    server = server_of("claude", hive.run("mcp", "--agent", "codex", "--config", "claude", "--profile", "daily"))

    async def scenario():
        started = StdioServerParameters(
            command=server["command"], args=server["args"], env={**os.environ, **server["env"]}
        )
        async with Client(started) as client:
            assert "signals" in {tool.name for tool in (await client.list_tools()).tools}  # --profile daily
            assert (await Joined(client).ask("send_mail", to=["claude"], subject="Here"))["delivered"] == ["claude"]

    run(scenario)
    assert hive.lives("codex") == ["started", "exited"]


def test_a_client_that_asks_where_is_printed_is_in_the_hive(hive, listening):
    _, address, path = listening
    port = address.split(":")[2].split("/")[0]
    said = hive.run("mcp", "--agent", "claude", "--config", "claude", "--http", "--port", port)
    server = server_of("claude", said.replace("${HIVEMIND_MCP_TOKEN}", path.read_text().strip()))
    assert server["url"] == address

    async def scenario():
        http = httpx.AsyncClient(headers=server["headers"])
        async with http, Client(streamable_http_client(server["url"], http_client=http)) as client:
            assert (await Joined(client).ask("check_mailbox"))["messages"] == []

    run(scenario)


def test_for_an_agent_that_is_not_there_nothing_is_printed(hive):
    assert "hivemind agent add gemini --mind mcp" in hive.run("mcp", "--agent", "gemini", "--config", "json", status=2)
    said = hive.run("mcp", "--agent", "claude", "--config", "json", "--http", "--port", "0", status=2)
    assert "a different port at each start" in said
