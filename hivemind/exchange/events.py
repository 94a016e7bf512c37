"""Copies the journals of linked hives to the exchange, in order and without gaps, and reads them (README.md, *The rest*)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable
from hivemind.exchange.rows import EventRow, read_row
from hivemind.exchange.schema import channel
from hivemind.presence.parts import Parts

if TYPE_CHECKING:
    from psycopg import Connection

_EVENTS_PER_BATCH, _BYTES_PER_BATCH = 500, 32 << 20
_RETENTION_DAYS = 30
_FOLLOWERS = "followers of the journal"


class JournalShipper:
    """Copies the journal of one hive into the exchange, and records there the last copied seq."""

    def __init__(self, hive: Parts, connection: Connection, name: str) -> None:
        self._hive, self._connection, self._name = hive, connection, name
        row = connection.execute("select events from hives where name = %s", (name,)).fetchone()
        self._shipped = 0 if row is None else int(row[0])
        self.problem: str | None = None

    def ship(self) -> bool:
        """Copy the next events in one transaction. Return True if there are more events to copy."""
        last = self._hive.journal.seq
        self.problem = None
        if last < self._shipped:
            self.problem = (
                f"the journal ends at {last}, but {self._shipped} of its events are in the exchange: was it restored?"
            )
        if last <= self._shipped:
            return False
        rows: list[tuple[str, int, str]] = []
        for event in self._hive.journal.events(self._shipped):
            if event.seq > last or len(rows) == _EVENTS_PER_BATCH:
                break
            rows.append(
                (self._name, event.seq, json.dumps(event.as_dict(), ensure_ascii=False).replace("\\u0000", "\\ufffd"))
            )
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany("insert into events (hive, seq, event) values (%s, %s, %s)", rows)
            cursor.execute("update hives set events = %s where name = %s", (rows[-1][1], self._name))
            cursor.execute("select pg_notify(%s, '')", (channel(_FOLLOWERS),))
        self._shipped = rows[-1][1]
        return last > self._shipped

    def delete_old(self) -> None:
        """Delete this hive's old events from the exchange. The hive's journal still contains them."""
        self._connection.execute(
            "delete from events where hive = %s and at < now() - make_interval(days => %s)",
            (self._name, _RETENTION_DAYS),
        )


def all_events(connection: Connection, *, follow: bool) -> Iterator[dict[str, Any]]:
    """Yield the events of all linked hives, for each hive in order, with the fields `hive` and `at` (the time of copying).

    An event that cannot be read is yielded as `event.unreadable`. With `follow`, wait for further events, without end.
    """
    seen: dict[str, int] = {}
    if follow:
        connection.execute(f"listen {channel(_FOLLOWERS)}")
    while True:
        names = [name for (name,) in connection.execute("select name from hives order by name").fetchall()]
        rows = connection.execute(
            "select hive, seq, to_char(at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS+00:00'), event from"
            " (select *, sum(octet_length(event)) over (order by at, hive, seq) - octet_length(event) as before from"
            " (select events.* from events"
            " join unnest(%s::text[], %s::bigint[]) as seen (name, since) on hive = name and seq > since"
            " order by at, hive, seq limit 5000) as next) as next where before < %s order by at, hive, seq",
            (names, [seen.get(name, 0) for name in names], _BYTES_PER_BATCH),
        ).fetchall()
        for columns in rows:
            hive, seq, at, _ = columns
            seen[hive] = max(seq, seen.get(hive, 0))
            try:
                event = read_row(EventRow, columns).event
            except Unreadable as error:
                event = {"kind": "event.unreadable", "problem": str(error)}
            row_fields = {"hive": hive, "at": at, "seq": seq}
            yield {**row_fields, **event, **row_fields}
        if not rows and not follow:
            return
        if not rows:
            for _ in connection.notifies(stop_after=1):
                pass
