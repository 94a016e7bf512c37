"""The content of a message: its MIME parts found, its texts decoded, an HTML page turned to readable text.

Written for bytes that anyone may have chosen: every step is linear in them, and parts and their nesting are bounded.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Iterator, Mapping
from itertools import count
from urllib.parse import unquote_to_bytes

from hivemind.mail.header import decode_bytes, decode_text, one_line, read_fields
from hivemind.mail.message import Attachment

__all__ = ["content_of", "page_text"]

_MAX_PARTS = 1000
_MAX_LEVELS = 10
_MAX_PARAMETERS = 8192
_MAX_PAGE = 2_000_000
_Fields = Mapping[str, str]

_PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*+)"|([^;\s]*))')
_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|head|template)\b.*?(?:</\1[^<>]*>|\Z)|<[!?][^<>]*>", re.IGNORECASE | re.DOTALL
)
_ITEM = re.compile(r"<li\b[^<>]*>", re.IGNORECASE)
_BREAK = re.compile(r"</?(?:br|p|div|tr|table|ul|ol|h[1-6]|blockquote|pre|hr)\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-z][^<>]*>", re.IGNORECASE)


def content_of(raw: bytes, body_at: int, fields: _Fields, whole: bool) -> tuple[str, tuple[Attachment, ...]]:
    """The text and the attachments of a message whose body begins at `body_at`; a page counts where there is no text.

    With `whole=False` the end of the message is missing, and attachments are left out. Raises ValueError for more than
    1,000 parts, 10 levels of them, or 8 KiB of parameters in one.
    """
    texts: list[str] = []
    pages: list[str] = []
    attachments: list[Attachment] = []
    for level, part, start, end in _leaves(raw, body_at, len(raw), fields, 0, count(1)):
        kind, disposition = _first(part, "content-type") or "text/plain", _first(part, "content-disposition")
        name = _parameter(part, "content-disposition", "filename") or _parameter(part, "content-type", "name")
        is_text = "/" not in kind or kind.startswith("text/")
        if is_text and (level == 0 or not (name or disposition == "attachment")):
            charset = _parameter(part, "content-type", "charset") or "utf-8"
            text = decode_bytes(_decoded(part, raw[start:end], is_text=True), charset)
            text = text.removesuffix("\n") if whole else text
            (pages if kind == "text/html" else texts).append(text)
        elif whole:
            content = _decoded(part, raw[start:end], is_text=False)
            attachments.append(Attachment(one_line(decode_text(name or "")) or "attachment", content, one_line(kind)))
    if pages and not any(text.strip() for text in texts):
        texts = [page_text(page) for page in pages]
    return "\n\n".join(texts), tuple(attachments)


def page_text(page: str) -> str:
    """The text of an HTML page: no tags, scripts or comments; a line for each block, list items with a dash.

    Of a page of over 2,000,000 characters the beginning; what comes after is marked as left out.
    """
    if len(page) > _MAX_PAGE:
        return f"{page_text(page[:_MAX_PAGE])}\n[…]"
    text = " ".join(_HIDDEN.sub(" ", page).split())
    text = html.unescape(_TAG.sub("", _BREAK.sub("\n", _ITEM.sub("\n- ", text))))
    lines = [line.strip() for line in text.split("\n")]
    return "\n".join(line for at, line in enumerate(lines) if line or (at and lines[at - 1])).strip()


def _leaves(
    raw: bytes, start: int, end: int, fields: _Fields, level: int, number: Iterator[int]
) -> Iterator[tuple[int, _Fields, int, int]]:
    """Every part that holds no parts, in order: its level, its fields, where its content begins and ends."""
    if next(number) > _MAX_PARTS:
        raise ValueError("it has more than 1,000 MIME parts")
    if level > _MAX_LEVELS:
        raise ValueError(f"its MIME parts stand in one another, over {_MAX_LEVELS} levels deep")
    kind, boundary = _first(fields, "content-type"), _parameter(fields, "content-type", "boundary")
    places: list[tuple[int, int]] = []
    if kind == "message/rfc822":
        places = [(start, end)]
    elif kind.startswith("multipart/") and boundary:
        places = _places(raw, start, end, boundary)
    if not places:
        yield level, {} if kind.startswith("multipart/") else fields, start, end
    for begins, ends in places:
        inner, body_at = read_fields(raw, begins, ends, is_part=True)
        yield from _leaves(raw, body_at, ends, inner, level + 1, number)


def _places(raw: bytes, start: int, end: int, boundary: str) -> list[tuple[int, int]]:
    """Where each part between the lines of a boundary begins and ends; the last may lack its end."""
    line = re.compile(rb"^--" + re.escape(boundary.encode("utf-8", "replace")) + rb"(--)?[ \t]*\r?$", re.MULTILINE)
    places: list[tuple[int, int]] = []
    begins = -1
    for found in line.finditer(raw, start, end):
        if begins >= 0:
            ends = found.start() - (2 if raw[found.start() - 2 : found.start()] == b"\r\n" else 1)
            places.append((begins, max(begins, ends)))
        begins = min(found.end() + 1, end)
        if found[1] or len(places) > _MAX_PARTS:
            return places
    return places if begins < 0 else [*places, (begins, end)]


def _first(fields: _Fields, name: str) -> str:
    """A field without its parameters, in lower case."""
    return fields.get(name, "").partition(";")[0].strip().lower()


def _parameter(fields: _Fields, name: str, wanted: str) -> str | None:
    """A parameter of a MIME field, joined from its numbered pieces and decoded as RFC 2231 has it."""
    pieces: dict[int, tuple[bool, str]] = {}
    field = fields.get(name, "")
    if len(field) > _MAX_PARAMETERS:
        raise ValueError(f"it has over 8 KiB of parameters in {name}")
    for key, quoted, plain in _PARAMETER.findall(field):
        base, _, rest = key.lower().partition("*")
        at = rest.rstrip("*")
        if base == wanted and (not at or (at.isdecimal() and len(at) < 4)):
            pieces.setdefault(int(at or 0), (key.endswith("*"), re.sub(r"\\(.)", r"\1", quoted) or plain))
    if not pieces:
        return None
    charset, first = "utf-8", min(pieces)
    if pieces[first][0] and pieces[first][1].count("'") >= 2:
        charset, _, rest = pieces[first][1].split("'", 2)
        pieces[first] = (True, rest)
    raw = b"".join(
        unquote_to_bytes(text) if encoded else text.encode("utf-8", "replace")
        for _, (encoded, text) in sorted(pieces.items())
    )
    return decode_bytes(raw, charset or "utf-8")


def _decoded(fields: _Fields, content: bytes, *, is_text: bool) -> bytes:
    """The content without its transfer encoding; what is not what its header says stays as it stands."""
    encoding = _first(fields, "content-transfer-encoding")
    try:
        if encoding == "base64":
            return base64.b64decode(content + b"===")
        if is_text:
            content = content.replace(b"\r\n", b"\n")
        return binascii.a2b_qp(content) if encoding == "quoted-printable" else content
    except ValueError:
        return content
