"""Letters between hives: stored in the exchange, forwarded once, bounced with the reason (README.md, *Letters*)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, read_input
from hivemind.exchange.schema import tell
from hivemind.fs import reached
from hivemind.layout import EXCHANGE, HUMAN
from hivemind.mail import Message
from hivemind.mail.addressing import unknown_agent
from hivemind.presence.parts import Parts

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["Letters"]

_AT_ONCE, _BYTES_AT_ONCE = 100, 32 << 20
_KEPT_DAYS = 30


class Letters:
    """The letters of one hive, which its exchange process carries. Each method does a bounded piece and returns whether there
    may be more; what is interrupted is done again, to the same end."""

    def __init__(self, hive: Parts, connection: Connection, name: str) -> None:
        self._hive, self._connection, self._name = hive, connection, name
        self._delivered: set[int] = set()  # not yet confirmed to the exchange

    def send(self) -> bool:
        """Store what lies in the mailbox of `exchange`; it is taken away there once it is committed."""
        box = self._hive.mail.boxes.get(EXCHANGE)
        entries = sorted(box.entries(), key=lambda entry: entry.base)
        rows: list[dict[str, Any]] = []
        sent = []
        looked_at = read = 0
        for entry in entries[:_AT_ONCE]:
            if read >= _BYTES_AT_ONCE:
                break
            looked_at += 1
            try:
                message = self._hive.mail.reader.read_message(EXCHANGE, box, entry)
                if message is None:
                    continue
                raw = read_input(message.path)
                rows += self._rows(message, raw)
                read += len(raw)
            except Unreadable as error:
                self._hive.mail.bury(EXCHANGE, entry, str(error))
                continue
            sent.append(message.path)
        if rows:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.executemany(
                    "insert into letters (giver, id, hive, name, base, raw, state, reason)"
                    " select %(giver)s, %(id)s, %(hive)s, %(name)s, %(base)s, %(raw)s,"
                    " case when there then 'open' else 'ended' end,"
                    " case when there then null else 'no linked hive has the name ' || %(hive)s end"
                    " from (select exists (select from hives where name = %(hive)s) as there) as one"
                    " on conflict do nothing",
                    rows,
                )
                tell(self._connection, *(row["hive"] for row in rows), self._name)
        reached("exchange.letters.stored")
        for path in sent:
            os.unlink(path)
        return len(entries) > looked_at

    def _rows(self, message: Message, raw: bytes) -> list[dict[str, Any]]:
        """A row for each address of another hive. Raises Unreadable for a letter that the runtime has not written."""
        if not message.trusted:
            raise Unreadable("was not written by hivemind, or was changed since: not sent", where=message.base)
        rows: list[dict[str, Any]] = []
        for recipient in dict.fromkeys((*message.to, *message.cc)):
            name, _, hive = recipient.rpartition("@")
            if name:
                told = {"giver": self._name, "id": message.id, "hive": hive.lower(), "name": name.lower()}
                rows.append({**told, "base": message.base, "raw": raw})
        return rows

    def receive(self) -> bool:
        """Deliver what others have sent here; what nobody here is called by goes back with the reason."""
        rows = self._waiting("giver, name, base, raw", "hive", "open")
        closed, ended = [], []
        for number, giver, name, base, raw in rows:
            why = None if number in self._delivered else self._deliver(giver, name, base, bytes(raw))
            if why is None:
                self._delivered.add(number)
                closed.append(number)
            else:
                ended.append((why, number))
        reached("exchange.letters.delivered")
        if rows:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.execute(
                    "update letters set state = 'closed', raw = null, changed = now() where number = any(%s)", (closed,)
                )
                if ended:
                    cursor.executemany("update letters set state = 'ended', reason = %s where number = %s", ended)
                    tell(self._connection, *(giver for number, giver, *_ in rows if number not in closed))
            self._delivered.difference_update(closed)
        return bool(rows)

    def _deliver(self, giver: str, name: str, base: str, raw: bytes) -> str | None:
        """Deliver a letter; why it cannot be, if so. Raises OSError."""
        if name != HUMAN and name not in self._hive.agent_files:
            return unknown_agent(name, self._hive.agents, f" of {self._name}")
        try:
            self._hive.mail.deliver(name, base, raw, giver)
        except Unreadable as error:
            return f"{self._name} does not take it: {error.what}"
        return None

    def bounce(self) -> bool:
        """Tell senders here of what has not reached an address."""
        rows = self._waiting("hive, name, base, raw, reason", "giver", "ended")
        for _, hive, name, base, raw, reason in rows:
            self._hive.mail.undeliverable(base, bytes(raw), f"{name}@{hive}", reason)
        reached("exchange.letters.bounced")
        if rows:
            self._connection.execute(
                "update letters set state = 'closed', raw = null, changed = now() where number = any(%s)",
                ([row[0] for row in rows],),
            )
        return bool(rows)

    def _waiting(self, columns: str, whose: str, state: str) -> list[Any]:
        """The next letters of this hive in a state, with their numbers: as many as one may have in memory at once."""
        return self._connection.execute(
            f"select number, {columns} from"  # noqa: S608 - names of this program's own
            " (select *, sum(octet_length(raw)) over (order by number) - octet_length(raw) as before from"
            f" (select * from letters where {whose} = %s and state = %s order by number limit %s) as next) as next"
            " where before < %s order by number".encode(),
            (self._name, state, _AT_ONCE, _BYTES_AT_ONCE),
        ).fetchall()

    def forget(self) -> None:
        """Delete the rows of letters that have long arrived: until then one that is sent again is known."""
        self._connection.execute(
            "delete from letters where giver = %s and state = 'closed' and changed < now() - make_interval(days => %s)",
            (self._name, _KEPT_DAYS),
        )
