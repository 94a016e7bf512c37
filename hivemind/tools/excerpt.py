"""A tool's result as text for a reader: plain lines, and of a long text its beginning and its end (spec 8, *Results*)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

LONGEST = 10_000
"""Characters of one result that a mind is shown, at most."""
_CHARS_A_TOKEN = 4
_SHARE = 20  # a result takes a twentieth of a context
_HEAD, _PARTS = 2, 5  # the end tells more: it is where programs sum up
_LEAST = 100
_WHOLE_BYTES = 4_194_304

Call = Callable[[int, int], str]
"""From the numbers of the first and the last line that are left out to the call that shows them."""


def result_limit(max_tokens: int) -> int:
    """Characters of one result for an agent with such a context: 5 % of it, at most 10,000."""
    return min(LONGEST, max_tokens * _CHARS_A_TOKEN // _SHARE)


def shortened(text: str, limit_chars: int, call: Call | str | None = None) -> str:
    """The text, whole if it has at most `limit_chars`; else its beginning and its end, cut at ends of lines where there are
    any, with one line in between that says how much is left out and the `call` that shows it."""
    if len(text) <= limit_chars:
        return text
    lines = text.count("\n") + (not text.endswith("\n"))
    note = _note(len(text), lines, lines, lines, call)  # no number in the real one is longer
    room = max(_LEAST, limit_chars - len(note) - 1)
    start, end = room * _HEAD // _PARTS, len(text) - (room - room * _HEAD // _PARTS)
    start = text.rfind("\n", start // 2, start) + 1 or start
    end = text.find("\n", end, (end + len(text)) // 2) + 1 or end
    first, last = text.count("\n", 0, start) + 1, text.count("\n", 0, end - 1) + 1
    head, tail = text[:start], text[end:]
    return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{_note(end - start, first, last, lines, call)}{tail}"


def shortened_file(file: BinaryIO, limit_chars: int, call: Call | str | None = None) -> str:
    """The same for a text file of any size, open at its beginning; over 4 MiB bytes are counted in the place of characters."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= _WHOLE_BYTES:
        return shortened(file.read().decode("utf-8", "replace"), limit_chars, call)
    head = file.read(limit_chars // _PARTS)
    head = head[: head.rfind(b"\n") + 1] or head
    start = at = size - limit_chars // _PARTS * _HEAD
    file.seek(0)
    before = sum(file.read(min(_WHOLE_BYTES, start - part)).count(b"\n") for part in range(0, start, _WHOLE_BYTES))
    tail = file.read()
    if (end := tail.find(b"\n") + 1) > 0:
        tail, at, before = tail[end:], start + end, before + 1
    lines = before + tail.count(b"\n") + (not tail.endswith(b"\n"))
    note = _note(at - len(head), head.count(b"\n") + 1, max(before, 1), lines, call)
    shown = (part.decode("utf-8", "replace") for part in (head if head.endswith(b"\n") else head + b"\n", tail))
    return note.join(shown)


def _note(chars: int, first: int, last: int, lines: int, call: Call | str | None) -> str:
    shows = call(first, last) if callable(call) else call
    where = f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"
    return f"[{chars:,} characters left out, {where} of {lines:,}{f': {shows}' if shows else ''}]\n"


def as_lines(result: Mapping[str, Any]) -> str:
    """A small mapping as lines `name: value`, what is nested indented; what says nothing (None, empty) is left out."""
    return "\n".join(_lines(result, ""))


def _lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, one in value.items():
            if one is None or (not one and one is not False and one != 0):
                continue
            if (plain := _plain(one)) is not None:
                yield f"{indent}{name}: {plain}"
            else:
                yield f"{indent}{name}:"
                yield from _lines(one, indent + "  ")
    elif isinstance(value, list | tuple):
        for one in value:
            first, *more = list(_lines(one, "")) or [""]
            yield f"{indent}- {first}"
            yield from (f"{indent}  {line}" for line in more)
    else:
        yield from (f"{indent}{line}" for line in str(value).split("\n"))


def _plain(value: Any) -> str | None:
    """A value that needs no line of its own; None for another."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and all(isinstance(one, str | int | float) for one in value):
        joined = ", ".join(map(str, value))
        return joined if "\n" not in joined and len(joined) <= 200 else None
    if isinstance(value, Mapping | list | tuple):
        return None
    text = str(value)
    return text if "\n" not in text else None
