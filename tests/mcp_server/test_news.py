"""New mail shows to a client that did not ask: in its next answer, and at once to who has subscribed to the inbox."""

from __future__ import annotations

import json
import os
import time

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import hivemind
from hivemind.mcp_server.member import NewMailCounter
from tests.mcp_server.conftest import Joined, run

INBOX = "hive://inbox"


def test_an_answer_says_once_that_mail_has_come(hive):
    async def scenario():
        async with hive.member("claude") as claude:
            assert "new_mail" not in await claude.ask("list_tasks")
            mail(hive, "The keel")
            mail(hive, "The mast")
            assert (await claude.ask("list_tasks"))["new_mail"] == 2
            assert "new_mail" not in await claude.ask("list_tasks")
            mail(hive, "The oars")
            assert "new_mail" not in await claude.ask("check_mailbox")

    run(scenario)


def mail(hive, subject: str) -> None:
    hivemind.Hive.open(hive.root).mail.send("human", "claude", subject, "")


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_who_listens_to_the_inbox_hears_of_new_mail(hive, request, way):
    async def hears(client):
        async with client.listen(resource_subscriptions=[INBOX]) as news:
            mail(hive, "The keel")
            async for one in news:
                assert one.uri == INBOX
                break
        assert [one["subject"] for one in await Joined(client).read(INBOX)] == ["The keel"]

    async def over_stdio():
        async with hive.joined("claude") as claude:
            await hears(claude.client)

    async def over_http():
        _, address, path = request.getfixturevalue("listening")
        http = httpx.AsyncClient(headers={"Authorization": f"Bearer {path.read_text().strip()}"})
        async with http, Client(streamable_http_client(address, http_client=http)) as client:
            await hears(client)

    run(over_stdio if way == "stdio" else over_http)


def test_a_client_of_the_older_protocol_subscribes_and_is_told_until_it_unsubscribes(hive, served):
    def ask(id_: int, method: str) -> None:
        served.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": {"uri": INBOX}}) + "\n")
        served.stdin.flush()

    def heard() -> dict:
        return json.loads(served.stdout.readline())

    served.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    ask(2, "resources/subscribe")
    assert heard() == {"jsonrpc": "2.0", "id": 2, "result": {}}
    mail(hive, "The keel")
    assert heard()["params"] == {"uri": INBOX}
    ask(3, "resources/unsubscribe")
    assert heard()["id"] == 3
    mail(hive, "The mast")
    ask(4, "resources/read")
    assert heard()["id"] == 4  # and nothing in between


def test_each_new_message_counts_once(hive):
    opened = hivemind.Hive.open(hive.root)
    arrivals = NewMailCounter(opened.mail, "claude")
    assert arrivals.count() == 0
    new, tick = hive.root / "mailboxes/claude/new", time.time() + 60
    for _ in range(20):  # all within one tick of the file system's clock
        mail(hive, "x")
        os.utime(new, (tick, tick))
        assert arrivals.count() == 1
    assert arrivals.count() == 0
    for one in opened.mail.list("claude")[:10]:
        opened.mail.read("claude", one.id)
    assert arrivals.count() == 0
    old = time.time() - 10
    os.utime(new, (old, old))
    assert arrivals.count() == 0
