"""The tables in which linked hives meet, and their migrations (README.md, *The tables*)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hivemind.errors import UnknownVersion, UserError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["ANY", "SCHEMA", "TablesMissing", "channel", "is_there", "migrate", "tell"]

SCHEMA = "hivemind_exchange"
ANY = "any"
_LOCK = int.from_bytes(hashlib.sha256(SCHEMA.encode()).digest()[:8], "big", signed=True)
_MIGRATIONS = (
    f"""
    create table {SCHEMA}.hives (
      name text primary key,
      identity text not null,
      linked timestamptz not null default now(),
      seen timestamptz not null default now(),
      agents jsonb not null default '{{}}',
      overview jsonb not null default '{{}}',
      events bigint not null default 0);
    create table {SCHEMA}.letters (
      number bigint generated always as identity primary key,
      giver text not null, id text not null, hive text not null, name text not null, base text not null,
      raw bytea, reason text,
      state text not null default 'open' check (state in ('open', 'ended', 'closed')),
      changed timestamptz not null default now(),
      unique (giver, id, hive, name));
    create index on {SCHEMA}.letters (hive, number) where state = 'open';
    create index on {SCHEMA}.letters (giver, number) where state = 'ended';
    create index on {SCHEMA}.letters (giver, changed) where state = 'closed';
    create table {SCHEMA}.events (
      hive text not null references {SCHEMA}.hives (name) on delete cascade,
      seq bigint not null, event text not null, at timestamptz not null default now(),
      primary key (hive, seq));
    """,
)


class TablesMissing(UserError):
    """The database has no tables of an exchange."""


def is_there(connection: Connection) -> bool:
    """Whether the database has the tables, of a version that this program knows. Raises UnknownVersion."""
    found = connection.execute("select to_regclass(%s)", (f"{SCHEMA}.version",)).fetchone()
    if found is None or found[0] is None:
        return False
    row = connection.execute("select version from version").fetchone()
    version = 0 if row is None else int(row[0])
    if version > len(_MIGRATIONS):
        raise UnknownVersion(
            f"the tables in {SCHEMA} are of version {version}, this program knows version {len(_MIGRATIONS)}",
            mend="use the hivemind that wrote them, on every machine",
        )
    return version == len(_MIGRATIONS)


def migrate(connection: Connection) -> None:
    """Make the tables, or bring them to this program's version; one hive does it, another one waits. Raises UnknownVersion,
    and what the server says to a role that must not make them."""
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        if is_there(connection):
            return
        connection.execute(f"create schema if not exists {SCHEMA}")
        connection.execute(f"create table if not exists {SCHEMA}.version (version integer not null)")
        row = connection.execute("select version from version").fetchone()
        for statements in _MIGRATIONS[0 if row is None else row[0] :]:
            connection.execute(statements)
        connection.execute("delete from version")
        connection.execute("insert into version values (%s)", (len(_MIGRATIONS),))


def channel(hive: str) -> str:
    """The channel on which a hive listens; that of `any` tells of tasks for any hive."""
    return f"hivemind_{hashlib.sha256(hive.encode()).hexdigest()[:16]}"


def tell(connection: Connection, *hives: str, what: str = "") -> None:
    """Wake hives once what was written is committed; with `what` "hives" they look who is linked."""
    for hive in dict.fromkeys(hives):
        connection.execute("select pg_notify(%s, %s)", (channel(hive), what))
