"""Header fields: written so that `cat` and mail programs read them (RFC 5322 folding, UTF-8 by RFC 6532), read from anything.

No text that a mind or a person gives can end a field and begin another: control characters become spaces first.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_WIDTH = 78
_LONGEST = 900  # a line may have 998 bytes
_CHUNK = 36  # bytes of text in an encoded word: with any of our field names it stays within one line
_WORD = re.compile(r"=\?([^?\s*]+)(?:\*[^?\s]*)?\?([bBqQ])\?([^?\s]*)\?=")
_FIELDS = re.compile(r"^([!-9;-~]+)[ \t]*:[ \t]*(.*(?:\n[ \t].*)*)$", re.MULTILINE)
_EMPTY_LINE = re.compile(rb"\r?\n")
_MAX_HEAD = 1 << 20
_MAX_FIELD = 1 << 16
_MAX_FIELDS = 1000
_NO_CHARSETS = {"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined"}  # Python's own, some quadratic
# A text is a message with headers only if one of these is among them: `Note: buy milk` is a text.
_TELLING = {
    "from", "to", "cc", "bcc", "subject", "date", "message-id", "in-reply-to", "references", "reply-to", "sender",
    "received", "return-path", "mime-version", "content-type", "delivered-to", "importance",
    "x-hive-task", "x-hive-step", "x-hive-lane", "x-hive-expects-reply",
}  # fmt: skip


def one_line(text: str) -> str:
    """The text on one line: control characters and line ends become spaces, runs of spaces one."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(_CONTROL.sub(" ", text).split())


def encode_text(text: str) -> str:
    """Write a header's text as it stands (RFC 6532), or as encoded words where a reader would not get it back from that."""
    plain = one_line(text)
    if "=?" not in plain and all(len(word.encode()) < _LONGEST for word in plain.split(" ")):
        return plain
    words, chunk = [], b""
    for char in plain:
        encoded = char.encode()
        if len(chunk) + len(encoded) > _CHUNK:
            words.append(chunk)
            chunk = b""
        chunk += encoded
    words.append(chunk)
    return " ".join(f"=?utf-8?b?{base64.b64encode(word).decode()}?=" for word in words)


def field(name: str, value: str) -> str:
    """`Name: value` with its line end, folded at spaces. `value` has no control characters."""
    line = f"{name}: {value}"
    if len(line) <= _WIDTH:
        return line + "\n"
    lines, current = [], f"{name}:"
    for word in value.split(" "):
        if len(current) + 1 + len(word) > _WIDTH and current.strip():
            lines.append(current)
            current = ""
        current += " " + word
    return "\n".join([*lines, current]) + "\n"


def decode_bytes(raw: bytes, charset: str = "utf-8") -> str:
    """Text from bytes that may be anything: the charset named, else UTF-8, else Latin-1 (which always fits).

    Half a character (some charsets write a character as two) becomes U+FFFD: the text can be stored and sent.
    """
    for name in (charset, "utf-8"):
        try:
            if codecs.lookup(name).name in _NO_CHARSETS:
                continue
            return raw.decode(name).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        except (LookupError, ValueError):  # an unknown charset, or not what it says it is
            continue
    return raw.decode("latin-1")


def decode_text(value: str) -> str:
    """A header's text with its encoded words decoded; what cannot be decoded stays as it is written."""
    if "=?" not in value:
        return value.strip()
    parts: list[str] = []
    pending, charset, end = b"", "", 0
    for found in _WORD.finditer(value):
        between = value[end : found.start()]
        raw = _word_bytes(found[2], found[3])
        if raw is None:
            continue
        if pending and (between.strip() or found[1].lower() != charset):
            parts.append(decode_bytes(pending, charset))
            pending = b""
        if between.strip() or not end:
            parts.append(between)
        pending, charset, end = pending + raw, found[1].lower(), found.end()
    if pending:
        parts.append(decode_bytes(pending, charset))
    return "".join([*parts, value[end:]]).strip()


def _word_bytes(kind: str, text: str) -> bytes | None:
    try:
        if kind in "bB":
            return base64.b64decode(text + "=" * (-len(text) % 4))
        return binascii.a2b_qp(text.encode("ascii", "replace"), header=True)
    except ValueError:
        return None


def read_fields(
    raw: bytes, start: int = 0, end: int | None = None, *, is_part: bool = False
) -> tuple[dict[str, str], int]:
    """(fields by lower-case name, the first of each; offset at which the body begins), of a message or one of its parts.

    No fields and `start` if the text does not begin with the headers of a message; a part may have any, or none. Raises
    ValueError for a head over 1 MiB or 1,000 fields, and for a field over 64 KiB.
    """
    end = len(raw) if end is None else end
    limit = min(end, start + _MAX_HEAD)
    if is_part and (empty := _EMPTY_LINE.match(raw, start, end)):
        return {}, empty.end()
    gaps = [(at, len(gap)) for gap in (b"\n\n", b"\n\r\n") if (at := raw.find(gap, start, limit)) >= 0]
    head_end, gap_length = min(gaps, default=(end, 0))
    if head_end - start > _MAX_HEAD:
        if _FIELDS.match(decode_bytes(raw[start : start + 200])) is None:
            return {}, start
        raise ValueError("it has more than 1 MiB of headers")
    fields: dict[str, str] = {}
    body = head_end + gap_length
    head = _head_text(raw[start:head_end])
    at = head.index("\n") + 1 if head.startswith(("From ", ">From ")) and "\n" in head else 0  # mbox's line
    for number, found in enumerate(_FIELDS.finditer(head, at)):
        if found.start() != at:
            break
        if number == _MAX_FIELDS:
            raise ValueError("it has more than 1,000 header fields")
        name, value = found[1].lower(), found[2]
        if len(value) > _MAX_FIELD:
            raise ValueError(f"it has a field {name[:40]} of over 64 KiB")
        if "\n" in value:
            value = value.replace("\n", "")
        fields.setdefault(name, value)  # of a field given twice the first counts
        at = found.end() + 1
    if at < len(head):  # a line that is no field: the body begins there
        body = start + sum(len(line) + 1 for line in raw[start:head_end].split(b"\n")[: head.count("\n", 0, at)])
    return ({}, start) if not is_part and _TELLING.isdisjoint(fields) else (fields, body)


def _head_text(head: bytes) -> str:
    try:
        text = head.decode()
    except UnicodeDecodeError:  # one bad line does not spoil the others
        text = "\n".join(decode_bytes(line) for line in head.split(b"\n"))
    return text.replace("\r\n", "\n").rstrip("\r") if "\r" in text else text


def addresses(value: str) -> Iterator[str]:
    """The addresses in a To or Cc field, without display names."""
    if '"' in value or "(" in value:
        from email.utils import getaddresses

        yield from (found for _, found in getaddresses([value]) if found)
        return
    for part in value.split(","):
        inner = part[part.rfind("<") + 1 :].partition(">")[0].strip()
        if inner:
            yield inner
