"""The tables in which linked hives meet, and how one wakes another (README.md, *The tables*)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hivemind.errors import UserError
from hivemind.fs.postgres import PostgresSchema

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["SCHEMA", "channel", "tell"]

_VERSION_1 = (
    """CREATE TABLE hives (
        name text PRIMARY KEY,
        identity text NOT NULL,
        linked timestamptz NOT NULL DEFAULT now(),
        seen timestamptz NOT NULL DEFAULT now(),
        agents jsonb NOT NULL DEFAULT '{}',
        overview jsonb NOT NULL DEFAULT '{}',
        events bigint NOT NULL DEFAULT 0)""",
    """CREATE TABLE letters (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        giver text NOT NULL, id text NOT NULL, hive text NOT NULL, name text NOT NULL, base text NOT NULL,
        raw bytea CHECK (octet_length(raw) <= 32 << 20), reason text,
        state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'ended', 'closed')),
        changed timestamptz NOT NULL DEFAULT now(),
        UNIQUE (giver, id, hive, name))""",
    "CREATE INDEX ON letters (hive, number) WHERE state = 'open'",
    "CREATE INDEX ON letters (giver, number) WHERE state = 'ended'",
    "CREATE INDEX ON letters (giver, changed) WHERE state = 'closed'",
    """CREATE TABLE events (
        hive text NOT NULL REFERENCES hives (name) ON DELETE CASCADE,
        seq bigint NOT NULL, event text NOT NULL, at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (hive, seq))""",
    """CREATE TABLE tasks (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        giver text NOT NULL REFERENCES hives (name) ON DELETE CASCADE, id text NOT NULL, key text NOT NULL,
        place text NOT NULL, assignee text, role text, priority integer NOT NULL, once boolean NOT NULL,
        maker text NOT NULL,
        head text NOT NULL CHECK (octet_length(head) <= 1 << 20),
        body text NOT NULL CHECK (octet_length(body) <= 16 << 20),
        names text[] NOT NULL, contents bytea[] NOT NULL CHECK (pg_column_size(contents) <= 40 << 20),
        state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'taken', 'done', 'failed', 'closed')),
        taker text REFERENCES hives (name), generation bigint, lease timestamptz, closed timestamptz,
        UNIQUE (giver, key))""",
    "CREATE INDEX ON tasks (priority, number) WHERE state = 'open'",
    "CREATE INDEX ON tasks (taker)",
    "CREATE INDEX ON tasks (giver, closed)",
    "CREATE INDEX ON tasks (giver) WHERE state IN ('done', 'failed')",
    "CREATE SEQUENCE generations",
)
SCHEMA = PostgresSchema(
    name="hivemind_exchange",
    what="tables of linked hives",
    room="exchange",
    error=UserError,
    migrations=(_VERSION_1,),
)


def channel(hive: str) -> str:
    """The channel on which a hive listens; that of `any` tells of tasks for any hive."""
    return f"hivemind_{hashlib.sha256(hive.encode()).hexdigest()[:16]}"


def tell(connection: Connection, *hives: str, what: str = "") -> None:
    """Wake hives once what was written is committed; with `what` "hives" they look who is linked."""
    for hive in dict.fromkeys(hives):
        connection.execute("select pg_notify(%s, %s)", (channel(hive), what))
