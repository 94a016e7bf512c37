"""Rows that a role may write and no hive would: each ends alone, whether or not the server refuses it; others' rows arrive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from hivemind.boundary import Unreadable
from hivemind.exchange.events import all_events
from hivemind.exchange.files import check_received_files
from hivemind.exchange.link import HiveLease, LinkDown, hive_overviews, open_exchange
from hivemind.exchange.schema import channel
from tests.exchange.conftest import linked_roles
from tests.exchange.hives import LinkedHive
from tests.postgres import Server
from tests.sample import examples
from tests.waiting import until

LETTER = b"From: coder@munich\r\nTo: human@berlin\r\nSubject: %s\r\nMessage-ID: <%s@munich>\r\n\r\nGood day.\r\n"
_numbers = count(1)


def letter(subject: str, **columns: Any) -> tuple[str, dict[str, Any]]:
    """An insert of a letter from munich to berlin, which is good but for `columns`."""
    number = next(_numbers)
    row = {
        "giver": "munich", "id": f"{number}@munich", "hive": "berlin", "name": "human", "state": "open", "reason": None,
        "base": f"1763765432.M000001P1Q{number}R00000000.host", "raw": LETTER % (subject.encode(), str(number).encode()),
    }  # fmt: skip
    return _insert("letters", row | columns)


def task(title: str, **columns: Any) -> tuple[str, dict[str, Any]]:
    """An insert of a task of munich for berlin, which is good but for `columns`."""
    row = {
        "giver": "munich", "id": title, "key": f"{title}.{next(_numbers)}", "place": "berlin", "priority": 2, "once": False,
        "maker": "human", "head": json.dumps({"title": title}), "body": "Do it.", "names": [], "contents": [],
    }  # fmt: skip
    return _insert("tasks", row | columns)


def event(seq: int, text: str, **columns: Any) -> tuple[str, dict[str, Any]]:
    """An insert of an event of munich's journal."""
    return _insert("events", {"hive": "munich", "seq": seq, "event": text, **columns})


def _insert(table: str, row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    cast = {"contents": "::bytea[]", "names": "::text[]", "agents": "::jsonb", "overview": "::jsonb"}
    values = ", ".join(f"%({name})s{cast.get(name, '')}" for name in row)
    return f"insert into {table} ({', '.join(row)}) values ({values})", row


def hive(column: str, value: str) -> tuple[str, dict[str, Any]]:
    """An update of munich's own row."""
    return f"update hives set {column} = %(value)s where name = 'munich'", {"value": value}


REFUSED: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "a file and a folder of one name": [task("both", names=["a", "a/b"], contents=[b"x", b"y"])],
    "a deep path": [task("deep", names=["a/" * 400 + "a"], contents=[b"x"])],
    "a path that leads out": [task("out", names=["../../x"], contents=[b"x"])],
    "a file without a content": [task("null", names=["a"], contents=[None])],
    "a file without a name": [task("nameless", names=[None], contents=[b"x"])],
    "more names than contents": [task("more", names=["a", "b"], contents=[b"x"])],
    "names in two dimensions": [task("square", names=[["a", "b"]], contents=[b"x", b"y"])],
    "a task whose id is no name": [task("../x")],
    "a maker of 1 MB": [task("maker", maker="x" * 1_000_000)],
    "a hundred letters without a text": [letter("none", raw=None) for _ in range(100)],
    "a name of no letters": [letter("nobody", name="")],
    "agents that are a list": [hive("agents", "[1, 2]")],
    "agents whose roles are numbers": [hive("agents", '{"coder": 1}')],
    "agents whose roles are lists": [hive("agents", '{"coder": ["engineer"]}')],
    "agents that are deep": [hive("agents", '{"coder": ' + "[" * 3000 + "]" * 3000 + "}")],
    "agents of 1 MB": [hive("agents", json.dumps({"coder": "x" * 1_000_000}))],
    "an event numbered -1": [event(-1, '{"seq": -1, "kind": "bad"}')],
    "an event of no time": [event(6, '{"seq": 6, "kind": "bad"}', at="infinity")],
    "an overview that is a number": [hive("overview", "3")],
    "an overview of other types": [hive("overview", '{"agents": [1], "tasks": {"inbox": {}}}')],
    "an overview with half a task": [hive("overview", '{"tasks": {"inbox": 0.5}}')],
    "lessons that are a list": [hive("lessons", "[]")],
    "lessons of a remote that are a text": [hive("lessons", '{"host/app": "x"}')],
    "lessons of 1 MB": [hive("lessons", json.dumps({"host/app": ["x" * 1_000_000]}))],
    "a hive that was seen at no time": [hive("seen", "infinity")],
    "a reason of 20 MB": [letter("reason", reason="x" * 20_000_000)],
    "a name that differs by a capital": [_insert("hives", {"name": "Berlin", "identity": "x"})],
    "a hive with the name of all": [_insert("hives", {"name": "any", "identity": "x"})],
    "another version": [_insert("version", {"number": 99})],
}
SET_ASIDE: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "files with the names of the task's own": [task("own", names=["task.md", "attachments"], contents=[b"x", b"y"])],
    "a head that is a list": [task("head", head="[1]")],
    "a deep head": [task("nested", head="[" * 100_000)],
    "a head that is no text": [task("steps", head='{"steps": 3}')],
    "a letter that cannot be read": [letter("returned", base="../x", raw=b"\0" * 99)],
    "an event that says -1": [event(2, '{"seq": -1, "kind": "bad"}')],
    "an event that is no JSON": [event(3, "{")],
    "an event that is a number": [event(4, "4")],
    "an event with the name of another hive": [event(5, '{"seq": 5, "kind": "forged", "hive": "berlin"}')],
    "an overview with another name": [hive("overview", '{"hive": "berlin", "seen_s": "x"}')],
    "the place of another": [
        ("select pg_advisory_lock(hashtextextended('hivemind_' || left(encode(sha256('berlin'), 'hex'), 16), 0))", {}),
        ("insert into places values ('berlin', 'x', 9, now() + interval '1 day') on conflict do nothing", {}),
        ("update places set holder = 'x'", {}),
    ],
    "no version": [("delete from version", {}), ("update version set number = 99", {})],
}  # fmt: skip


@dataclass
class Linked:
    """Two linked hives, of which berlin's process runs, and what munich's role does in the database."""

    berlin: LinkedHive
    execute: Callable[[str, dict[str, Any]], Any]

    def update(self, statement: str, row: dict[str, Any]) -> None:
        """Update a row as soon as it is there."""
        until(lambda: self.execute(f"update {statement}", row).rowcount)

    def others_arrive(self) -> None:
        """See that a good letter and a good task come in, and that all hives can be looked at."""
        number = next(_numbers)
        self.execute(*letter(f"good {number}"))
        self.execute(*task(f"good-{number}"))
        self.execute("select pg_notify(%(channel)s, 'hives')", {"channel": channel("berlin")})
        until(lambda: f"good {number}" in self.berlin.subjects())
        while (claimed := self.berlin.claimed()).title != f"good-{number}":
            self.berlin.finish(claimed, "Done.")
        self.berlin.finish(claimed, "Done.")
        with open_exchange(self.berlin.hive.layout) as connection:
            assert {one["hive"] for one in hive_overviews(connection)} >= {"berlin", "munich"}
            events = [one for one in all_events(connection, follow=False) if one["hive"] == "munich"]
        assert len(events) == len({one["seq"] for one in events})
        assert "good" in [one["kind"] for one in events]


@pytest.fixture(scope="module")
def linked(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    """The hives in tables without their checks: as if a bound had been forgotten, or the rows were older."""
    url, folder = postgres.new_database(), tmp_path_factory.mktemp("linked")
    name = url.rpartition("/")[2]
    berlin, munich = LinkedHive(folder / "berlin", "berlin"), LinkedHive(folder / "munich", "munich")
    with linked_roles(postgres, url) as url_of:
        for one in (berlin, munich):
            one.command("link", url_of(one.name))
        for checks in postgres.execute(CHECKS, name):
            postgres.execute("alter table {} drop constraint {}".format(*checks), name)
        try:
            with psycopg.connect(postgres.url(name, user="munich"), autocommit=True) as connection:
                connection.execute("set search_path = hivemind_exchange; set statement_timeout = '10s'")
                berlin.idle()
                berlin.start()
                works = Linked(berlin, connection.execute)
                works.execute(*event(1_000_000, '{"seq": 1000000, "kind": "good"}'))
                works.others_arrive()
                yield works
        finally:
            berlin.stop(kill=True)
    postgres.drop_database(url)


CHECKS = """select conrelid::regclass::text, conname from pg_constraint
    where contype = 'c' and connamespace = to_regnamespace('hivemind_exchange') and conname not like '%\\_check'"""


def test_the_server_refuses_what_it_can_know_to_be_bad(linked_role: psycopg.Connection[Any]) -> None:
    accepted = []
    for kind, statements in REFUSED.items():
        for statement, row in statements:
            try:
                linked_role.execute(statement, row)  # type: ignore[call-overload]
                accepted.append(kind)
            except (psycopg.IntegrityError, psycopg.errors.InsufficientPrivilege):
                continue
    assert accepted == []
    for statement, row in SET_ASIDE["no version"]:
        assert linked_role.execute(statement, row).rowcount == 0  # type: ignore[call-overload]


_PART = st.sampled_from(
    ("a", "b", "a.", "a-b", ".", "..", "...", "", "ä", "ä" * 127, "ä" * 128, " ", "\n", "A", "task.md")
)
_PATH = st.lists(_PART, min_size=1, max_size=3).map("/".join) | st.sampled_from(
    ("a/" * 31 + "a", "a/" * 32 + "a", "b" * 255, "/".join(["c" * 199] * 5 + ["d"]))
)


@examples(300, 120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.none() | _PATH, st.none() | st.just(b"x")), max_size=4))
def test_tables_and_reader_agree_on_which_files_can_lie_in_a_folder(
    linked_role: psycopg.Connection[Any], files: list[tuple[str | None, bytes | None]]
) -> None:
    names, contents = [name for name, _ in files], [raw for _, raw in files]
    [fits] = linked_role.execute("select files_fit(%s::text[], %s::bytea[])", (names, contents)).fetchone() or (None,)
    try:
        check_received_files(names, contents)
    except Unreadable:
        assert fits is False
    else:
        assert fits is True


def test_one_holder_speaks_for_a_hive_and_its_next_process_goes_on_at_once(
    linked_role: psycopg.Connection[Any], tmp_path: Path
) -> None:
    for name in ("hive", "copy"):
        (tmp_path / name).mkdir()
    first = HiveLease(linked_role, "munich", tmp_path / "hive")
    with pytest.raises(LinkDown, match="another process acts for munich"):
        HiveLease(linked_role, "munich", tmp_path / "copy")
    successor = HiveLease(linked_role, "munich", tmp_path / "hive")
    with pytest.raises(LinkDown, match="another process now acts for munich"):
        first.renew()
    first.release()  # to no effect
    successor.renew()
    successor.release()
    HiveLease(linked_role, "munich", tmp_path / "copy")
    linked_role.execute("update places set lease = now() - interval '1 s'")
    HiveLease(linked_role, "munich", tmp_path / "hive")


@pytest.fixture  # not together with `linked`: both make the roles
def linked_role(
    postgres: Server, database: str, pair: tuple[LinkedHive, LinkedHive]
) -> Iterator[psycopg.Connection[Any]]:
    """What the role of munich is connected by."""
    with psycopg.connect(postgres.url(database.rpartition("/")[2], user="munich"), autocommit=True) as connection:
        connection.execute("set search_path = hivemind_exchange")
        yield connection


@pytest.mark.shows("promise: P48")
@pytest.mark.parametrize("kind", [*REFUSED, *SET_ASIDE])
def test_a_bad_row_ends_alone(kind: str, linked: Linked) -> None:
    for statement, row in {**REFUSED, **SET_ASIDE}[kind]:
        with suppress(psycopg.errors.InsufficientPrivilege):
            linked.execute(statement, row)
    linked.others_arrive()


@pytest.mark.parametrize(
    ("names", "contents"),
    [
        (["files/a", None], [b"x", b"y"]),
        (["files/a"], [None]),
        (["files/a", "files/a/b"], [b"x", b"y"]),
        (["files/" + "a/" * 99], [b"x"]),
    ],
)
def test_a_result_whose_files_cannot_be_read_comes_home_without_them(
    names: list[str | None], contents: list[bytes | None], linked: Linked
) -> None:
    task_id = linked.berlin.add("For munich", "munich")
    taken = "state = 'taken', taker = 'munich', generation = nextval('generations'), lease = now() + interval '1 h'"
    linked.update(f"tasks set {taken} where state = 'open' and giver = 'berlin'", {})
    done = "state = 'done', body = 'Done.', names = %(names)s::text[], contents = %(contents)s::bytea[]"
    linked.update(
        f"tasks set {done} where state = 'taken' and giver = 'berlin'", {"names": names, "contents": contents}
    )
    linked.others_arrive()
    until(lambda: linked.berlin.hive.tasks.listing.outcome(task_id) == "done")
    assert "Not accepted from munich" in (linked.berlin.hive.layout.done / task_id / "result.md").read_text()


@pytest.mark.parametrize(
    "columns",
    [{"raw": b"\0" * 99, "reason": "Gone."}, {"reason": "x" * 20_000_000}],
    ids=["no letter", "a long reason"],
)
def test_a_letter_that_comes_back_unreadable_ends_alone(columns: dict[str, Any], linked: Linked) -> None:
    linked.berlin.hive.mail.send("coder", ["human@munich"], "Away", "")
    returned = ", ".join(f"{name} = %({name})s" for name in columns)
    linked.update(f"letters set state = 'ended', {returned} where hive = 'munich' and state = 'open'", columns)
    linked.others_arrive()
    box = linked.berlin.hive.layout.mailbox("coder")
    assert all(path.stat().st_size < 10_000 for path in (box / "new").iterdir())


def test_status_and_log_tell_of_hives_whose_rows_cannot_be_read(linked: Linked) -> None:
    linked.execute(*hive("overview", '{"agents": [1]}'))
    shown = linked.berlin.command("status", "--all")
    assert "agents" in next(line for line in shown.splitlines() if line.startswith("munich"))
    linked.execute(*event(7, "["))
    assert "event.unreadable" in linked.berlin.command("log", "--all")


def test_what_was_said_is_changed_by_nobody_who_takes_it(linked: Linked) -> None:
    task_id = linked.berlin.add("For munich, too", "munich")
    linked.berlin.hive.mail.send("human", ["nobody@munich"], "Between us", "")
    mine = "tasks set taker = 'munich', state = 'taken', generation = nextval('generations'), lease = now() + interval '1 h'"
    linked.update(f"{mine} where id = %(id)s", {"id": task_id})
    linked.update("letters set state = 'ended', reason = 'Gone.' where hive = 'munich' and state = 'open'", {})
    for statement in (
        "letters set giver = 'munich'",
        "letters set base = 'x'",
        "tasks set giver = 'munich'",
        "tasks set place = 'any'",
        "tasks set body = 'Pay.' where state = 'taken'",
        "tasks set state = 'open', taker = null, names = '{}'",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="what was said"):
            linked.execute(f"update {statement}", {})
    linked.update("tasks set state = 'done', body = 'Done.' where id = %(id)s", {"id": task_id})
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="what was said"):
        linked.execute("update tasks set state = 'open', taker = null where taker = 'munich'", {})
