"""Decode what a message contains: its text and its attachments, from any bytes.

Hostile bytes may raise any exception, so callers use `boundary(…)`, which turns each into Unreadable.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from urllib.parse import unquote_to_bytes

from hivemind.frozen import frozen
from hivemind.mime.header import decode_bytes, decode_text, one_line, parse_fields
from hivemind.pattern import pattern

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


@frozen
class Attachment:
    """A file attached to a message."""

    name: str
    content: bytes
    content_type: str = "application/octet-stream"

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Attachment:
        """Read the file at `path` and guess the content type from its name. Raises OSError."""
        import mimetypes

        kind, compression = mimetypes.guess_type(os.fspath(path))
        content_type = kind if kind and not compression else "application/octet-stream"
        return cls(os.path.basename(path), Path(path).read_bytes(), content_type)


def decode_content(
    raw: bytes, body_offset: int, fields: _Fields, is_complete: bool = True
) -> tuple[str, tuple[Attachment, ...]]:
    """Decode the text and attachments of a message with the header `fields`. HTML is used only without plain text.

    With `is_complete=False` the end of the message is missing, and attachments are skipped. Raises ValueError for more than 1,000
    parts, 10 levels of parts, or 8 KiB of parameters in a field.
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
    """Yield (level, fields, start and end of the content) of each part that contains no other parts, in order.

    `level` is that of the part between `start` and `end`, `part_counter` numbers all parts. Raises ValueError for too many of
    either.
    """
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
    """Return a parameter of a MIME field, joined from numbered pieces and decoded by RFC 2231. None if the field does not have
    it.
    """
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
    """Decode the transfer encoding. Content that does not match its header is returned unchanged. For a text (`is_text`), line
    ends become LF.
    """
    encoding = _main_value(fields, "content-transfer-encoding")
    try:
        if encoding == "base64":
            return base64.b64decode(content + b"===")
        if is_text:
            content = content.replace(b"\r\n", b"\n")
        return binascii.a2b_qp(content) if encoding == "quoted-printable" else content
    except ValueError:
        return content
