"""Where sentences end: for leaves too long to be one piece, and for extracts."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["pieces", "sentence_ends"]

# A full stop and the like, closing quotes or brackets, then white space and something that can begin a sentence.
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]*_]*+(?=\s+[\"'“‘(\[*_]*[^\W_a-z])|[。！？]+|\n[ \t]*\n")
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Za-z]|Dr|Mr|Mrs|Ms|Prof|St|No|vs|etc|cf|al|approx|resp|Fig|Vol|pp|Inc|Ltd|Nr|bzw|ca)"
    r"|\b(?:e\.g|i\.e|z\.B|d\.h|u\.a))\.$"
)


def sentence_ends(text: str) -> list[int]:
    """Offsets just after each sentence of the text, the last one len(text). Empty for an empty text."""
    ends = [
        found.end()
        for found in _END.finditer(text)
        if not _ABBREVIATION.search(text, max(0, found.end() - 8), found.end())
    ]
    if text and (not ends or ends[-1] != len(text)):
        ends.append(len(text))
    return ends


def pieces(
    text: str, ends: list[int], longest: int, count: Callable[[str], int], *, whole_lines: bool = False
) -> list[tuple[int, int]]:
    """Offsets of runs of whole sentences (or lines, whatever ends at `ends`), each of at most `longest` tokens.

    A single sentence that is longer stays whole: nothing is cut within. White space between runs belongs to none; with
    `whole_lines` the indentation of a line does belong to it.
    """
    runs: list[tuple[int, int]] = []
    start, size = 0, 0
    last = 0
    for end in ends:
        cost = count(text[last:end])
        if last > start and size + cost > longest:
            runs.append((start, last))
            start, size = last, 0
        size += cost
        last = end
    runs.append((start, last))
    return [found for a, b in runs if (found := _trimmed(text, a, b, whole_lines))]


def _trimmed(text: str, start: int, end: int, whole_lines: bool) -> tuple[int, int] | None:
    first = start
    while first < end and text[first].isspace():
        first += 1
    if first == end:
        return None
    start = max(start, text.rfind("\n", start, first) + 1) if whole_lines else first
    while text[end - 1].isspace():
        end -= 1
    return start, end
