"""Parse messages from any source: this runtime, mail programs, notes without headers, hostile senders.

Hostile bytes may raise any exception, so callers use `boundary(…)`, which turns each into Unreadable.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from urllib.parse import unquote_to_bytes

from hivemind.frozen import frozen
from hivemind.layout import HUMAN
from hivemind.mail.compose import MONTHS
from hivemind.mail.header import decode_bytes, decode_text, one_line, parse_addresses, parse_fields
from hivemind.mail.message import Attachment, Content
from hivemind.names import is_name
from hivemind.pattern import pattern
from hivemind.trace_context import TraceContext

_MAX_PARTS = 1000
_MAX_LEVELS = 10
_MAX_PARAMETERS = 8192
_MAX_PAGE = 2_000_000
_QUOTE_BEGINS, _QUOTE_ENDS = "\x0e", "\x0f"
_Fields = Mapping[str, str]

_PARAMETER = pattern(r';\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*+)"|([^;\s]*))')
_HIDDEN_TEXT = pattern(
    r"<!--.*?(?:-->|\Z)|<(script|style|head|template)\b.*?(?:</\1[^<>]*>|\Z)|<[!?][^<>]*>", re.IGNORECASE | re.DOTALL
)
_ITEM = pattern(r"<li\b[^<>]*>", re.IGNORECASE)
_BREAK = pattern(r"</?(?:br|p|div|tr|table|ul|ol|h[1-6]|blockquote|pre|hr)\b[^<>]*>", re.IGNORECASE)
_QUOTE = pattern(r"<(/?)blockquote\b[^<>]*>", re.IGNORECASE)
_TAG = pattern(r"</?[a-z][^<>]*>", re.IGNORECASE)


def decode_content(
    raw: bytes, body_offset: int, fields: _Fields, is_complete: bool
) -> tuple[str, tuple[Attachment, ...]]:
    """Decode the text and attachments of a message. HTML is used only without plain text.

    With `is_complete=False` the end of the message is missing, and attachments are skipped. Raises ValueError for more
    than 1,000 parts, 10 levels of parts, or 8 KiB of parameters in a field.
    """
    texts: list[str] = []
    pages: list[str] = []
    attachments: list[Attachment] = []
    for level, part, start, end in _leaf_parts(raw, body_offset, len(raw), fields, 0, count(1)):
        kind, disposition = _main_value(part, "content-type") or "text/plain", _main_value(part, "content-disposition")
        name = _parse_parameter(part, "content-disposition", "filename") or _parse_parameter(
            part, "content-type", "name"
        )
        is_text = "/" not in kind or kind.startswith("text/")
        if is_text and (level == 0 or not (name or disposition == "attachment")):
            charset = _parse_parameter(part, "content-type", "charset") or "utf-8"
            text = decode_bytes(_decode_transfer_encoding(part, raw[start:end], is_text=True), charset)
            text = text.removesuffix("\n") if is_complete else text
            (pages if kind == "text/html" else texts).append(text)
        elif is_complete:
            file_content = _decode_transfer_encoding(part, raw[start:end], is_text=False)
            attachments.append(
                Attachment(one_line(decode_text(name or "")) or "attachment", file_content, one_line(kind))
            )
    if pages and not any(text.strip() for text in texts):
        texts = [page_text(page) for page in pages]
    return "\n\n".join(texts), tuple(attachments)


def page_text(page: str) -> str:
    """Convert an HTML page to text: a line per block, list items with a dash, quotes with `>`; no scripts or comments.

    Only the first 2,000,000 characters are converted; `[…]` marks the omission.
    """
    if len(page) > _MAX_PAGE:
        return f"{page_text(page[:_MAX_PAGE])}\n[…]"
    text = " ".join(_HIDDEN_TEXT.sub(" ", page).split())
    text = _QUOTE.sub(lambda tag: f"\n{_QUOTE_ENDS if tag[1] else _QUOTE_BEGINS}\n", text)
    import html  # late: a table of all names of HTML's characters

    text = html.unescape(_TAG.sub("", _BREAK.sub("\n", _ITEM.sub("\n- ", text))))
    lines, depth = list[str](), 0
    for line in map(str.strip, text.split("\n")):
        if line in (_QUOTE_BEGINS, _QUOTE_ENDS):
            depth = max(0, depth + (1 if line == _QUOTE_BEGINS else -1))
        else:
            lines.append("> " * min(depth, _MAX_LEVELS) + line)
    return "\n".join(line for number, line in enumerate(lines) if line or (number and lines[number - 1])).strip()


def _leaf_parts(
    raw: bytes, start: int, end: int, fields: _Fields, level: int, part_counter: Iterator[int]
) -> Iterator[tuple[int, _Fields, int, int]]:
    """Yield each part without inner parts, in order: level, fields, start and end of the content."""
    if next(part_counter) > _MAX_PARTS:
        raise ValueError("there are more than 1,000 MIME parts")
    if level > _MAX_LEVELS:
        raise ValueError(f"its MIME parts are nested more than {_MAX_LEVELS} levels deep")
    kind, boundary = _main_value(fields, "content-type"), _parse_parameter(fields, "content-type", "boundary")
    spans: list[tuple[int, int]] = []
    if kind == "message/rfc822":
        spans = [(start, end)]
    elif kind.startswith("multipart/") and boundary:
        spans = _part_spans(raw, start, end, boundary)
    if not spans:
        yield level, {} if kind.startswith("multipart/") else fields, start, end
    for part_start, part_end in spans:
        inner, body_at = parse_fields(raw, part_start, part_end, is_part=True)
        yield from _leaf_parts(raw, body_at, part_end, inner, level + 1, part_counter)


def _part_spans(raw: bytes, start: int, end: int, boundary: str) -> list[tuple[int, int]]:
    """Return start and end of each part between boundary lines. The last part may lack its closing line."""
    line = re.compile(rb"^--" + re.escape(boundary.encode("utf-8", "replace")) + rb"(--)?[ \t]*\r?$", re.MULTILINE)
    spans: list[tuple[int, int]] = []
    part_start = -1
    for match in line.finditer(raw, start, end):
        if part_start >= 0:
            part_end = match.start() - (2 if raw[match.start() - 2 : match.start()] == b"\r\n" else 1)
            spans.append((part_start, max(part_start, part_end)))
        part_start = min(match.end() + 1, end)
        if match[1] or len(spans) > _MAX_PARTS:
            return spans
    return spans if part_start < 0 else [*spans, (part_start, end)]


def _main_value(fields: _Fields, name: str) -> str:
    """Return a field's value without its parameters, in lower case."""
    return fields.get(name, "").partition(";")[0].strip().lower()


def _parse_parameter(fields: _Fields, field_name: str, parameter_name: str) -> str | None:
    """Return a parameter of a MIME field, joined from numbered pieces and decoded by RFC 2231."""
    pieces: dict[int, tuple[bool, str]] = {}
    field = fields.get(field_name, "")
    if len(field) > _MAX_PARAMETERS:
        raise ValueError(f"there are more than 8 KiB of parameters in {field_name}")
    for key, quoted_text, bare_text in _PARAMETER.findall(field):
        base, _, suffix = key.lower().partition("*")
        piece_number = suffix.rstrip("*")
        if base == parameter_name and (not piece_number or (piece_number.isdecimal() and len(piece_number) < 4)):
            pieces.setdefault(
                int(piece_number or 0), (key.endswith("*"), re.sub(r"\\(.)", r"\1", quoted_text) or bare_text)
            )
    if not pieces:
        return None
    charset, first_number = "utf-8", min(pieces)
    if pieces[first_number][0] and pieces[first_number][1].count("'") >= 2:
        charset, _, suffix = pieces[first_number][1].split("'", 2)
        pieces[first_number] = (True, suffix)
    raw = b"".join(
        unquote_to_bytes(text) if encoded else text.encode("utf-8", "replace")
        for _, (encoded, text) in sorted(pieces.items())
    )
    return decode_bytes(raw, charset or "utf-8")


def _decode_transfer_encoding(fields: _Fields, content: bytes, *, is_text: bool) -> bytes:
    """Decode the transfer encoding. Content that does not match its header is returned unchanged."""
    encoding = _main_value(fields, "content-transfer-encoding")
    try:
        if encoding == "base64":
            return base64.b64decode(content + b"===")
        if is_text:
            content = content.replace(b"\r\n", b"\n")
        return binascii.a2b_qp(content) if encoding == "quoted-printable" else content
    except ValueError:
        return content


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
    """Derive an id for a message without one. It survives moves of the file and differs between files."""
    digest = hashlib.sha256(f"{file_name}\0{mtime_ns}\0".encode("utf-8", "surrogateescape") + raw).hexdigest()
    return f"hand.{digest[:32]}@{domain}"


def plain_id(id_: str, domain: str) -> str:
    """Return the id, or a digest of it if it is too long or not printable ASCII."""
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
