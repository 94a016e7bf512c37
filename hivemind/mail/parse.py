"""A message read from bytes that anyone may have written: ours, a mail program's, a person's note without headers.

Whoever calls stands inside the boundary of a letter: hostile bytes may raise anything.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from hivemind.layout import HUMAN
from hivemind.mail.compose import MONTHS
from hivemind.mail.header import addresses, decode_text, one_line, read_fields
from hivemind.mail.message import Content
from hivemind.mail.mime import content_of
from hivemind.names import is_name

__all__ = ["REFERABLE", "Parsed", "bounded", "derived_id", "parse_message", "plain_id"]

_ID = re.compile(r"<([^<>\s]+)>")
_BARE_ID = re.compile(r"[^<>\s]+")
REFERABLE = re.compile(r"[!-;=?-~]{1,900}")
_MAX_REFERENCES = 40
_DATE = re.compile(r"(?:\w{3}, )?(\d{1,2}) (\w{3}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) \+0000")
_YEARS = range(1970, 9000)  # a date beyond them is none: no time zone may carry it out of the calendar


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed(Content):
    """What the bytes of a message say, before it is known where they lie. `id` and `date` are None if they give none."""

    id: str | None
    date: datetime | None
    body_at: int


def parse_message(raw: bytes, domain: str, *, whole: bool = True) -> Parsed:
    """Read a message; with `whole=False` only the beginning is there, and the body is cut off.

    Addresses `name@domain` give the bare name. A text without headers is from `human`, its subject the first line.
    Raises ValueError for what is no text, or beyond the bounds of a message.
    """
    fields, body_at = read_fields(raw)
    if not fields and b"\0" in raw:
        raise ValueError("it is no text: it has NUL bytes and no headers")
    body, attachments = content_of(raw, body_at, fields, whole)
    names = _addressees(fields.get("from", ""), domain)
    subject = _text(fields, "subject")
    if not fields:
        subject = next((one_line(line) for line in body.splitlines() if line.strip()), "")[:200]
    return Parsed(
        id=_one_id(fields.get("message-id", ""), domain),
        sender=names[0] if names else HUMAN,
        to=_addressees(fields.get("to", ""), domain),
        cc=_addressees(fields.get("cc", ""), domain),
        subject=one_line(subject),
        date=_date(fields.get("date", "")),
        body=body,
        body_at=body_at,
        in_reply_to=_one_id(fields.get("in-reply-to", ""), domain),
        references=bounded([plain_id(one, domain) for one in _ID.findall(fields.get("references", ""))]),
        task=_text(fields, "x-hive-task") or None,
        step=_text(fields, "x-hive-step") or None,
        lane=_text(fields, "x-hive-lane") or None,
        importance=_text(fields, "importance").lower() or None,
        automatic=fields.get("auto-submitted", "no").strip().lower() != "no",
        expects_reply=fields.get("x-hive-expects-reply", "no").strip().lower() == "yes",
        attachments=attachments,
    )


def derived_id(raw: bytes, hand_name: str, mtime_ns: int, domain: str) -> str:
    """The id of a message that has none: the same wherever the file is moved to, another for another file."""
    digest = hashlib.sha256(f"{hand_name}\0{mtime_ns}\0".encode("utf-8", "surrogateescape") + raw).hexdigest()
    return f"hand.{digest[:32]}@{domain}"


def plain_id(id_: str, domain: str) -> str:
    """An id that can be stored, shown and referred to: the one given, or what stands for one that is long or no ASCII."""
    if REFERABLE.fullmatch(id_):
        return id_
    return f"odd.{hashlib.sha256(id_.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}@{domain}"


def bounded(references: list[str]) -> tuple[str, ...]:
    """The first and the newest references: enough for every mail program to thread by."""
    if len(references) > _MAX_REFERENCES:
        references = [references[0], *references[1 - _MAX_REFERENCES :]]
    return tuple(references)


def _text(fields: dict[str, str], name: str) -> str:
    value = fields.get(name)
    return one_line(decode_text(value)) if value else ""


def _one_id(value: str, domain: str) -> str | None:
    found = _ID.search(value) or _BARE_ID.search(value)
    return plain_id(found[found.lastindex or 0], domain) if found else None


@lru_cache(maxsize=1024)
def _addressees(value: str, domain: str) -> tuple[str, ...]:
    return tuple(_name(one, domain) for one in addresses(one_line(decode_text(value)))) if value else ()


def _name(address: str, domain: str) -> str:
    local, _, host = address.rpartition("@")
    if not local:
        return address.lower() if is_name(address) else address
    return local.lower() if host.lower() == domain.lower() and is_name(local) else address


def _date(value: str) -> datetime | None:
    try:
        found = _DATE.fullmatch(value.strip())
        if found and found[2] in MONTHS:
            day, year, hour, minute, second = (int(found[at]) for at in (1, 3, 4, 5, 6))
            date = datetime(year, MONTHS.index(found[2]) + 1, day, hour, minute, second, tzinfo=UTC)
        elif value.strip():
            from email.utils import parsedate_to_datetime

            given = parsedate_to_datetime(value)
            date = given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
        else:
            return None
    except (ValueError, TypeError, OverflowError, IndexError):  # a date that is none: the file has a time of its own
        return None
    return date if date.year in _YEARS else None
