"""Formats a tool's result as text: plain lines, and only the beginning and the end of a long text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

MAX_RESULT_CHARS = 10_000
"""The maximal length of a result that a mind sees."""
_CHARS_A_TOKEN = 4
_SHARE = 20  # one result may fill a twentieth of a context
_HEAD, _PARTS = 2, 5  # two fifths for the beginning: programs summarise at the end
_MIN_CHARS = 100
_MAX_WHOLE_BYTES = 4_194_304

ContinuationCall = Callable[[int, int], str]
"""Maps the numbers of the first and the last omitted line to the call that shows these lines."""


def result_limit(max_tokens: int) -> int:
    """Return how many characters a result may have: 5 % of an agent's context of `max_tokens`, at most 10,000."""
    return min(MAX_RESULT_CHARS, max_tokens * _CHARS_A_TOKEN // _SHARE)


def shortened(text: str, limit_chars: int, call: ContinuationCall | str | None = None) -> str:
    """Return a text shortened to `limit_chars`. A longer text keeps its beginning and its end, cut at line ends if possible. A
    line in between says how much is omitted, and which `call` shows it."""
    if len(text) <= limit_chars:
        return text
    lines = text.count("\n") + (not text.endswith("\n"))
    note = _note(len(text), lines, lines, lines, call)  # the longest possible note
    room = max(_MIN_CHARS, limit_chars - len(note) - 1)
    start, end = room * _HEAD // _PARTS, len(text) - (room - room * _HEAD // _PARTS)
    start = text.rfind("\n", start // 2, start) + 1 or start
    end = text.find("\n", end, (end + len(text)) // 2) + 1 or end
    first, last = text.count("\n", 0, start) + 1, text.count("\n", 0, end - 1) + 1
    head, tail = text[:start], text[end:]
    return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{_note(end - start, first, last, lines, call)}{tail}"


def shortened_file(file: BinaryIO, limit_chars: int, call: ContinuationCall | str | None = None) -> str:
    """Return the text of an open file, shortened as by `shortened`. For a file over 4 MiB the limit counts bytes, not
    characters."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= _MAX_WHOLE_BYTES:
        return shortened(file.read().decode("utf-8", "replace"), limit_chars, call)
    head = file.read(limit_chars // _PARTS)
    head = head[: head.rfind(b"\n") + 1] or head
    start = at = size - limit_chars // _PARTS * _HEAD
    file.seek(0)
    before = sum(
        file.read(min(_MAX_WHOLE_BYTES, start - part)).count(b"\n") for part in range(0, start, _MAX_WHOLE_BYTES)
    )
    tail = file.read()
    if (end := tail.find(b"\n") + 1) > 0:
        tail, at, before = tail[end:], start + end, before + 1
    lines = before + tail.count(b"\n") + (not tail.endswith(b"\n"))
    note = _note(at - len(head), head.count(b"\n") + 1, max(before, 1), lines, call)
    sections = (part.decode("utf-8", "replace") for part in (head if head.endswith(b"\n") else head + b"\n", tail))
    return note.join(sections)


def _note(chars: int, first: int, last: int, lines: int, call: ContinuationCall | str | None) -> str:
    hint = call(first, last) if callable(call) else call
    line_range = f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"
    return f"[{chars:,} characters left out, {line_range} of {lines:,}{f': {hint}' if hint else ''}]\n"


def as_lines(result: Mapping[str, Any]) -> str:
    """Return a small mapping as lines `name: value`. Nested values are indented; None and empty values are omitted."""
    return "\n".join(_lines(result, ""))


def _lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, nested in value.items():
            if nested is None or (not nested and nested is not False and nested != 0):
                continue
            if (plain := _plain(nested)) is not None:
                yield f"{indent}{name}: {plain}"
            else:
                yield f"{indent}{name}:"
                yield from _lines(nested, indent + "  ")
    elif isinstance(value, list | tuple):
        for nested in value:
            first, *more = list(_lines(nested, "")) or [""]
            yield f"{indent}- {first}"
            yield from (f"{indent}  {line}" for line in more)
    else:
        yield from (f"{indent}{line}" for line in str(value).split("\n"))


def _plain(value: Any) -> str | None:
    """Return the value as text on one line; None if the value needs several lines."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and all(isinstance(part, str | int | float) for part in value):
        single_line = ", ".join(map(str, value))
        return single_line if "\n" not in single_line and len(single_line) <= 200 else None
    if isinstance(value, Mapping | list | tuple):
        return None
    text = str(value)
    return text if "\n" not in text else None
