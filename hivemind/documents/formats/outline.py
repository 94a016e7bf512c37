"""The outline of a file: its pieces in reading order, each with its depth and where it stands in the text."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from hivemind.documents.node import DocmemError
from hivemind.frozen import frozen

__all__ = [
    "MAX_DEPTH",
    "MAX_LINES",
    "MAX_PARTS",
    "Headings",
    "Lines",
    "Outline",
    "Piece",
    "check",
    "line_starts",
    "pieces",
    "plain",
    "sentence_ends",
    "split_long",
]  # fmt: skip

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
    text: str, ends: list[int], count: Callable[[str], int], *, whole_lines: bool = False
) -> list[tuple[int, int]]:
    """Offsets of runs of whole sentences (or lines, whatever ends at `ends`), each of at most 400 tokens.

    A single sentence that is longer stays whole: nothing is cut within. White space between runs belongs to none; with
    `whole_lines` the indentation of a line does belong to it.
    """
    runs: list[tuple[int, int]] = []
    start, size = 0, 0
    last = 0
    for end in ends:
        cost = count(text[last:end])
        if last > start and size + cost > LONGEST:
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


class Headings:
    """The levels of the headings that we are below, outermost first."""

    def __init__(self) -> None:
        self._levels: list[int] = []

    @property
    def depth(self) -> int:
        """The depth of what stands below them."""
        return len(self._levels) + 1

    def enter(self, level: int) -> int:
        """Begin a part of this level (any earlier one of it or below it ends); gives the heading's own depth."""
        while self._levels and self._levels[-1] >= level:
            self._levels.pop()
        depth = self.depth
        self._levels.append(level)
        return depth


LONGEST = 400  # tokens of one leaf (spec 5, *Import*)
LARGEST = 64 << 20  # bytes of a file
MAX_LINES = 2_000_000
MAX_PARTS = 1_000_000  # and so deep may they be nested: what documents are made for (spec 5, *Limits*)
MAX_DEPTH = 10_000
_BY_LINE = frozenset({"code", "table"})


@frozen
class Piece:
    """A part of a text from offset `start` to `end`, below the nearest earlier piece of smaller `depth` (1 is the top).

    `kind` is heading, paragraph, item, table, code, quote or frontmatter; `title` is set where the piece names a part.
    """

    kind: str
    depth: int
    start: int
    end: int
    title: str = ""


@frozen
class Outline:
    """What a file holds: its text, title, labels (topic, tags), pieces, and how it was read."""

    text: str
    format: str
    title: str
    labels: tuple[str, ...]
    pieces: tuple[Piece, ...]
    tokens: tuple[int, ...]  # of each piece
    note: str | None = None
    places: tuple[tuple[int, int], ...] | None = None  # of text that was got out of a file: lines or pages there
    values: Mapping[str, Any] = field(default_factory=dict)  # of its front matter

    def lines(self) -> list[tuple[int, int]]:
        """First and last line of each piece, counted from 1 as editors do (a line ends with `\\n`)."""
        if self.places is not None:
            return list(self.places)
        starts = line_starts(self.text)
        return [(bisect_right(starts, p.start), bisect_right(starts, max(p.start, p.end - 1))) for p in self.pieces]

    def gaps(self) -> Iterator[str]:
        """What stands before the first piece, and after each piece up to the next one."""
        last = 0
        for piece in self.pieces:
            yield self.text[last : piece.start]
            last = piece.end
        yield self.text[last:]


def line_starts(text: str) -> list[int]:
    """Offsets at which lines begin."""
    starts, at = [0], text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


def check(count: int, most: int, what: str, where: object) -> None:
    """Raises DocmemError where there are more than `most`."""
    if count > most:
        raise DocmemError(f"has more than {most:,} {what}", where=where, mend="split it")


class Lines:
    """A text by lines: `lines[i]` without its end, `starts[i]` its offset, and offsets of runs of lines."""

    __slots__ = ("lines", "starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = line_starts(text)
        self.lines = [line.removesuffix("\r") for line in text.split("\n")]

    def __len__(self) -> int:
        return len(self.lines)

    def blank(self, at: int) -> bool:
        return not self.lines[at].strip()

    def indent(self, at: int) -> int:
        """Columns of white space before the line's first character; a tab goes to the next multiple of 4."""
        line = self.lines[at]
        return len((line[: len(line) - len(line.lstrip(" \t"))]).expandtabs(4))

    def piece(self, kind: str, depth: int, first: int, after: int, title: str = "") -> Piece:
        """The piece of the lines from `first` to before `after`, without blank lines at its end."""
        while after > first + 1 and self.blank(after - 1):
            after -= 1
        return Piece(kind, depth, self.starts[first], self.starts[after - 1] + len(self.lines[after - 1]), title)


def split_long(text: str, found: Sequence[Piece], count: Callable[[str], int]) -> Iterator[Piece]:
    """The pieces, leaves of more than 400 tokens split: at sentence ends, code and tables at line ends."""
    for at, piece in enumerate(found):
        is_leaf = at + 1 == len(found) or found[at + 1].depth <= piece.depth
        body = text[piece.start : piece.end]
        if not is_leaf or piece.kind == "heading" or len(body) <= LONGEST or count(body) <= LONGEST:
            yield piece  # a token has at least one character... of most texts; a leaf that short is short enough
            continue
        for start, end in _cut(body, piece.kind, count):
            yield replace(piece, start=piece.start + start, end=piece.start + end)


def _cut(body: str, kind: str, count: Callable[[str], int]) -> Iterator[tuple[int, int]]:
    by_line = [at for at in line_starts(body)[1:] if at < len(body)] + [len(body)]
    if kind in _BY_LINE:
        yield from pieces(body, by_line, count, whole_lines=True)
        return
    ends: list[int] = []
    last = 0
    for end in sentence_ends(body):  # a sentence too long by itself is cut where its lines end
        if count(body[last:end]) > LONGEST:
            ends += by_line[bisect_right(by_line, last) : bisect_left(by_line, end)]
        ends.append(end)
        last = end
    yield from pieces(body, ends, count)


def plain(text: str) -> list[Piece]:
    """The paragraphs of a text, all at the top."""
    source = Lines(text)
    found, at = [], 0
    while at < len(source):
        if source.blank(at):
            at += 1
            continue
        first = at
        while at < len(source) and not source.blank(at):
            at += 1
        found.append(source.piece("paragraph", 1, first, at))
    return found
