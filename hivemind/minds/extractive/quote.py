"""Quoting: the lines of a passage that answer best, exactly as they stand in their file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["MAX_QUOTES", "Quote", "quotes_for"]

MAX_QUOTES = 3
_MAX_LINES = 12
_SHARE_OF_BEST = 0.5
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Quote:
    """Whole lines of a file: `text` stands at `path`, 1-based lines `start` to `end`, in the version with `digest`."""

    text: str
    path: str
    start: int
    end: int
    digest: str

    @property
    def citation(self) -> str:
        lines = str(self.start) if self.start == self.end else f"{self.start}-{self.end}"
        return f"{self.path}:{lines}"


def quotes_for(question: str, passages: Sequence[Mapping[str, Any]]) -> list[Quote]:
    """At most three quotes, best first, from passages that score at least half of what the best one does.

    `passages` are context entries of type knowledge, best first, with `source` (or `path`), `start_line`, `digest`,
    `relevance`. What
    is not there in full is not quoted: its lines are not those of the file.
    """
    quotes: list[Quote] = []
    best = max((entry["metadata"].get("relevance", 0) for entry in passages), default=0.0)
    for entry in passages:
        told = entry["metadata"]
        if told.get("error") or told.get("form", "full") != "full" or told.get("relevance", 0) < best * _SHARE_OF_BEST:
            continue
        quote = _best_lines(question, entry)
        if quote is not None and not any(_overlap(quote, other) for other in quotes):
            quotes.append(quote)
        if len(quotes) == MAX_QUOTES:
            break
    return quotes


def _best_lines(question: str, entry: Mapping[str, Any]) -> Quote | None:
    told = entry["metadata"]
    lines = str(entry["content"]).splitlines()
    wanted = {word.lower() for word in _WORD.findall(question) if len(word) > 2}
    first, last = 0, len(lines)
    if len(lines) > _MAX_LINES:
        gain = [len(wanted & {word.lower() for word in _WORD.findall(line)}) for line in lines]
        starts = range(len(lines) - _MAX_LINES + 1)
        first = max(starts, key=lambda at: (sum(gain[at : at + _MAX_LINES]), -at))
        last = first + _MAX_LINES
    while first < last and not lines[first].strip():
        first += 1
    while last > first and not lines[last - 1].strip():
        last -= 1
    if first == last:
        return None
    start = told["start_line"] + first
    text = "\n".join(lines[first:last])
    return Quote(text, str(told.get("path") or told["source"]), start, start + last - first - 1, str(told["digest"]))


def _overlap(one: Quote, other: Quote) -> bool:
    return one.path == other.path and one.start <= other.end and other.start <= one.end
