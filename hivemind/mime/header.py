"""Format and parse header fields.

Fields are written for `cat` and mail programs: folded by RFC 5322, in UTF-8 by RFC 6532. They are parsed from any bytes.
Control characters in a text become spaces before it is written, so no text can end one field and begin another.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator

from hivemind.pattern import pattern

_CONTROL = pattern(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MAX_LINE_CHARS = 78
_MAX_WORD_BYTES = 900  # RFC 5322 allows 998 bytes in a line
_MAX_CHUNK_BYTES = 36  # an encoded word with this many bytes of text fits in one line after any of our field names
_ENCODED_WORD = pattern(r"=\?([^?\s*]+)(?:\*[^?\s]*)?\?([bBqQ])\?([^?\s]*)\?=")
_FIELDS = pattern(r"^([!-9;-~]+)[ \t]*:[ \t]*(.*(?:\n[ \t].*)*)$", re.MULTILINE)
_EMPTY_LINE = pattern(rb"\r?\n")
_MAX_HEAD = 1 << 20
_MAX_FIELD = 1 << 16
_MAX_FIELDS = 1000
# specific to Python; some take quadratic time
_REFUSED_CODECS = {"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined"}
# A file has headers only if at least one of them is in this set: `Note: buy milk` is a body.
_LETTER_FIELDS = {
    "from", "to", "cc", "bcc", "subject", "date", "message-id", "in-reply-to", "references", "reply-to", "sender",
    "received", "return-path", "mime-version", "content-type", "delivered-to", "importance",
    "x-hive-task", "x-hive-step", "x-hive-lane", "x-hive-expects-reply",
}  # fmt: skip


def one_line(text: str) -> str:
    """Return the text on one line: control characters and line ends become spaces, several spaces become one."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(_CONTROL.sub(" ", text).split())


def encode_text(text: str) -> str:
    """Encode a header's text for sending. A text that readers could not restore becomes encoded words, any other stays (RFC
    6532).
    """
    plain = one_line(text)
    if "=?" not in plain and all(len(word.encode()) < _MAX_WORD_BYTES for word in plain.split(" ")):
        return plain
    words, chunk = [], b""
    for char in plain:
        encoded = char.encode()
        if len(chunk) + len(encoded) > _MAX_CHUNK_BYTES:
            words.append(chunk)
            chunk = b""
        chunk += encoded
    words.append(chunk)
    return " ".join(f"=?utf-8?b?{base64.b64encode(word).decode()}?=" for word in words)


def format_field(name: str, value: str) -> str:
    """Return `Name: value` with its line end, folded at spaces. `value` must not contain control characters."""
    line = f"{name}: {value}"
    if len(line) <= _MAX_LINE_CHARS:
        return line + "\n"
    lines, current = [], f"{name}:"
    for word in value.split(" "):
        if len(current) + 1 + len(word) > _MAX_LINE_CHARS and current.strip():
            lines.append(current)
            current = ""
        current += " " + word
    return "\n".join([*lines, current]) + "\n"


def decode_bytes(raw: bytes, charset: str = "utf-8") -> str:
    """Decode any bytes: by `charset`, or if that fails as UTF-8, or if that fails as Latin-1, which never fails.

    A lone surrogate (some charsets encode a character as two) becomes U+FFFD: the text can be stored and sent.
    """
    for name in (charset, "utf-8"):
        try:
            if codecs.lookup(name).name in _REFUSED_CODECS:
                continue
            return raw.decode(name).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        except (LookupError, ValueError):  # the charset is unknown, or the bytes are not in it
            continue
    return raw.decode("latin-1")


def decode_text(text: str) -> str:
    """Decode the encoded words of a header's text. Words that cannot be decoded stay unchanged."""
    if "=?" not in text:
        return text.strip()
    parts: list[str] = []
    word_bytes, charset, end = b"", "", 0
    for match in _ENCODED_WORD.finditer(text):
        gap = text[end : match.start()]
        raw = _decode_word(match[2], match[3])
        if raw is None:
            continue
        if word_bytes and (gap.strip() or match[1].lower() != charset):
            parts.append(decode_bytes(word_bytes, charset))
            word_bytes = b""
        if gap.strip() or not end:
            parts.append(gap)
        word_bytes, charset, end = word_bytes + raw, match[1].lower(), match.end()
    if word_bytes:
        parts.append(decode_bytes(word_bytes, charset))
    return "".join([*parts, text[end:]]).strip()


def _decode_word(encoding: str, text: str) -> bytes | None:
    try:
        if encoding in "bB":
            return base64.b64decode(text + "=" * (-len(text) % 4))
        return binascii.a2b_qp(text.encode("ascii", "replace"), header=True)
    except ValueError:
        return None


def parse_fields(
    raw: bytes, start: int = 0, end: int | None = None, *, is_part: bool = False
) -> tuple[dict[str, str], int]:
    """Parse the head of a message or of one of its parts. Return the fields and the offset of the body.

    The keys are lower-case names; if a field occurs twice, the first counts. If the bytes do not begin with the headers
    of a message, return no fields and `start`; a part may have any headers, or none. Raises ValueError for a head over
    1 MiB or 1,000 fields, and for a field over 64 KiB.
    """
    end = len(raw) if end is None else end
    limit = min(end, start + _MAX_HEAD)
    if is_part and (empty_line := _EMPTY_LINE.match(raw, start, end)):
        return {}, empty_line.end()
    gaps = [(offset, len(gap)) for gap in (b"\n\n", b"\n\r\n") if (offset := raw.find(gap, start, limit)) >= 0]
    head_end, gap_length = min(gaps, default=(end, 0))
    if head_end - start > _MAX_HEAD:
        if _FIELDS.match(decode_bytes(raw[start : start + 200])) is None:
            return {}, start
        raise ValueError("its headers have more than 1 MiB")
    fields: dict[str, str] = {}
    body = head_end + gap_length
    head = _decode_head(raw[start:head_end])
    # the first line of an mbox message
    position = head.index("\n") + 1 if head.startswith(("From ", ">From ")) and "\n" in head else 0
    for number, match in enumerate(_FIELDS.finditer(head, position)):
        if match.start() != position:
            break
        if number == _MAX_FIELDS:
            raise ValueError("there are more than 1,000 header fields")
        name, value = match[1].lower(), match[2]
        if len(value) > _MAX_FIELD:
            raise ValueError(f"its header field {name[:40]} has more than 64 KiB")
        if "\n" in value:
            value = value.replace("\n", "")
        fields.setdefault(name, value)
        position = match.end() + 1
    if position < len(head):  # the body begins at the first line that is not a field
        body = start + sum(len(line) + 1 for line in raw[start:head_end].split(b"\n")[: head.count("\n", 0, position)])
    return ({}, start) if not is_part and _LETTER_FIELDS.isdisjoint(fields) else (fields, body)


def _decode_head(head: bytes) -> str:
    try:
        text = head.decode()
    except UnicodeDecodeError:  # decode line by line: one bad line must not affect the others
        text = "\n".join(decode_bytes(line) for line in head.split(b"\n"))
    return text.replace("\r\n", "\n").rstrip("\r") if "\r" in text else text


def parse_addresses(field_text: str) -> Iterator[str]:
    """Yield the addresses of a To or Cc field, without display names."""
    if '"' in field_text or "(" in field_text:
        from email.utils import getaddresses

        yield from (address for _, address in getaddresses([field_text]) if address)
        return
    for part in field_text.split(","):
        inner = part[part.rfind("<") + 1 :].partition(">")[0].strip()
        if inner:
            yield inner
