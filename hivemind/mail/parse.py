"""Parse messages from any source: this runtime, mail programs, notes without headers, hostile senders.

Hostile bytes may raise any exception, so callers use `boundary(…)`, which turns each into Unreadable.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import lru_cache

from hivemind.frozen import frozen
from hivemind.layout import HUMAN
from hivemind.mail.compose import MONTHS
from hivemind.mail.message import Content
from hivemind.mime.content import decode_content
from hivemind.mime.header import decode_text, one_line, parse_addresses, parse_fields
from hivemind.names import is_name
from hivemind.pattern import pattern
from hivemind.trace_context import TraceContext

_ID = pattern(r"<([^<>\s]+)>")
_BARE_ID = pattern(r"[^<>\s]+")
REFERABLE = pattern(r"[!-;=?-~]{1,900}")
_MAX_REFERENCES = 40
_DATE = pattern(r"(?:\w{3}, )?(\d{1,2}) (\w{3}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) \+0000")
_YEARS = range(1970, 9000)  # dates outside are ignored: a time zone could move them out of the calendar


@frozen(kw_only=True)
class ParsedLetter(Content):
    """A message parsed from bytes alone. `id` and `date` are None if the bytes have none."""

    id: str | None
    date: datetime | None
    body_offset: int


def parse_message(raw: bytes, domain: str, *, is_complete: bool = True) -> ParsedLetter:
    """Parse a message, or with `is_complete=False` the beginning of one.

    Addresses `name@domain` become bare names. A text without headers is from `human`, and its first line is the subject.
    Raises ValueError for binary data, and for a message that exceeds a limit.
    """
    fields, body_offset = parse_fields(raw)
    if not fields and b"\0" in raw:
        raise ValueError("it is not text: there are NUL bytes and no headers")
    body, attachments = decode_content(raw, body_offset, fields, is_complete)
    names = _local_addresses(fields.get("from", ""), domain)
    subject = _field_text(fields, "subject")
    if not fields:
        subject = next((one_line(line) for line in body.splitlines() if line.strip()), "")[:200]
    return ParsedLetter(
        id=_first_id(fields.get("message-id", ""), domain),
        sender=names[0] if names else HUMAN,
        to=_local_addresses(fields.get("to", ""), domain),
        cc=_local_addresses(fields.get("cc", ""), domain),
        subject=one_line(subject),
        date=_parse_date(fields.get("date", "")),
        body=body,
        body_offset=body_offset,
        in_reply_to=_first_id(fields.get("in-reply-to", ""), domain),
        references=limit_references(
            [plain_id(reference, domain) for reference in _ID.findall(fields.get("references", ""))]
        ),
        task=_field_text(fields, "x-hive-task") or None,
        step=_field_text(fields, "x-hive-step") or None,
        lane=_field_text(fields, "x-hive-lane") or None,
        importance=_field_text(fields, "importance").lower() or None,
        automatic=fields.get("auto-submitted", "no").strip().lower() != "no",
        unanswered=fields.get("x-hive-unanswered", "no").strip().lower() == "yes",
        expects_reply=fields.get("x-hive-expects-reply", "no").strip().lower() == "yes",
        traceparent=TraceContext.checked(fields.get("traceparent")),
        attachments=attachments,
    )


def derived_id(raw: bytes, file_name: str, mtime_ns: int, domain: str) -> str:
    """Derive an id for a message without one, from its content, file name and time. Moving the file to another folder does not
    change it.
    """
    digest = hashlib.sha256(f"{file_name}\0{mtime_ns}\0".encode("utf-8", "surrogateescape") + raw).hexdigest()
    return f"hand.{digest[:32]}@{domain}"


def plain_id(id_: str, domain: str) -> str:
    """Return the id, or `odd.<digest>@<domain>` in its place if it is too long or not printable ASCII."""
    if REFERABLE.fullmatch(id_):
        return id_
    return f"odd.{hashlib.sha256(id_.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}@{domain}"


def limit_references(references: list[str]) -> tuple[str, ...]:
    """Return the first and the newest references, at most 40. That is enough for threads in mail programs."""
    if len(references) > _MAX_REFERENCES:
        references = [references[0], *references[1 - _MAX_REFERENCES :]]
    return tuple(references)


def _field_text(fields: dict[str, str], name: str) -> str:
    value = fields.get(name)
    return one_line(decode_text(value)) if value else ""


def _first_id(field_text: str, domain: str) -> str | None:
    match = _ID.search(field_text) or _BARE_ID.search(field_text)
    return plain_id(match[match.lastindex or 0], domain) if match else None


@lru_cache(maxsize=1024)
def _local_addresses(field_text: str, domain: str) -> tuple[str, ...]:
    return (
        tuple(_local_address(address, domain) for address in parse_addresses(one_line(decode_text(field_text))))
        if field_text
        else ()
    )


def _local_address(address: str, domain: str) -> str:
    local, _, host = address.rpartition("@")
    if not local:
        return address.lower() if is_name(address) else address
    return local.lower() if host.lower() == domain.lower() and is_name(local) else address


def _parse_date(field_text: str) -> datetime | None:
    try:
        match = _DATE.fullmatch(field_text.strip())
        if match and match[2] in MONTHS:
            day, year, hour, minute, second = (int(match[group]) for group in (1, 3, 4, 5, 6))
            date = datetime(year, MONTHS.index(match[2]) + 1, day, hour, minute, second, tzinfo=UTC)
        elif field_text.strip():
            from email.utils import parsedate_to_datetime

            parsed_date = parsedate_to_datetime(field_text)
            date = parsed_date.replace(tzinfo=UTC) if parsed_date.tzinfo is None else parsed_date.astimezone(UTC)
        else:
            return None
    except (ValueError, TypeError, OverflowError, IndexError):  # not a date: the file's time is used
        return None
    return date if date.year in _YEARS else None
