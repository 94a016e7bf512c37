"""The tables in which linked hives meet, and how one wakes another (README.md, *The tables*)."""

# ruff: noqa: S608 - statements are put together from this program's own constants
from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hivemind.errors import UserError
from hivemind.fs.postgres import PostgresSchema
from hivemind.layout import ANY

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["LEASE", "SCHEMA", "channel", "tell"]

LEASE = "interval '30 seconds'"  # of a task, and of a hive's place; no task's ends so soon after the server's start
_ROLES = "(SELECT rolname FROM pg_roles WHERE pg_has_role(oid, 'member'))"
_OWN = f"(SELECT hives.name FROM hives WHERE hives.role IN {_ROLES})"
_FOR_US = f"(place = '{ANY}' OR place IN {_OWN})"
_FREE = "(taker IS NULL OR (state = 'taken' AND NOT once AND lease < now()))"
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
    # What a role may do with rows: those of its own hives, what is for them, and what any hive may have.
    *(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY" for table in ("hives", "letters", "events", "tasks")),
    *(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY" for table in ("hives", "letters", "events", "tasks")),
    "CREATE POLICY seen ON hives FOR SELECT USING (true)",
    f"CREATE POLICY own ON hives USING (role IN {_ROLES})",
    f"CREATE POLICY given ON letters USING (giver IN {_OWN})",
    f"CREATE POLICY seen ON letters FOR SELECT USING (hive IN {_OWN})",
    f"CREATE POLICY received ON letters FOR UPDATE USING (hive IN {_OWN})",
    "CREATE POLICY seen ON events FOR SELECT USING (true)",
    f"CREATE POLICY own ON events USING (hive IN {_OWN})",
    f"CREATE POLICY given ON tasks USING (giver IN {_OWN})",
    f"CREATE POLICY seen ON tasks FOR SELECT USING (taker IN {_OWN} OR ({_FOR_US} AND {_FREE}))",
    f"""CREATE POLICY taken ON tasks FOR UPDATE USING (taker IN {_OWN} OR ({_FOR_US} AND {_FREE}))
        WITH CHECK (taker IN {_OWN} OR ({_FOR_US} AND taker IS NULL))""",
)
# Bounds of version 2, which `rows.py` and `files.py` have as well: another bound is another version.
LINE_LENGTH, REASON_LENGTH, EVENT_LENGTH = 1000, 2000, 4 << 20  # characters
PATH_LENGTH, PATH_DEPTH, NAME_BYTES, MOST_FILES, FILES_BYTES = 1000, 32, 255, 1000, 32 << 20
LETTER_BYTES, HEAD_BYTES, TEXT_BYTES, MOST_COUNTED = 32 << 20, 1 << 20, 16 << 20, 10**12
_JSON_LENGTH = 256 << 10


def _is_name(column: str) -> str:
    return f"{column} ~ '^[a-z0-9][a-z0-9._-]{{0,63}}$' AND {column} !~ '[.][.]'"


def _is_line(*columns: str) -> str:
    return " AND ".join(f"char_length({column}) BETWEEN 1 AND {LINE_LENGTH}" for column in columns)


def _is_object(column: str, **wrong: str) -> str:
    """A condition for a JSON object; `wrong` has a JSON path for each of the values that it must not have."""
    paths = " AND ".join(f"NOT jsonb_path_exists({column}, 'strict {path}', '{{}}', true)" for path in wrong.values())
    return f"jsonb_typeof({column}) = 'object' AND octet_length({column}::text) <= {_JSON_LENGTH} AND {paths}"


_CHECKS = {
    "hives": {
        "hives_name": f"{_is_name('name')} AND name <> '{ANY}'",  # small letters alone: none differs by its capitals
        "hives_identity": _is_line("identity"),
        "hives_agents": _is_object("agents", roles='$.* ? (@.type() != "string" && @.type() != "null")'),
        "hives_overview": _is_object(
            "overview",
            objects='$.keyvalue() ? ((@.key == "agents" || @.key == "tasks") && @.value.type() != "object")',
            states='$.agents.* ? (@.type() != "string")',
            counts=f'$.tasks.* ? (@.type() != "number" || @ < 0 || @ > {MOST_COUNTED} || @.floor() != @)',
        ),
        "hives_seen": "isfinite(seen)",
        "hives_events": f"events BETWEEN 0 AND {MOST_COUNTED}",
    },
    "letters": {
        "letters_giver": _is_name("giver"),
        "letters_lines": _is_line("id", "hive", "name", "base"),
        "letters_text": "state = 'closed' OR raw IS NOT NULL",
        "letters_reason": f"char_length(reason) <= {REASON_LENGTH}",
    },
    "events": {
        "events_hive": _is_name("hive"),
        "events_seq": f"seq BETWEEN 1 AND {MOST_COUNTED}",
        "events_event": f"char_length(event) <= {EVENT_LENGTH}",
        "events_at": "isfinite(at)",
    },
    "tasks": {
        "tasks_names": " AND ".join(map(_is_name, ("giver", "id", "place"))),
        "tasks_lines": _is_line("key", "assignee", "role", "maker"),
        "tasks_files": "files_fit(names, contents)",
    },
}


_REPAIRS = {  # of a row that its hive's process writes anew; other rows of hives that break a bound go
    "hives_agents": "agents = '{}'",
    "hives_overview": "overview = '{}'",
    "hives_seen": "seen = now()",
    "hives_events": "events = (SELECT coalesce(max(seq), 0) FROM events WHERE hive = name)",
}
_TABLES = ("events", "letters", "tasks", "hives")  # whatever refers to a hive goes before it


def _set_aside(table: str) -> tuple[str, ...]:
    """Statements that copy the rows which break a new bound into a table that only the owner can read, with the reason."""
    reasons = ", ".join(f"CASE WHEN ({check}) IS FALSE THEN '{name}' END" for name, check in _CHECKS[table].items())
    return (
        f"""CREATE TABLE {table}_aside AS SELECT * FROM (SELECT concat_ws(', ', {reasons}) AS broken, now() AS aside_at,
            {table}.* FROM {table}) AS rows WHERE broken <> ''""",
        f"ALTER TABLE {table}_aside ENABLE ROW LEVEL SECURITY",
    )


def _broken(table: str) -> str:
    return "(" + " AND ".join(f"({check})" for check in _CHECKS[table].values()) + ") IS FALSE"


_VERSION_2 = (
    # files that can lie in one folder: paths without `.` or `..`, none of which is a folder of another one
    f"""CREATE FUNCTION files_fit(names text[], contents bytea[]) RETURNS boolean
        LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$ SELECT
        coalesce(array_ndims(names), 1) = 1 AND coalesce(array_ndims(contents), 1) = 1
        AND cardinality(names) = cardinality(contents) AND cardinality(names) <= {MOST_FILES}
        AND (SELECT coalesce(bool_and(raw IS NOT NULL), true) AND coalesce(sum(octet_length(raw)), 0) <= {FILES_BYTES}
            FROM unnest(contents) AS raw)
        AND (SELECT coalesce(bool_and(path IS NOT NULL AND char_length(path) <= {PATH_LENGTH}
                AND path !~ '(^|/)[.]{{0,2}}(/|$)' AND NOT coalesce(starts_with(path || '/', folder), false)
                AND cardinality(string_to_array(path, '/')) <= {PATH_DEPTH}
                AND (SELECT max(octet_length(part)) FROM unnest(string_to_array(path, '/')) AS part) <= {NAME_BYTES}), true)
            FROM (SELECT path, lag(path || '/') OVER (ORDER BY path || '/' COLLATE "C") AS folder FROM unnest(names) AS path)
                AS paths) $$""",
    *(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY" for table in _TABLES),  # else the owner does not see all
    *(statement for table in _TABLES for statement in _set_aside(table)),
    *(f"UPDATE hives SET {repair} WHERE ({_CHECKS['hives'][name]}) IS FALSE" for name, repair in _REPAIRS.items()),
    "UPDATE tasks SET taker = NULL, state = CASE WHEN state = 'taken' AND NOT once THEN 'open' ELSE state END"
    f" WHERE taker IN (SELECT name FROM hives WHERE {_broken('hives')})",
    *(f"DELETE FROM {table} WHERE {_broken(table)}" for table in _TABLES),
    *(
        f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({check})"
        for table in _TABLES
        for name, check in _CHECKS[table].items()
    ),
    # Who speaks for a hive. Its role alone sees that: an advisory lock could be taken by anybody.
    """CREATE TABLE places (
        hive text PRIMARY KEY REFERENCES hives (name) ON DELETE CASCADE,
        holder text NOT NULL, generation bigint NOT NULL, lease timestamptz NOT NULL)""",
    "ALTER TABLE places ENABLE ROW LEVEL SECURITY",
    f"CREATE POLICY own ON places USING (hive IN {_OWN})",
    *(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY" for table in (*_TABLES, "places")),
    """DO $$ DECLARE role text; name text; rows_aside boolean; BEGIN
        FOR role IN SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
            FROM pg_class, aclexplode(relacl) WHERE oid = 'hives'::regclass AND grantee <> relowner
        LOOP EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON places TO ' || role; END LOOP;
        FOREACH name IN ARRAY ARRAY['events_aside', 'letters_aside', 'tasks_aside', 'hives_aside'] LOOP
            EXECUTE format('SELECT EXISTS (SELECT FROM %I)', name) INTO rows_aside;
            IF NOT rows_aside THEN EXECUTE format('DROP TABLE %I', name); END IF;
        END LOOP;
    END $$""",
)
SCHEMA = PostgresSchema(
    name="hivemind_exchange",
    what="tables of linked hives",
    room="exchange",
    error=UserError,
    migrations=(_VERSION_1, _VERSION_2),
)


def channel(hive: str) -> str:
    """The channel on which a hive listens; that of `any` tells of tasks for any hive."""
    return f"hivemind_{hashlib.sha256(hive.encode()).hexdigest()[:16]}"


def tell(connection: Connection, *hives: str, what: str = "") -> None:
    """Wake hives once what was written is committed; with `what` "hives" they look who is linked."""
    for hive in dict.fromkeys(hives):
        connection.execute("select pg_notify(%s, %s)", (channel(hive), what))
