"""New mail shows to a client that did not ask, in its next answer."""

from __future__ import annotations

import os
import time

import hivemind
from hivemind.mcp_server.member import NewMailCounter
from tests.mcp_server.conftest import run


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
