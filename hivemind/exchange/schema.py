"""The tables that linked hives share, and the notifications with which hives wake each other (README.md, *The tables*)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind.errors import UserError
from hivemind.fs.postgres import PostgresSchema
from hivemind.layout import ANY

if TYPE_CHECKING:
    from psycopg import Connection

# The lease of a task and of a hive's place. For so long after a start of the server, no lease of a task expires.
LEASE = "interval '30 seconds'"
_ROLES = "(SELECT rolname FROM pg_roles WHERE pg_has_role(oid, 'member'))"
_OWN_HIVES = f"(SELECT hives.name FROM hives WHERE hives.role IN {_ROLES})"  # noqa: S608 - constants of this program
_ADDRESSED_TO_OWN = f"(place = '{ANY}' OR place IN {_OWN_HIVES})"
_CLAIMABLE = "(taker IS NULL OR (state = 'taken' AND NOT once AND lease < now()))"
_VERSION_1 = (
    """CREATE TABLE hives (
        name text PRIMARY KEY,
        role name NOT NULL DEFAULT current_user,
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
    # A database role may use the rows of its hives, rows addressed to its hives, and rows for any hive.
    *(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY" for table in ("hives", "letters", "events", "tasks")),
    *(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY" for table in ("hives", "letters", "events", "tasks")),
    "CREATE POLICY seen ON hives FOR SELECT USING (true)",
    f"CREATE POLICY own ON hives USING (role IN {_ROLES})",
    f"CREATE POLICY given ON letters USING (giver IN {_OWN_HIVES})",
    f"CREATE POLICY seen ON letters FOR SELECT USING (hive IN {_OWN_HIVES})",
    f"CREATE POLICY received ON letters FOR UPDATE USING (hive IN {_OWN_HIVES})",
    "CREATE POLICY seen ON events FOR SELECT USING (true)",
    f"CREATE POLICY own ON events USING (hive IN {_OWN_HIVES})",
    f"CREATE POLICY given ON tasks USING (giver IN {_OWN_HIVES})",
    f"CREATE POLICY seen ON tasks FOR SELECT USING (taker IN {_OWN_HIVES} OR ({_ADDRESSED_TO_OWN} AND {_CLAIMABLE}))",
    f"""CREATE POLICY taken ON tasks FOR UPDATE USING (taker IN {_OWN_HIVES} OR ({_ADDRESSED_TO_OWN} AND {_CLAIMABLE}))
        WITH CHECK (taker IN {_OWN_HIVES} OR ({_ADDRESSED_TO_OWN} AND taker IS NULL))""",
)
# The limits that version_2.sql and version 3 check.
LINE_LENGTH, REASON_LENGTH = 1000, 2000  # characters
PATH_LENGTH, PATH_DEPTH, NAME_BYTES, MAX_FILES, FILES_BYTES = 1000, 32, 255, 1000, 32 << 20
LETTER_BYTES, HEAD_BYTES, TEXT_BYTES, LESSONS_BYTES, MAX_COUNT = 32 << 20, 1 << 20, 16 << 20, 256 << 10, 10**12
_VERSION_2 = (Path(__file__).with_name("version_2.sql").read_text("utf-8"),)
_VERSION_3 = (
    """ALTER TABLE hives ADD COLUMN lessons jsonb NOT NULL DEFAULT '{}'
        CONSTRAINT hives_lessons CHECK (is_object(lessons, 'strict $.* ? (@.type() != "array")'))""",
)
SCHEMA = PostgresSchema(
    name="hivemind_exchange",
    contents="tables of linked hives",
    crash_prefix="exchange",
    error=UserError,
    migrations=(_VERSION_1, _VERSION_2, _VERSION_3),
)


def channel(hive: str) -> str:
    """Return the name of the channel on which a hive listens. All hives listen on the channel of `any`."""
    return f"hivemind_{hashlib.sha256(hive.encode()).hexdigest()[:16]}"


def notification(hive: str, payload: str = "") -> str:
    """Return an SQL expression that wakes a hive at the transaction's commit. `hive` is an SQL expression for the hive's name.

    `payload` is the text of the notification.
    """
    return f"pg_notify('hivemind_' || left(encode(sha256(convert_to({hive}, 'UTF8')), 'hex'), 16), '{payload}')"


def notify(connection: Connection, *hives: str, payload: str = "") -> None:
    """Wake hives when the transaction commits. The payload "hives" makes a hive reload the list of linked hives."""
    if hives:
        sql = f"select {notification('name', payload)} from unnest(%s::text[]) as name"  # noqa: S608 - constants of this program
        connection.execute(sql.encode(), ([*hives],))
