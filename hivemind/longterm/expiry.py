"""Entries whose time is over: no call gives or counts them, and they are forgotten for good in passing."""

from __future__ import annotations

import sqlite3

from hivemind.longterm.schema import PLACES

__all__ = ["drop_expired", "expired_by_space", "next_expiry"]


def drop_expired(sql: sqlite3.Connection, now: int, most: int) -> int:
    """Delete at most `most` entries that have expired, with all that they ever said; gives how many."""
    return sql.execute(
        "DELETE FROM entries WHERE seq IN (SELECT seq FROM entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)",
        (now, most),
    ).rowcount


def expired_by_space(sql: sqlite3.Connection, now: int) -> dict[int, int]:
    """How many entries have expired and are not deleted yet, by the number of their namespace; reads only those."""
    return dict(
        sql.execute(
            "SELECT seq / ? AS space, count(*) FROM entries WHERE expires_at <= ? GROUP BY space", (PLACES, now)
        )
    )


def next_expiry(sql: sqlite3.Connection) -> int | None:
    """When the entry that expires first does, in microseconds; None if none will."""
    (found,) = sql.execute("SELECT min(expires_at) FROM entries WHERE expires_at IS NOT NULL").fetchone()
    return None if found is None else int(found)
