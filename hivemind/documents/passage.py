"""A passage: what stands in a file at certain lines, and whether it still stands there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hivemind.documents.formats.outline import Piece
from hivemind.documents.formats.reading import decoded
from hivemind.errors import UserError
from hivemind.fs import open_inside
from hivemind.layout import Layout

__all__ = ["Citation", "Passage", "Verdict", "group", "read_file", "verify"]

_TOGETHER = 160  # tokens up to which items of one list are quoted together
_WITH_LEAD = 240  # and up to which "… the following:" is quoted together with what follows


@dataclass(frozen=True, slots=True)
class Passage:
    """A quotation: `text` is exactly what stands in `path` from `start_line` to `end_line` (from 1, both included).

    `path` is relative to the hive, or absolute outside it; `digest` is the SHA-256 (hex) of the file that was read;
    `titles` are the document's title and the headings above, outermost first; `score` is comparable within one search;
    `why` says in words what of the question was found, and where.
    """

    text: str
    path: str
    start_line: int
    end_line: int
    digest: str
    score: float
    titles: tuple[str, ...]
    node_id: str
    why: str

    @property
    def citation(self) -> str:
        """`path:line-line`."""
        return f"{self.path}:{self.start_line}-{self.end_line}"


class Citation(Protocol):
    """What verify needs to know: a Passage has it, and so has what a reviewer was sent."""

    @property
    def text(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def start_line(self) -> int: ...
    @property
    def end_line(self) -> int: ...
    @property
    def digest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a quote stands where it is said to stand: true or false as a condition, with the reason in words.

    `lines` are those at which it stands now, or None; `changed` says that the file is not the one that was read.
    """

    stands: bool
    reason: str
    lines: tuple[int, int] | None = None
    changed: bool = False

    def __bool__(self) -> bool:
        return self.stands


def verify(passage: Citation, layout: Layout, roots: Iterable[Path] = ()) -> Verdict:
    """Whether the quote stands in its file now, at its lines. Reads that one file, and nothing of the database.

    A file that has changed elsewhere still has the quote; one where it moved to other lines does not answer for the
    citation as it stands, and the reason names the lines.
    """
    try:
        raw, _ = read_file(passage.path, layout, roots)
        text = decoded(raw, passage.path)
    except UserError as error:
        return Verdict(False, str(error))
    except OSError as error:
        return Verdict(False, f"{passage.path} cannot be read ({error.strerror})")
    changed = hashlib.sha256(raw).hexdigest() != passage.digest
    since = " (the file has changed elsewhere since it was read)" if changed else ""
    if not passage.text.strip():
        return Verdict(False, "the quote is empty", None, changed)
    found = _lines_of(text, passage.text, passage.start_line)
    if found is None:
        why = "the file has changed since it was read" if changed else "the file is the one that was read"
        return Verdict(False, f"the quote stands nowhere in {passage.path}; {why}", None, changed)
    if passage.start_line <= found[0] and found[1] <= passage.end_line:
        return Verdict(True, f"stands at {passage.path}:{found[0]}-{found[1]}{since}", found, changed)
    return Verdict(False, f"stands at lines {found[0]}-{found[1]}, not where it is cited{since}", found, changed)


def _lines_of(text: str, quote: str, near: int) -> tuple[int, int] | None:
    """The lines of the quote's occurrence that begins nearest to line `near`."""
    best: tuple[int, int] | None = None
    at, line, last = text.find(quote), 1, 0
    while at >= 0:
        line += text.count("\n", last, at)
        if best is None or abs(line - near) < abs(best[0] - near):
            best = (line, line + quote.rstrip("\n").count("\n"))
        last, at = at, text.find(quote, at + 1)
    return best


def read_file(path: str, layout: Layout, roots: Iterable[Path] = ()) -> tuple[bytes, os.stat_result]:
    """The content of a file in the hive (or in `roots`) and its stat, taken from the open file.

    Raises OutsideError for one that lies elsewhere, UserError for what is no regular file, OSError.
    """
    file = open_inside(path, layout.root, roots)
    with os.fdopen(file, "rb") as opened:
        return opened.read(), os.fstat(file)


def group(text: str, pieces: Sequence[Piece], tokens: Sequence[int]) -> list[int]:
    """The passage that each piece belongs to: items of a list together while they are short, and with what leads in."""
    numbers: list[int] = []
    number = size = 0
    for at, piece in enumerate(pieces):
        before = pieces[at - 1] if at else None
        goes_on = before is not None and piece.kind == before.kind == "item" and size + tokens[at] <= _TOGETHER
        led_in = (
            before is not None
            and before.kind == "paragraph"
            and piece.kind in ("item", "code", "table", "quote")
            and text[before.start : before.end].rstrip("*_ ").endswith(":")
            and size + tokens[at] <= _WITH_LEAD
        )
        if not (goes_on or led_in):
            number, size = number + 1, 0
        numbers.append(number)
        size += tokens[at]
    return numbers
