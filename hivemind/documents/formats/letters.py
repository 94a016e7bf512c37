"""Extract the letters of an .eml file (one letter) or an mbox. A letter's place is its first and last line in the file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import pairwise

from hivemind.boundary import Unreadable, boundary
from hivemind.documents.formats.extracted import Extract, ExtractPart, join_parts
from hivemind.mime.content import decode_content
from hivemind.mime.header import decode_text, one_line, parse_fields

_BEGINS = re.compile(rb"^From [^\n]*\d\d:\d\d[^\n]*\n(?=[!-9;-~]+:)", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t]*\n")


def letters(raw: bytes, path: object) -> Extract:
    """Extract each letter as a heading (the subject), a line with sender and date, and the paragraphs of the text.

    The title is the subject of a single letter, otherwise the file's name.
    """
    starts = [begin.start() for begin in _BEGINS.finditer(raw)] or [0]
    title = "" if len(starts) == 1 else os.path.splitext(os.path.basename(str(path)))[0]
    return join_parts(_parts(raw, starts, path), lambda: title, path)


def _parts(raw: bytes, starts: list[int], path: object) -> Iterator[ExtractPart]:
    line = 1
    for start, end in pairwise([*starts, len(raw)]):
        letter = raw[start:end].rstrip()
        place, line = (line, line + letter.count(b"\n")), line + raw.count(b"\n", start, end)
        try:
            with boundary("letter", path):
                subject, paragraphs = _read(letter)
        except Unreadable as error:  # one of many must not hide the others
            subject, paragraphs = "", [f"This letter cannot be read: {error.__cause__}"]
        yield ExtractPart("heading", 1, subject or "(no subject)", place)
        for paragraph in filter(str.strip, paragraphs):
            yield ExtractPart("paragraph", 2, paragraph.strip("\n"), place)


def _read(letter: bytes) -> tuple[str, list[str]]:
    """Return a letter's subject and its paragraphs: sender and date, the text, and the names of its attachments."""
    fields, body_offset = parse_fields(letter)
    text, attachments = decode_content(letter, body_offset, fields)
    subject, *facts = (one_line(decode_text(fields.get(name, ""))) for name in ("subject", "from", "date"))
    names = f"Attached: {', '.join(attachment.name for attachment in attachments)}" if attachments else ""
    return subject, [", ".join(filter(None, facts)), *_BLANK_LINES.split(text), names]
