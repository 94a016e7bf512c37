"""The outline of a file: its pieces in reading order, each with its depth and its offsets in the text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from hivemind.documents.node import DocmemError
from hivemind.frozen import frozen

# Sentence-ending punctuation, closing quotes or brackets, then white space and a character that can begin a sentence.
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]*_]*+(?=\s+[\"'“‘(\[*_]*[^\W_a-z])|[。！？]+|\n[ \t]*\n")
_STRETCH = re.compile(r"[^\n]{0,799}(?:\s|\Z)|[^\n]{800}")  # a line, or as much of a long one as has some 200 tokens
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Za-z]|Dr|Mr|Mrs|Ms|Prof|St|No|vs|etc|cf|al|approx|resp|Fig|Vol|pp|Inc|Ltd|Nr|bzw|ca)"
    r"|\b(?:e\.g|i\.e|z\.B|d\.h|u\.a))\.$"
)


def sentence_ends(text: str) -> list[int]:
    """Return the offset of the end of each sentence; the last offset is len(text). For an empty text, return []."""
    ends = [
        match.end()
        for match in _END.finditer(text)
        if not _ABBREVIATION.search(text, max(0, match.end() - 8), match.end())
    ]
    if text and (not ends or ends[-1] != len(text)):
        ends.append(len(text))
    return ends


def sentence_runs(
    text: str, ends: list[int], count_tokens: Callable[[str], int], *, whole_lines: bool = False
) -> list[tuple[int, int]]:
    """Join the sentences or lines that end at `ends` into runs of at most 400 tokens; return (start, end) of each run.

    A sentence of more than 400 tokens is a run of its own. White space between runs is left out, but with `whole_lines`
    a run keeps the indentation of its first line.
    """
    runs: list[tuple[int, int]] = []
    start, size = 0, 0
    last = 0
    for end in ends:
        cost = count_tokens(text[last:end])
        if last > start and size + cost > MAX_LEAF_TOKENS:
            runs.append((start, last))
            start, size = last, 0
        size += cost
        last = end
    runs.append((start, last))
    return [run for a, b in runs if (run := _trim(text, a, b, whole_lines))]


def _trim(text: str, start: int, end: int, whole_lines: bool) -> tuple[int, int] | None:
    body = text[start:end]
    if not body.strip():
        return None
    indent = len(body) - len(body.lstrip())
    if whole_lines:
        indent = body.rfind("\n", 0, indent) + 1
    return start + indent, start + len(body.rstrip())


class Headings:
    """The open headings at a place in a document, as their levels, outermost first."""

    def __init__(self) -> None:
        self._levels: list[int] = []

    @property
    def depth(self) -> int:
        """Return the depth of a piece directly below the innermost open heading."""
        return len(self._levels) + 1

    def enter(self, level: int) -> int:
        """Open a heading of `level`, and return its depth in the tree. Headings of the same and deeper levels are
        closed first."""
        while self._levels and self._levels[-1] >= level:
            self._levels.pop()
        depth = self.depth
        self._levels.append(level)
        return depth


MAX_LEAF_TOKENS = 400  # longer leaves are split
MAX_FILE_BYTES = 64 << 20
MAX_LINES = 2_000_000
MAX_PARTS = 1_000_000  # pieces of one file
MAX_DEPTH = 10_000
_BY_LINE = frozenset({"code", "table"})


@frozen
class Piece:
    """A part of a text, from offset `start` to `end`. A piece's parent is the nearest earlier piece of smaller `depth`.

    `kind` is heading, paragraph, item, table, code, quote or frontmatter. `title` is set if the piece names a section.
    """

    kind: str
    depth: int
    start: int
    end: int
    title: str = ""


@frozen
class Outline:
    """The content of a file: its text, title, labels (topic, tags) and pieces."""

    text: str
    format: str
    title: str
    labels: tuple[str, ...]
    pieces: tuple[Piece, ...]
    tokens: tuple[int, ...]  # one count per piece
    note: str | None = None
    places: tuple[tuple[int, int], ...] | None = None  # for extracted text: each piece's lines or pages in the file
    values: Mapping[str, Any] = field(default_factory=dict)  # the front matter

    def lines(self) -> list[tuple[int, int]]:
        """Return the first and last line of each piece, counted from 1 (a line ends with `\\n`)."""
        if self.places is not None:
            return list(self.places)
        starts = line_starts(self.text)
        return [(bisect_right(starts, p.start), bisect_right(starts, max(p.start, p.end - 1))) for p in self.pieces]

    def gaps(self) -> Iterator[str]:
        """Yield the text before the first piece, then the text between each piece and the next."""
        last = 0
        for piece in self.pieces:
            yield self.text[last : piece.start]
            last = piece.end
        yield self.text[last:]


def decode_text(raw: bytes, path: object) -> str:
    """Decode a text file as UTF-8, as UTF-16 (with a byte-order mark), or else as Windows-1252 or Latin-1.

    The byte-order mark is dropped. Raises DocmemError for a file that seems to be binary.
    """
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return raw.decode("utf-16")
        except UnicodeDecodeError as error:
            raise DocmemError(f"is not UTF-16 text (byte {error.start})", location=path) from None
    if b"\0" in raw[:65536]:
        raise DocmemError("is not text (NUL bytes)", location=path)
    try:
        return raw.decode("utf-8-sig")  # a byte-order mark would hide the first heading
    except UnicodeDecodeError as error:
        sample = raw[:65536]
        control_bytes = sum(byte < 32 and byte not in (9, 10, 12, 13, 27) for byte in sample)
        high_bytes = sum(byte >= 127 for byte in sample)
        if control_bytes or high_bytes * 2 > len(sample):
            raise DocmemError(f"is not text (not UTF-8 at byte {error.start})", location=path) from None
        try:
            return raw.decode("cp1252")
        except UnicodeDecodeError:
            return "".join(map(chr, raw))  # as Latin-1


def line_starts(text: str) -> list[int]:
    starts, at = [0], text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


def check_limit(count: int, limit: int, name: str, path: object) -> None:
    if count > limit:
        raise DocmemError(f"has more than {limit:,} {name}", location=path, remedy="split it")


class LineReader:
    """A text split into lines: `lines[i]` is a line without its line end, `starts[i]` the line's offset."""

    __slots__ = ("lines", "starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = line_starts(text)
        self.lines = [line.removesuffix("\r") for line in text.split("\n")]

    def __len__(self) -> int:
        return len(self.lines)

    def is_blank(self, at: int) -> bool:
        return not self.lines[at].strip()

    def indent(self, at: int) -> int:
        """Return the indentation of line `at` in columns; a tab extends to the next multiple of 4."""
        line = self.lines[at]
        return len((line[: len(line) - len(line.lstrip(" \t"))]).expandtabs(4))

    def piece(self, kind: str, depth: int, first: int, after: int, title: str = "") -> Piece:
        """Return a piece that consists of the lines from `first` to `after` - 1, without trailing blank lines."""
        while after > first + 1 and self.is_blank(after - 1):
            after -= 1
        return Piece(kind, depth, self.starts[first], self.starts[after - 1] + len(self.lines[after - 1]), title)


def split_long(text: str, pieces: Sequence[Piece], count: Callable[[str], int]) -> Iterator[Piece]:
    """Yield the pieces. Split leaves of more than 400 tokens: code and tables at line ends, others at sentence ends.
    `count` counts tokens."""
    for at, piece in enumerate(pieces):
        is_leaf = at + 1 == len(pieces) or pieces[at + 1].depth <= piece.depth
        body = text[piece.start : piece.end]
        if not is_leaf or piece.kind == "heading" or len(body) <= MAX_LEAF_TOKENS or count(body) <= MAX_LEAF_TOKENS:
            yield piece  # a token usually has at least one character, so a short leaf need not be counted
            continue
        for start, end in _cut(body, piece.kind, count):
            yield replace(piece, start=piece.start + start, end=piece.start + end)


def _cut(body: str, kind: str, count_tokens: Callable[[str], int]) -> Iterator[tuple[int, int]]:
    if kind in _BY_LINE:
        by_line = [at for at in line_starts(body)[1:] if at < len(body)] + [len(body)]
        yield from sentence_runs(body, by_line, count_tokens, whole_lines=True)
        return
    ends: list[int] = []
    last = 0
    for end in sentence_ends(body):
        # a sentence of more than 400 tokens is cut at its line ends, a long line between words
        if count_tokens(body[last:end]) > MAX_LEAF_TOKENS:
            ends += [match.end() for match in _STRETCH.finditer(body, last, end) if match.end() < end]
        ends.append(end)
        last = end
    yield from sentence_runs(body, ends, count_tokens)
