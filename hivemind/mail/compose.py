"""Compose a message as bytes. Headers are written directly; MIME parts are used only for attachments."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import quote

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.mail.message import Content
from hivemind.mime.content import Attachment
from hivemind.mime.header import encode_text, format_field, one_line
from hivemind.pattern import pattern

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
IMPORTANCE = ("high", "normal", "low")
MAX_SUBJECT = 1000  # characters; a longer subject is repeated at the top of the body
_MAX_QUOTED_CHARS = 4000
_LONG_LINE = pattern(rb"[^\n]{999}")
_CONTENT_TYPE = pattern(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+", re.IGNORECASE)


@frozen(kw_only=True)
class LetterDraft(Content):
    """The content of a message to be composed. Addresses and ids are complete and checked; texts are arbitrary."""

    message_id: str
    date: datetime


def compose(draft: LetterDraft) -> tuple[bytes, bytes]:
    """Return a message's head and body by RFC 5322, but with LF line ends. Raises UserError for an unknown importance."""
    subject, body = one_line(draft.subject), draft.body
    if len(subject) > MAX_SUBJECT:
        subject, body = subject[: MAX_SUBJECT - 1] + "…", f"{subject}\n\n{body}"
    content_type, encoding, content = (
        _encode_text(body) if not draft.attachments else _encode_parts(body, draft.attachments)
    )
    fields = [
        format_field("From", draft.sender),
        format_field("To", ", ".join(draft.to)),
        format_field("Cc", ", ".join(draft.cc)) if draft.cc else "",
        format_field("Subject", encode_text(subject)),
        f"Date: {_format_date(draft.date)}\n",
        format_field("Message-ID", f"<{draft.message_id}>"),
        format_field("In-Reply-To", f"<{draft.in_reply_to}>") if draft.in_reply_to else "",
        format_field("References", " ".join(f"<{reference}>" for reference in draft.references))
        if draft.references
        else "",
        *_hive_fields(draft),
        "MIME-Version: 1.0\n",
        f"Content-Type: {content_type}\n",
        f"Content-Transfer-Encoding: {encoding}\n",
    ]
    return "".join(fields).encode(), content


def bounce_draft(
    original: LetterDraft, recipient: str, reason: str, message_id: str, sender: str, date: datetime, outcome: str
) -> LetterDraft:
    """Return the automatic message that tells `original.sender` why `recipient` did not receive or answer `original`.

    `message_id`, `sender` and `date` are those of the new message. `outcome` is `delivered` or `answered`, whichever did not
    happen.
    """
    text = original.body if len(original.body) <= _MAX_QUOTED_CHARS else original.body[:_MAX_QUOTED_CHARS] + "\n[…]"
    quotation = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
    subject = one_line(original.subject)
    return LetterDraft(
        message_id=message_id,
        sender=sender,
        to=(original.sender,),
        subject=f"Un{outcome}: {subject}",
        body=f"Your message to {recipient} was not {outcome}: {reason}.\n\nSubject: {subject}\n\n{quotation}",
        date=date,
        in_reply_to=original.message_id,
        references=(*original.references, original.message_id),
        task=original.task,
        step=original.step,
        automatic=True,
        unanswered=outcome == "answered",
    )


def _format_date(date: datetime) -> str:
    """Format a date by RFC 5322, in UTC and in English in every locale."""
    utc = date.astimezone(UTC)
    day, month = _DAYS[utc.weekday()], MONTHS[utc.month - 1]
    return f"{day}, {utc.day:02d} {month} {utc.year:04d} {utc.hour:02d}:{utc.minute:02d}:{utc.second:02d} +0000"


def _hive_fields(draft: LetterDraft) -> Iterable[str]:
    for name, text in (("X-Hive-Task", draft.task), ("X-Hive-Step", draft.step), ("X-Hive-Lane", draft.lane)):
        if text:
            yield format_field(name, encode_text(text))
    if draft.importance:
        if draft.importance not in IMPORTANCE:
            raise UserError(f"{draft.importance!r} is not an importance", remedy=f"one of {', '.join(IMPORTANCE)}")
        yield format_field("Importance", draft.importance)
    if draft.expects_reply:
        yield format_field("X-Hive-Expects-Reply", "yes")
    if draft.traceparent:
        yield format_field("Traceparent", draft.traceparent)
    if draft.automatic:
        yield format_field("Auto-Submitted", "auto-replied")
    if draft.unanswered:
        yield format_field("X-Hive-Unanswered", "yes")


def _encode_text(body: str) -> tuple[str, str, bytes]:
    """Encode a text. Return the content type, transfer encoding and content.

    The encoding is 8bit, or quoted-printable if 8bit could change the text. A line end is added here and removed by the
    reader, so every text survives unchanged.
    """
    raw = body.encode("utf-8", "replace") + b"\n"
    if b"\r" in raw or b"\0" in raw or _LONG_LINE.search(raw):
        lines = (binascii.b2a_qp(line, istext=False).replace(b"\r", b"=0D") for line in raw.split(b"\n"))
        return "text/plain; charset=utf-8", "quoted-printable", b"\n".join(lines)
    return "text/plain; charset=utf-8", "8bit", raw


def _encode_parts(body: str, attachments: Iterable[Attachment]) -> tuple[str, str, bytes]:
    boundary = f"=_{os.urandom(16).hex()}"
    text_type, encoding, text = _encode_text(body)
    lines = [
        f"--{boundary}\nContent-Type: {text_type}\nContent-Transfer-Encoding: {encoding}\n\n".encode(),
        text,
        b"\n",
    ]
    for attachment in attachments:
        content_type = attachment.content_type
        if _CONTENT_TYPE.fullmatch(content_type) is None or content_type.lower().startswith(("multipart/", "message/")):
            content_type = "application/octet-stream"  # base64 is not allowed for composite types
        head = (
            f"--{boundary}\n{format_field('Content-Type', content_type)}Content-Transfer-Encoding: base64\n"
            f"Content-Disposition: attachment;\n {_filename_parameter(attachment.name)}\n\n"
        )
        lines += [head.encode("ascii"), base64.encodebytes(attachment.content), b"\n"]
    lines.append(f"--{boundary}--\n".encode())
    return f'multipart/mixed;\n boundary="{boundary}"', "8bit", b"".join(lines)


def _filename_parameter(name: str) -> str:
    """Return the filename parameter with the last part of a path, encoded by RFC 2231 if it is not plain ASCII."""
    file_name = one_line(name).replace("\\", "/").rpartition("/")[2][-200:] or "attachment"
    if file_name.isascii() and not set(file_name) & set('"\\%'):
        return f'filename="{file_name}"'
    return f"filename*=utf-8''{quote(file_name, safe='')}"
