"""Markdown by its headings: which there are, and the text under one of them. Fenced code has none."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["headings", "section"]

_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t#]*$")
_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")


def headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """(0-based line, level 1 to 6, title) of each ATX heading."""
    fence: str | None = None
    for at, line in enumerate(lines):
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and mark[1].startswith(fence):
                fence = None
        elif mark:
            fence = mark[1]
        elif found := _HEADING.match(line):
            yield at, len(found[1]), found[2]


def section(text: str, title: str) -> str:
    """The part of a Markdown text under the heading `title` (in any case), down to the next of its level; else all."""
    lines = text.splitlines(keepends=True)
    start: tuple[int, int] | None = None
    for at, level, found in headings(lines):
        if start is not None and level <= start[1]:
            return "".join(lines[start[0] : at])
        if start is None and found.casefold() == title.strip().casefold():
            start = at, level
    return text if start is None else "".join(lines[start[0] :])
