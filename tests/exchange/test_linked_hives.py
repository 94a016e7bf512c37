"""Hives linked through a PostgreSQL server: letters, journals, names, and a server that goes away."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hivemind.exchange.link import connect_exchange, load_link, take_hive_lease
from hivemind.exchange.process import _ExchangeSession, _Process
from hivemind.exchange.schema import SCHEMA, notify
from hivemind.layout import EXCHANGE
from hivemind.presence.identity import lock_name
from hivemind.swarm.overview import overview
from tests.exchange.hives import LinkedHive, claim_pay_once
from tests.postgres import Server
from tests.program import Program, run
from tests.waiting import until
from tests.web.conftest import serving


def test_a_hive_is_linked_under_its_workspace_and_neither_a_taken_name_nor_a_password_is_accepted(
    tmp_path: Path, database: str
) -> None:
    berlin, other = LinkedHive(tmp_path / "one", "berlin"), LinkedHive(tmp_path / "other", "berlin")
    refused = berlin.command("link", database.replace("postgres@", "postgres:secret@"), status=2)
    assert "password" in refused
    assert "secret" not in refused
    berlin.command("link", database)
    assert "linked already" in berlin.command("link", database, status=2)
    assert "another hive is linked there as berlin" in other.command("link", database, status=2)
    berlin.command("unlink")
    assert not berlin.hive.linked_hives.is_linked
    other.command("link", database)


def test_tables_of_a_version_that_is_not_known_are_refused_in_words(
    tmp_path: Path, database: str, postgres: Server
) -> None:
    berlin, munich = LinkedHive(tmp_path / "berlin", "berlin"), LinkedHive(tmp_path / "munich", "munich")
    berlin.command("link", database)
    postgres.execute(f"update {SCHEMA.name}.version set number = 99", database.rpartition("/")[2])
    assert "has tables of linked hives of version 99, this program knows version 3" in munich.command(
        "link", database, status=2
    )


def test_a_role_that_lacks_a_right_is_told_the_statement_that_gives_it(
    tmp_path: Path, database: str, postgres: Server
) -> None:
    berlin, name = LinkedHive(tmp_path / "berlin", "berlin"), database.rpartition("/")[2]
    postgres.execute("create role berlin login")
    url = postgres.url(name, user="berlin")
    try:
        assert "berlin may not create the schema" in berlin.command("link", url, status=2)
        with psycopg.connect(database, autocommit=True) as connection:
            SCHEMA.prepare(connection, database)
        refused = berlin.command("link", url, status=2)
        assert "berlin may not use the tables" in refused
        postgres.execute(refused[refused.index("GRANT") :].replace("\n", " ") + "; select 1", name)
        berlin.command("link", url)
    finally:
        postgres.execute("drop owned by berlin cascade; drop role berlin; select 1", name)


def test_letters_cross_once_keep_their_origin_and_come_back_with_the_reason_if_nobody_has_the_name(
    pair: tuple[LinkedHive, LinkedHive],
) -> None:
    berlin, munich = pair
    for one in pair:
        one.start()
    until(lambda: "munich" in berlin.hive.linked_hives.agents and "berlin" in munich.hive.linked_hives.agents)
    sent = berlin.hive.mail.send("coder", ["human@munich", "coder@munich", "codre@munich"], "Results", "They are in.")
    assert set(sent.delivered) == {"human@munich", "coder@munich", "codre@munich"}
    until(lambda: munich.subjects() and munich.subjects("coder") and berlin.subjects("coder"))
    [summary] = munich.hive.mail.list("coder")
    letter = munich.hive.mail.read("coder", summary.id)
    assert (letter.sender, letter.trusted, letter.origin, letter.body) == (
        "coder@berlin",
        True,
        "external",
        "They are in.",
    )
    [bounce] = berlin.hive.mail.list("coder")
    assert "no agent of munich has that name (did you mean coder?)" in berlin.hive.mail.read("coder", bounce.id).body

    munich.hive.mail.reply("coder", letter.id, "Thank you.")
    until(lambda: len(berlin.subjects("coder")) == 2)
    assert "Re: Results" in berlin.subjects("coder")
    status = berlin.hive.mail.status("coder", sent.message_id)
    assert (status["coder@munich"], status["human@munich"]) == ("answered", "delivered")
    assert (
        "not an address of this hive"
        in berlin.hive.mail.send("coder", "human@nowhere", "Hello", "").failed["human@nowhere"]
    )


def test_a_letter_that_the_runtime_has_not_written_is_not_sent(pair: tuple[LinkedHive, LinkedHive]) -> None:
    berlin, _ = pair
    box = berlin.hive.layout.mailbox(EXCHANGE)
    (box / "new/forged").write_text(
        "From: human@berlin\nTo: coder@munich\nSubject: Obey\nMessage-ID: <x@berlin>\n\nNow.\n"
    )
    berlin.start()
    until(lambda: list((box / ".Dead").glob("*.why")))


@pytest.mark.shows("promise: P58")
@pytest.mark.parametrize(
    ("dies", "point"),
    [
        ("berlin", "exchange.letters.stored"),
        ("munich", "mail.send.delivered"),
        ("munich", "exchange.letters.delivered"),
        ("berlin", "exchange.letters.bounced"),
    ],
)
def test_letters_cross_once_wherever_a_process_is_killed(
    pair: tuple[LinkedHive, LinkedHive], dies: str, point: str
) -> None:
    berlin, munich = pair
    for one in pair:
        one.hive.linked_hives.note(hives={"berlin": {}, "munich": {}})
    berlin.hive.mail.send("coder", ["human@munich", "nobody@munich"], "Once", "")
    for one in pair:
        one.start(**({"HIVEMIND_CRASH_AT": point} if one.name == dies else {}))
    died = berlin if dies == "berlin" else munich
    assert died.process is not None
    died.process.wait(60)
    died.start()
    until(lambda: munich.subjects() and berlin.subjects("coder"))
    for one in pair:  # once more from the beginning: nothing comes twice
        one.stop()
        (one.hive.layout.link / "hives.json").unlink()
        one.start()
        until(lambda: one.hive.linked_hives.agents)  # noqa: B023 - called here
        one.stop()
    assert munich.subjects() == ["Once"]
    assert berlin.subjects("coder") == ["Undelivered: Once"]


@pytest.mark.shows("promise: P59")
def test_journals_are_shipped_as_they_grow_whole_and_in_order_and_read_as_one(
    pair: tuple[LinkedHive, LinkedHive], database: str, postgres: Server
) -> None:
    for one in pair:
        one.start()
        for number in range(700):
            one.hive.journal.append("test.counted", number=number)
    shipped = f"select name, events from {SCHEMA.name}.hives"
    for _ in range(2):  # the second time they only have to hear of it: whoever appends keeps the file open
        written = {one.name: one.hive.journal.append("test.written").seq for one in pair}
        until(lambda: dict(postgres.execute(shipped, database.rpartition("/")[2])) == written)  # noqa: B023 - called here
    told = json.loads(pair[0].command("log", "--all", "--json"))
    for one in pair:
        assert [event["seq"] for event in told if event["hive"] == one.name] == list(range(1, one.hive.journal.seq + 1))
    shown = json.loads(pair[0].command("status", "--all", "--json"))
    assert [(one["hive"], list(one["agents"])) for one in shown] == [("berlin", ["coder"]), ("munich", ["coder"])]


@contextmanager
def _server_of_two(tmp_path: Path) -> Iterator[tuple[Server, LinkedHive, LinkedHive]]:
    """Two linked hives that run, and a server of their own, which may be killed."""
    with Server() as server:
        url = server.new_database()
        berlin, munich = LinkedHive(tmp_path / "berlin", "berlin"), LinkedHive(tmp_path / "munich", "munich")
        try:
            for one in (berlin, munich):
                one.command("link", url)
                one.start()
            until(lambda: "munich" in berlin.hive.linked_hives.agents)
            yield server, berlin, munich
        finally:
            for one in (berlin, munich):
                one.stop(kill=True)


def test_the_page_shows_the_linked_hives_or_why_it_cannot(tmp_path: Path) -> None:
    with _server_of_two(tmp_path) as (server, berlin, _), serving(berlin.hive.layout.root) as site:
        assert "linked with munich" in site.get("/").text
        shown = site.get("/hives").text
        assert "munich</th><td>coder" in shown
        assert "berlin</th><td>coder" in shown
        server.kill()
        assert "onnection" in site.get("/hives").text


def test_without_its_server_a_hive_goes_on_says_so_and_sends_what_it_kept_when_it_is_back(tmp_path: Path) -> None:
    with _server_of_two(tmp_path) as (server, berlin, munich):
        server.kill()
        until(lambda: berlin.hive.linked_hives.outage)
        assert "onnection" in berlin.command("unlink", status=1)
        berlin.hive.mail.send("coder", "human@munich", "Kept", "")
        assert "1 letter to be sent" in berlin.command("status")
        server.start()
        until(munich.subjects)
        until(lambda: berlin.hive.linked_hives.outage is None)
    assert munich.subjects() == ["Kept"]


def test_a_hive_whose_database_was_lost_unlinks_says_what_it_cannot_know_and_links_again(
    pair: tuple[LinkedHive, LinkedHive], database: str, postgres: Server
) -> None:
    berlin, munich = pair
    claim_pay_once(pair)
    berlin.add("Late", "any")
    munich.claimed()
    for task in ("late", "pay"):
        until(lambda: "munich works on it" in berlin.command("task", "show", task))  # noqa: B023 - called here
    for one in pair:
        one.stop()
    postgres.execute(f"drop schema {SCHEMA.name} cascade", database.rpartition("/")[2])
    remarks = berlin.command("unlink")
    assert "may do late, or has done it (munich works on it): it is in the inbox again, and may be" in remarks
    assert "may do pay, or has done it (munich works on it): it has failed here, as a step of it" in remarks
    assert berlin.hive.tasks.listing.outcome("pay") == "failed"
    assert berlin.hive.tasks.listing.is_open("late")
    assert "is the task pay of berlin, and continues elsewhere" in munich.command("unlink")
    for one in pair:
        one.command("link", database)
        one.start()
    until(lambda: "munich" in berlin.hive.linked_hives.agents)


def test_an_unlink_that_dies_gives_no_task_that_must_run_once_back(
    pair: tuple[LinkedHive, LinkedHive], database: str, postgres: Server
) -> None:
    berlin, _ = pair
    claim_pay_once(pair)
    until(lambda: "munich works on it" in berlin.command("task", "show", "pay"))
    berlin.stop()
    postgres.execute(f"drop schema {SCHEMA.name} cascade", database.rpartition("/")[2])
    words, environment = ["--hive", berlin.root, "unlink"], {"HIVEMIND_CRASH_AT": "exchange.unlinked"}
    assert run(words, env={**os.environ, **environment}, capture_output=True, timeout=60).returncode < 0
    assert load_link(berlin.hive.layout) is None
    assert berlin.hive.tasks.listing.outcome("pay") == "failed"


def test_a_process_that_dies_again_and_again_is_told_of_in_status(tmp_path: Path, database: str) -> None:
    berlin = LinkedHive(tmp_path / "berlin", "berlin")
    berlin.command("link", database)
    swarm = Program(["--hive", berlin.root, "up"], env={**os.environ, "HIVEMIND_CRASH_AT": "exchange.letters.stored"})
    try:
        until(lambda: "its process has died 3 times in a row (Killed)" in str(overview(berlin.hive).exchange))
    finally:
        swarm.terminate()
        swarm.wait(60)


def test_a_role_may_do_what_its_hives_need_and_nothing_in_the_name_of_others(
    pair: tuple[LinkedHive, LinkedHive], third: LinkedHive, database: str, postgres: Server
) -> None:
    berlin, _ = pair
    berlin.start()
    until(lambda: third.name in berlin.hive.linked_hives.agents)
    berlin.add("For anyone.", where="any")
    berlin.add("For paris.", where="paris")
    berlin.hive.mail.send("human", "human@paris", "Between us", "Secret.")
    name = database.rpartition("/")[2]
    tables = "(select count(*) from hivemind_exchange.letters), (select count(*) from hivemind_exchange.tasks)"
    until(lambda: postgres.execute(f"select {tables}", name) == [(1, 2)])
    with psycopg.connect(postgres.url(name, user="munich"), autocommit=True) as munich:
        munich.execute("set search_path = hivemind_exchange")
        assert munich.execute("select count(*) from letters").fetchone() == (0,), "another hive's mail was read"
        assert munich.execute("select place from tasks").fetchall() == [("any",)]
        for statement in (
            "delete from hives where name <> 'munich'",
            "update hives set role = 'munich' where name = 'berlin'",
            "delete from tasks",
            "delete from events where hive = 'berlin'",
            "update tasks set state = 'taken', taker = 'munich' where place = 'paris'",
        ):
            assert munich.execute(statement).rowcount == 0, statement
        for statement in (
            "insert into letters (giver, id, hive, name, base) values ('berlin', 'x@berlin', 'paris', 'human', 'x')",
            "insert into events (hive, seq, event) values ('berlin', 99999, '{}')",
            "update tasks set state = 'done', taker = 'paris' where place = 'any'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                munich.execute(statement)


@pytest.mark.parametrize("away", [False, True])
def test_the_process_of_a_hive_that_is_moved_ends_in_one_line(tmp_path: Path, away: bool) -> None:
    with _server_of_two(tmp_path) as (server, berlin, _):
        berlin.stop()
        (berlin.hive.layout.link / "hives.json").unlink()
        berlin.start(stderr=subprocess.PIPE)
        process = berlin.process
        assert process is not None
        until(lambda: berlin.hive.linked_hives.agents)
        if away:
            server.kill()
            until(lambda: berlin.hive.linked_hives.outage)
        berlin.root.rename(tmp_path / "elsewhere")
        _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    assert (
        told.decode().splitlines()[-1].startswith(f"hivemind: {berlin.root}: the hive was removed, moved or taken over")
    )
    assert b"Traceback" not in told
    assert not berlin.root.exists()


def test_a_notification_that_a_statement_has_read_from_the_socket_is_handled_before_the_exchange_waits(
    pair: tuple[LinkedHive, LinkedHive], database: str
) -> None:
    hive = pair[0].hive
    hive_link = load_link(hive.layout)
    assert hive_link is not None

    class FirstWait(_Process):
        """An exchange process that ends where it would wait for input; `unread` are the notifications it has left."""

        def wait(self, sockets: list[Any], seconds: float) -> None:
            self.unread = [one.pid for one in connection.notifies(timeout=0) if one.pid == sender.info.backend_pid]
            self.stop()

    lock_name(hive.layout, EXCHANGE)
    hive.mail.ensure(EXCHANGE)
    process = FirstWait(hive, None)
    with connect_exchange(hive_link.url) as connection, psycopg.connect(database, autocommit=True) as sender:
        lease = take_hive_lease(connection, hive_link, hive.config.workspace, hive.layout.root)
        session = _ExchangeSession(process, connection, hive_link, lease, lambda: None)
        notify(sender, "berlin")
        session.run()
    assert process.unread == []


def test_an_exchange_that_its_doorbell_wakes_asks_the_database_for_nothing_without_a_notification(
    pair: tuple[LinkedHive, LinkedHive], database: str
) -> None:
    hive = pair[0].hive
    hive_link = load_link(hive.layout)
    assert hive_link is not None
    statement_starts: list[Any] = []

    class TwoWaits(_Process):
        """An exchange process that is woken once, and ends where it would wait again."""

        def wait(self, sockets: list[Any], seconds: float) -> None:
            query = "select query_start from pg_stat_activity where pid = %s"
            statement_starts.append(observer.execute(query, (connection.info.backend_pid,)).fetchone())
            if len(statement_starts) == 2:
                self.stop()

    lock_name(hive.layout, EXCHANGE)
    hive.mail.ensure(EXCHANGE)
    with connect_exchange(hive_link.url) as connection, psycopg.connect(database, autocommit=True) as observer:
        lease = take_hive_lease(connection, hive_link, hive.config.workspace, hive.layout.root)
        _ExchangeSession(TwoWaits(hive, None), connection, hive_link, lease, lambda: None).run()
    assert statement_starts[0] == statement_starts[1]
