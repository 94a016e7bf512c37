"""Extract letters: the one of an .eml file, or those of an mbox. Places are the lines of the letter in the file."""

from __future__ import annotations

import email
import email.policy
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from email.message import EmailMessage
from itertools import pairwise

from hivemind.documents.formats.extracted import Extract, ExtractPart, join_parts
from hivemind.documents.formats.html import decode_as, html
from hivemind.documents.formats.outline import decode_text

_BEGINS = re.compile(rb"^From [^\n]*\d\d:\d\d[^\n]*\n(?=[!-9;-~]+:)", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t]*\n")


def letters(raw: bytes, path: object) -> Extract:
    """Extract letters: a heading with the subject, a line with sender and date, and the paragraphs of the body. Only one
    letter's subject is the title of the file."""
    starts = [begin.start() for begin in _BEGINS.finditer(raw)] or [0]
    title = "" if len(starts) == 1 else os.path.splitext(os.path.basename(str(path)))[0]
    return join_parts(_parts(raw, starts, path), lambda: title, path)


def _parts(raw: bytes, starts: list[int], path: object) -> Iterator[ExtractPart]:
    line = 1 + raw.count(b"\n", 0, starts[0])
    for start, end in pairwise([*starts, len(raw)]):
        last_line = line + raw.count(b"\n", start, end)
        letter = raw[start:end].rstrip()
        place = line, line + letter.count(b"\n")
        message = email.message_from_bytes(letter, _class=EmailMessage, policy=email.policy.default)
        subject, *facts = (" ".join(str(message[name] or "").split()) for name in ("subject", "from", "date"))
        yield ExtractPart("heading", 1, subject or "(no subject)", place)
        yield ExtractPart("paragraph", 2, ", ".join(filter(None, facts)) or "(no sender)", place)
        for part in _body(message, path):
            yield replace(part, depth=part.depth + 1, place=place)
        line = last_line


def _body(message: EmailMessage, path: object) -> Iterator[ExtractPart]:
    """Yield the parts of a letter's plain text, else of its HTML, and the names of what is attached."""
    body = message.get_body(("plain", "html"))
    content = body.get_payload(decode=True) if body is not None else None
    if body is not None and isinstance(content, bytes):
        text = decode_as(content, body.get_content_charset("utf-8")) or decode_text(content, path)
        if body.get_content_subtype() == "html":
            page = html(text.encode("utf-8", "replace"), path)
            yield from (
                ExtractPart(piece.kind, piece.depth, page.text[piece.start : piece.end], (1, 1))
                for piece in page.pieces
            )
        else:
            for paragraph in filter(str.strip, _BLANK_LINES.split(text.replace("\r\n", "\n"))):
                yield ExtractPart("paragraph", 1, paragraph.strip("\n"), (1, 1))
    names = [" ".join(name.split()) for part in message.iter_attachments() if (name := part.get_filename())]
    if names:
        yield ExtractPart("paragraph", 1, f"Attached: {', '.join(names)}", (1, 1))
