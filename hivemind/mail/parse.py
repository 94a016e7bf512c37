"""A message read from bytes that anyone may have written: ours, a mail program's, a person's note without headers.

Headers and plain bodies are read here; what has MIME parts goes through Python's email package.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message as MimeMessage
from functools import lru_cache

from hivemind.errors import HivemindError
from hivemind.layout import HUMAN
from hivemind.mail.compose import MONTHS
from hivemind.mail.header import addresses, decode_bytes, decode_text, one_line, read_fields
from hivemind.mail.message import Attachment
from hivemind.names import is_name

__all__ = ["Parsed", "Unreadable", "derived_id", "parse"]

_ID = re.compile(r"<([^<>\s]+)>")
_BARE_ID = re.compile(r"[^<>\s]+")
_DATE = re.compile(r"(?:\w{3}, )?(\d{1,2}) (\w{3}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) \+0000")
_CHARSET = re.compile(r"charset\s*=\s*\"?([^\s\";]+)", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")


class Unreadable(HivemindError):
    """The file is no message that could be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What the bytes of a message say, before it is known where they lie. `id` is None if they give none."""

    id: str | None
    sender: str
    to: tuple[str, ...]
    cc: tuple[str, ...]
    subject: str
    date: datetime | None
    body: str
    body_at: int
    in_reply_to: str | None
    references: tuple[str, ...]
    task: str | None
    step: str | None
    lane: str | None
    importance: str | None
    automatic: bool
    hops: int
    attachments: tuple[Attachment, ...]


def parse(raw: bytes, domain: str, *, whole: bool = True) -> Parsed:
    """Read a message; with `whole=False` only the beginning is there, and the body is cut off.

    Addresses `name@domain` give the bare name. A text without headers is from `human`, its subject the first line.
    Raises Unreadable for what is no text, or no message.
    """
    try:
        fields, body_at = read_fields(raw)
    except ValueError as error:
        raise Unreadable(str(error)) from None
    if not fields and b"\0" in raw:
        raise Unreadable("is no text: it has NUL bytes and no headers")
    body, attachments = _content(raw, body_at, fields, whole)
    names = _names(fields.get("from", ""), domain)
    subject = _text(fields, "subject")
    if not fields:
        subject = next((one_line(line) for line in body.splitlines() if line.strip()), "")[:200]
    return Parsed(
        id=_one_id(fields.get("message-id", "")),
        sender=names[0] if names else HUMAN,
        to=_names(fields.get("to", ""), domain),
        cc=_names(fields.get("cc", ""), domain),
        subject=one_line(subject),
        date=_date(fields.get("date", "")),
        body=body,
        body_at=body_at,
        in_reply_to=_one_id(fields.get("in-reply-to", "")),
        references=tuple(_ID.findall(fields.get("references", ""))),
        task=_text(fields, "x-hive-task") or None,
        step=_text(fields, "x-hive-step") or None,
        lane=_text(fields, "x-hive-lane") or None,
        importance=_text(fields, "importance").lower() or None,
        automatic=fields.get("auto-submitted", "no").strip().lower() != "no",
        hops=_hops(fields.get("x-hive-hops", "")),
        attachments=attachments,
    )


def derived_id(raw: bytes, hand_name: str, mtime_ns: int, domain: str) -> str:
    """The id of a message that has none: the same wherever the file is moved to, another for another file."""
    digest = hashlib.sha256(f"{hand_name}\0{mtime_ns}\0".encode("utf-8", "surrogateescape") + raw).hexdigest()
    return f"hand.{digest[:32]}@{domain}"


def _text(fields: dict[str, str], name: str) -> str:
    value = fields.get(name)
    return one_line(decode_text(value)) if value else ""


def _hops(value: str) -> int:
    value = value.strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


def _one_id(value: str) -> str | None:
    found = _ID.search(value) or _BARE_ID.search(value)
    return found[found.lastindex or 0] if found else None


@lru_cache(maxsize=1024)
def _names(value: str, domain: str) -> tuple[str, ...]:
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
            return datetime(year, MONTHS.index(found[2]) + 1, day, hour, minute, second, tzinfo=UTC)
        if not value.strip():
            return None
        from email.utils import parsedate_to_datetime

        given = parsedate_to_datetime(value)
        return given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):  # a date that is none: the file has a time of its own
        return None


def _content(raw: bytes, body_at: int, fields: dict[str, str], whole: bool) -> tuple[str, tuple[Attachment, ...]]:
    kind = fields.get("content-type", "text/plain").strip().lower()
    encoding = fields.get("content-transfer-encoding", "").strip().lower()
    if not kind.startswith("text/") and "/" in kind:
        return _mime(raw, whole)
    content = raw[body_at:]
    try:
        if encoding == "quoted-printable":
            content = binascii.a2b_qp(content)
        elif encoding == "base64":
            content = base64.b64decode(content if whole else content[: len(content) // 4 * 4])
        elif b"\r\n" in content:
            content = content.replace(b"\r\n", b"\n")
    except ValueError:  # not what its header says: shown as it stands
        pass
    charset = _CHARSET.search(fields.get("content-type", ""))
    text = decode_bytes(content, charset[1] if charset else "utf-8")
    return (text.removesuffix("\n") if whole else text), ()


def _mime(raw: bytes, whole: bool) -> tuple[str, tuple[Attachment, ...]]:
    from email import message_from_bytes, policy

    texts: list[str] = []
    pages: list[str] = []
    attachments: list[Attachment] = []
    try:
        for part in message_from_bytes(raw, policy=policy.compat32).walk():
            if part.is_multipart():
                continue
            content, kind = _payload(part), part.get_content_type()
            name = part.get_filename()
            if name is None and kind.startswith("text/") and part.get_content_disposition() != "attachment":
                text = decode_bytes(content, part.get_content_charset() or "utf-8").removesuffix("\n")
                (pages if kind == "text/html" else texts).append(text)
            elif whole:
                attachments.append(Attachment(decode_text(name) if name else "attachment", content, kind))
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"its MIME parts cannot be read ({type(error).__name__}: {error})") from None
    return "\n\n".join(texts or [_TAG.sub("", page) for page in pages]), tuple(attachments)


def _payload(part: MimeMessage) -> bytes:
    found = part.get_payload(decode=True)
    return found if isinstance(found, bytes) else b""
