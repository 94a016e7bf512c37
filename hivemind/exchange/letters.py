"""Letters between hives: the exchange stores each letter until it is delivered or bounced (README.md, *Letters*)."""

from __future__ import annotations

import logging
import os
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.errors import UserError
from hivemind.exchange.rows import LetterRow, read_row
from hivemind.exchange.schema import REASON_LENGTH, notification
from hivemind.fs import crash_point
from hivemind.layout import EXCHANGE, HUMAN
from hivemind.mail import Message
from hivemind.mail.addressing import unknown_agent_reason
from hivemind.presence.parts import Parts

if TYPE_CHECKING:
    from psycopg import Connection

_LETTERS_PER_BATCH, _BYTES_PER_BATCH = 100, 32 << 20
_RETENTION_DAYS = 30
_log = logging.getLogger(__name__)


class Letters:
    """Exchanges letters between one hive and the other linked hives.

    Each method handles a limited batch, and returns True if there may be more. A batch that was interrupted can be repeated.
    """

    def __init__(self, hive: Parts, connection: Connection, name: str) -> None:
        self._hive, self._connection, self._name = hive, connection, name
        self._delivered: set[int] = set()  # not yet confirmed to the exchange

    def send(self) -> bool:
        """Send the letters in the mailbox `exchange`: store them in the database, and after the commit delete their files.

        Return True if there may be more.
        """
        mailbox = self._hive.mail.mailboxes.get(EXCHANGE)
        mail_files = sorted(mailbox.mail_files(), key=lambda mail_file: mail_file.base)
        rows: list[LetterRow] = []
        sent_paths = []
        examined_count = bytes_read = 0
        for entry in mail_files[:_LETTERS_PER_BATCH]:
            if bytes_read >= _BYTES_PER_BATCH:
                break
            examined_count += 1
            try:
                message = self._hive.mail.reader.read_message(EXCHANGE, mailbox, entry)
                if message is None:
                    continue
                raw = read_input(message.path)
                rows += self._rows(message, raw)
                bytes_read += len(raw)
            except Unreadable as error:
                self._hive.mail.bury(EXCHANGE, entry, str(error))
                continue
            sent_paths.append(message.path)
        # One statement is one round trip and one commit.
        states = (
            self._connection.execute(
                "insert into letters (giver, id, hive, name, base, raw, state, reason)"  # noqa: S608 - this program's own names
                " select sent.*, case when hives.name is null then 'ended' else 'open' end,"
                " case when hives.name is null then 'no linked hive has the name ' || left(sent.hive, 200) end"
                " from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[])"
                " as sent (giver, id, hive, name, base, raw) left join hives on hives.name = sent.hive"
                f" on conflict do nothing returning state, {notification('hive')}".encode(),
                [[*values] for values in zip(*(astuple(row)[1:-1] for row in rows), strict=True)],
            ).fetchall()
            if rows
            else []
        )
        crash_point("exchange.letters.stored")
        for path in sent_paths:
            os.unlink(path)
        return len(mail_files) > examined_count or any(state == "ended" for state, _ in states)

    def _rows(self, message: Message, raw: bytes) -> list[LetterRow]:
        """Return a row for each of the letter's recipients in other hives.

        Raises Unreadable for a letter that the runtime did not write, or that the exchange would refuse.
        """
        if not message.trusted:
            raise Unreadable(
                "was not written by hivemind, or was changed since, so it is not sent", location=message.base
            )
        rows: list[LetterRow] = []
        for recipient in dict.fromkeys((*message.to, *message.cc)):
            name, _, hive = recipient.rpartition("@")
            if name:
                columns = (0, self._name, message.id, hive.lower(), name.lower(), message.base, raw)
                rows.append(read_row(LetterRow, columns))
        return rows

    def receive(self) -> bool:
        """Deliver letters from other hives. Mark letters to unknown agents, with the reason, so their senders' hives bounce them.

        Return True if there may be more.
        """
        rows = self._next_letters("hive", "open")
        ends: list[tuple[int, str, str | None]] = []
        for columns in rows:
            try:
                letter = read_row(LetterRow, columns)
            except Unreadable as error:
                ends.append(_set_aside(columns[0], error))
                continue
            reason = None if letter.number in self._delivered else self._deliver(letter)
            if reason is None:
                self._delivered.add(letter.number)
            ends.append((letter.number, "closed" if reason is None else "ended", reason))
        crash_point("exchange.letters.delivered")
        self._end_letters(ends)
        self._delivered.difference_update(number for number, *_ in ends)
        return _is_full(rows)

    def _deliver(self, letter: LetterRow) -> str | None:
        """Deliver a letter and return None. If it cannot be delivered, return the reason. Raises OSError."""
        if letter.name != HUMAN and letter.name not in self._hive.agent_files:
            return unknown_agent_reason(letter.name, self._hive.agents, f" of {self._name}")
        try:
            with boundary("letter of another hive", letter.base):
                self._hive.mail.deliver(letter.name, letter.base, letter.raw, letter.giver)
        except UserError as error:
            return f"{self._name} refused the letter: {error.message}"
        return None

    def _end_letters(self, ends: list[tuple[int, str, str | None]]) -> None:
        """Set state and reason of letters, each given as (number, state, reason).

        In the state `ended` (could not be delivered) a letter keeps its content, and the hive that sent it is woken to bounce it.
        In any other state the content is deleted.
        """
        if ends:
            numbers, states, reasons = zip(*ends, strict=True)
            self._connection.execute(
                "update letters set state = ends.state, changed = now(),"  # noqa: S608 - this program's own names
                " raw = case when ends.state = 'ended' then raw end, reason = coalesce(left(ends.reason, %s), letters.reason)"
                " from unnest(%s::bigint[], %s::text[], %s::text[]) as ends (number, state, reason)"
                " where letters.number = ends.number returning"
                f" case ends.state when 'ended' then {notification('giver')} end".encode(),
                (REASON_LENGTH, [*numbers], [*states], [*reasons]),
            )

    def bounce(self) -> bool:
        """Tell senders in this hive which of their letters other hives could not deliver. Return True if there may be more."""
        rows = self._next_letters("giver", "ended")
        ends: list[tuple[int, str, str | None]] = []
        for columns in rows:
            try:
                letter = read_row(LetterRow, columns)
                with boundary("letter that came back", letter.base):
                    address = f"{letter.name}@{letter.hive}"
                    self._hive.mail.report_undeliverable(
                        letter.base, letter.raw, address, letter.reason or "no reason was recorded"
                    )
                ends.append((letter.number, "closed", None))
            except UserError as error:
                ends.append(_set_aside(columns[0], error))
        crash_point("exchange.letters.bounced")
        self._end_letters(ends)
        return _is_full(rows)

    def _next_letters(self, hive_column: str, state: str) -> list[Any]:
        """Return the next batch of letters in `state` that have this hive in `hive_column`."""
        return self._connection.execute(
            "select number, giver, id, hive, name, base, raw, left(reason, %s) from"  # noqa: S608 - this program's own names
            " (select *, sum(octet_length(raw)) over (order by number) - coalesce(octet_length(raw), 0) as before from"
            f" (select * from letters where {hive_column} = %s and state = %s order by number limit %s) as next) as next"
            " where coalesce(before, 0) < %s order by number".encode(),
            (REASON_LENGTH, self._name, state, _LETTERS_PER_BATCH, _BYTES_PER_BATCH),
        ).fetchall()

    def delete_old(self) -> None:
        """Delete the rows of old letters. While a row exists, a letter that is sent twice is recognised."""
        self._connection.execute(
            "delete from letters where giver = %s and state = 'closed' and changed < now() - make_interval(days => %s)",
            (self._name, _RETENTION_DAYS),
        )


def _set_aside(number: int, error: UserError) -> tuple[int, str, str]:
    _log.warning("a letter is set aside: %s", error)
    return number, "closed", str(error)


def _is_full(rows: list[Any]) -> bool:
    """Return True if the batch `rows` has the maximum size, so there may be more rows."""
    return len(rows) == _LETTERS_PER_BATCH or sum(len(columns[6] or b"") for columns in rows) >= _BYTES_PER_BATCH
