"""The outline of a file: its pieces in reading order, each with its depth and where it stands in the text.

Texts of the pieces and the gaps between them are the file's text, character for character: `Outline.rebuilt()`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hivemind.documents.errors import DocmemError
from hivemind.documents.sentences import pieces, sentence_ends

__all__ = ["LONGEST", "MAX_DEPTH", "MAX_LINES", "MAX_PARTS", "Lines", "Outline", "Piece", "check", "split_long"]

LONGEST = 400  # tokens of one leaf (spec 5, *Import*)
MAX_LINES = 2_000_000
MAX_PARTS = 1_000_000  # and so deep may they be nested: what documents are made for (spec 5, *Limits*)
MAX_DEPTH = 10_000
_BY_LINE = frozenset({"code", "table"})


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text from offset `start` to `end`, below the nearest earlier piece of smaller `depth` (1 is the top).

    `kind` is heading, paragraph, item, table, code, quote or frontmatter; `title` is set where the piece names a part.
    """

    kind: str
    depth: int
    start: int
    end: int
    title: str = ""


@dataclass(frozen=True, slots=True)
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

    def rebuilt(self) -> str:
        """The text again, from pieces and gaps."""
        gaps = self.gaps()
        return next(gaps) + "".join(self.text[p.start : p.end] + gap for p, gap in zip(self.pieces, gaps, strict=True))


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
        yield from pieces(body, by_line, LONGEST, count, whole_lines=True)
        return
    ends: list[int] = []
    last = 0
    for end in sentence_ends(body):  # a sentence too long by itself is cut where its lines end
        if count(body[last:end]) > LONGEST:
            ends += by_line[bisect_right(by_line, last) : bisect_left(by_line, end)]
        ends.append(end)
        last = end
    yield from pieces(body, ends, LONGEST, count)
