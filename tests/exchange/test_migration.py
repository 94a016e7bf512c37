"""Tables of version 1 with rows in them are brought to version 3: good rows stay, bad ones are set aside with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from hivemind.errors import UserError
from hivemind.exchange.link import connect_exchange
from hivemind.exchange.schema import SCHEMA
from hivemind.fs.postgres import PostgresSchema
from tests.exchange.conftest import RIGHTS
from tests.exchange.test_bad_rows import REFUSED, event, hive, letter, task
from tests.postgres import Server

VERSION_1 = PostgresSchema(SCHEMA.name, SCHEMA.contents, SCHEMA.crash_prefix, SCHEMA.error, SCHEMA.migrations[:1])


@pytest.fixture
def owned(postgres: Server, database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a role that owns tables of version 1 and is no superuser; `munich` is a member of `hives`."""
    name = database.rpartition("/")[2]
    postgres.execute(f"create role owner login; grant create on database {name} to owner; select 1", name)
    try:
        with psycopg.connect(postgres.url(name, user="owner"), autocommit=True) as connection:
            VERSION_1.prepare(connection, database)
            postgres.execute(f"{RIGHTS}; create role munich login in role hives; select 1", name)
            connection.execute("set search_path = hivemind_exchange")
            yield connection
    finally:
        postgres.execute("drop owned by owner, hives, munich cascade; drop role owner, hives, munich; select 1", name)


def test_bad_rows_are_set_aside_and_good_ones_stay(
    owned: psycopg.Connection[Any], postgres: Server, database: str
) -> None:
    name = database.rpartition("/")[2]
    with psycopg.connect(postgres.url(name, user="munich"), autocommit=True) as munich:
        munich.execute("set search_path = hivemind_exchange")
        munich.execute("insert into hives (name, identity) values ('munich', 'x')")
        for statement, row in (letter("good"), task("good"), event(1, '{"seq": 1}')):
            munich.execute(statement, row)  # type: ignore[call-overload]
        for statement, row in (row for rows in REFUSED.values() for row in rows):
            if "insert into version" not in statement and "set lessons" not in statement:
                munich.execute(statement, row)  # type: ignore[call-overload]
        munich.execute(*hive("agents", "[1]"))  # type: ignore[arg-type]
        munich.execute(*task("taken"))  # type: ignore[arg-type]
        munich.execute("update tasks set state = 'taken', taker = 'Berlin' where id = 'taken'")
        url = postgres.url(name, user="munich")
        with (
            pytest.raises(UserError, match=r"which munich may not migrate to version 3.*owner"),
            connect_exchange(url) as role,
        ):
            SCHEMA.prepare(role, url)

        SCHEMA.prepare(owned, database)

        assert SCHEMA.version(munich, database) == 3
        for table in ("hives_aside", "letters_aside", "events_aside", "tasks_aside"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                munich.execute(f"select from {table}")
        munich.execute("insert into places values ('munich', 'x', 1, now())")
        assert munich.execute("select name, agents from hives").fetchall() == [("munich", {})]
        assert munich.execute("select id, state, taker from tasks order by id").fetchall() == [
            ("good", "open", None),
            ("taken", "open", None),
        ]
        assert munich.execute("select count(*) from letters").fetchone() == (1,)
        assert munich.execute("select seq from events").fetchall() == [(1,)]
    reasons = "select string_agg(distinct broken, ' ') from {}"
    assert owned.execute(reasons.format("tasks_aside")).fetchone() == ("tasks_files tasks_names tasks_words",)  # type: ignore[call-overload]
    assert owned.execute("select count(*) from letters_aside where broken = 'letters_text'").fetchone() == (100,)
    assert owned.execute("select seq, broken from events_aside where seq < 0").fetchall() == [(-1, "events_seq")]
    assert owned.execute("select name from hives_aside order by name").fetchall() == [
        ("Berlin",),
        ("any",),
        ("munich",),
    ]


def test_tables_without_bad_rows_leave_nothing_aside(owned: psycopg.Connection[Any], database: str) -> None:
    SCHEMA.prepare(owned, database)
    tables = "select count(*) from pg_tables where schemaname = 'hivemind_exchange' and tablename like '%_aside'"
    assert owned.execute(tables).fetchone() == (0,)
