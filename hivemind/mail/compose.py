"""A message as bytes: the few headers written directly, MIME parts only for attachments (spec 1, *Mail*)."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import quote

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.mail.header import encode_text, field, one_line
from hivemind.mail.message import Attachment, Content

__all__ = ["IMPORTANCE", "MAX_SUBJECT", "MONTHS", "Draft", "bounce", "compose"]

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
IMPORTANCE = ("high", "normal", "low")
MAX_SUBJECT = 1000  # characters; what is longer begins the body
_QUOTED_CHARS = 4000
_LONG_LINE = re.compile(rb"[^\n]{999}")
_CONTENT_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+", re.IGNORECASE)


@frozen(kw_only=True)
class Draft(Content):
    """All that a message is made of; addresses and ids are whole and checked, texts may be anything."""

    message_id: str
    date: datetime


def compose(draft: Draft) -> tuple[bytes, bytes]:
    """(head, body) as RFC 5322 has them, lines ended by LF. Raises UserError for an importance that there is not."""
    subject, body = one_line(draft.subject), draft.body
    if len(subject) > MAX_SUBJECT:
        subject, body = subject[: MAX_SUBJECT - 1] + "…", f"{subject}\n\n{body}"
    kind, encoding, content = _text(body) if not draft.attachments else _parts(body, draft.attachments)
    fields = [
        field("From", draft.sender),
        field("To", ", ".join(draft.to)),
        field("Cc", ", ".join(draft.cc)) if draft.cc else "",
        field("Subject", encode_text(subject)),
        f"Date: {_date(draft.date)}\n",
        field("Message-ID", f"<{draft.message_id}>"),
        field("In-Reply-To", f"<{draft.in_reply_to}>") if draft.in_reply_to else "",
        field("References", " ".join(f"<{one}>" for one in draft.references)) if draft.references else "",
        *_hive_fields(draft),
        "MIME-Version: 1.0\n",
        f"Content-Type: {kind}\n",
        f"Content-Transfer-Encoding: {encoding}\n",
    ]
    return "".join(fields).encode(), content


def bounce(original: Draft, recipient: str, reason: str, message_id: str, sender: str, date: datetime) -> Draft:
    """The message that tells `original.sender` of it, marked as automatic: nobody answers it, it never bounces."""
    text = original.body if len(original.body) <= _QUOTED_CHARS else original.body[:_QUOTED_CHARS] + "\n[…]"
    quoted = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
    subject = one_line(original.subject)
    return Draft(
        message_id=message_id,
        sender=sender,
        to=(original.sender,),
        subject=f"Undelivered: {subject}",
        body=f"Your message to {recipient} was not delivered: {reason}.\n\nSubject: {subject}\n\n{quoted}",
        date=date,
        in_reply_to=original.message_id,
        references=(*original.references, original.message_id),
        task=original.task,
        step=original.step,
        automatic=True,
    )


def _date(now: datetime) -> str:
    """RFC 5322's form, in UTC and in English whatever the locale."""
    utc = now.astimezone(UTC)
    day, month = _DAYS[utc.weekday()], MONTHS[utc.month - 1]
    return f"{day}, {utc.day:02d} {month} {utc.year:04d} {utc.hour:02d}:{utc.minute:02d}:{utc.second:02d} +0000"


def _hive_fields(draft: Draft) -> Iterable[str]:
    for name, value in (("X-Hive-Task", draft.task), ("X-Hive-Step", draft.step), ("X-Hive-Lane", draft.lane)):
        if value:
            yield field(name, encode_text(value))
    if draft.importance:
        if draft.importance not in IMPORTANCE:
            raise UserError(f"{draft.importance!r} is no importance", mend=f"one of {', '.join(IMPORTANCE)}")
        yield field("Importance", draft.importance)
    if draft.expects_reply:
        yield field("X-Hive-Expects-Reply", "yes")
    if draft.automatic:
        yield field("Auto-Submitted", "auto-replied")


def _text(body: str) -> tuple[str, str, bytes]:
    """(content type, transfer encoding, content): as it stands, or quoted-printable where mail could not carry it.

    One line end is added, and taken off again in reading, so that every text comes back as it was.
    """
    raw = body.encode("utf-8", "replace") + b"\n"
    if b"\r" in raw or b"\0" in raw or _LONG_LINE.search(raw):
        lines = (binascii.b2a_qp(line, istext=False).replace(b"\r", b"=0D") for line in raw.split(b"\n"))
        return "text/plain; charset=utf-8", "quoted-printable", b"\n".join(lines)
    return "text/plain; charset=utf-8", "8bit", raw


def _parts(body: str, attachments: Iterable[Attachment]) -> tuple[str, str, bytes]:
    boundary = f"=_{secrets.token_hex(16)}"
    kind, encoding, text = _text(body)
    lines = [f"--{boundary}\nContent-Type: {kind}\nContent-Transfer-Encoding: {encoding}\n\n".encode(), text, b"\n"]
    for attachment in attachments:
        content_type = attachment.content_type
        if _CONTENT_TYPE.fullmatch(content_type) is None or content_type.lower().startswith(("multipart/", "message/")):
            content_type = "application/octet-stream"  # only leaves may be written in base64
        head = (
            f"--{boundary}\n{field('Content-Type', content_type)}Content-Transfer-Encoding: base64\n"
            f"Content-Disposition: attachment;\n {_file_name(attachment.name)}\n\n"
        )
        lines += [head.encode("ascii"), base64.encodebytes(attachment.content), b"\n"]
    lines.append(f"--{boundary}--\n".encode())
    return f'multipart/mixed;\n boundary="{boundary}"', "8bit", b"".join(lines)


def _file_name(name: str) -> str:
    """The filename parameter (RFC 2231 for what is not plain ASCII); a path is cut to its last part."""
    plain = one_line(name).replace("\\", "/").rpartition("/")[2][-200:] or "attachment"
    if plain.isascii() and not set(plain) & set('"\\%'):
        return f'filename="{plain}"'
    return f"filename*=utf-8''{quote(plain, safe='')}"
