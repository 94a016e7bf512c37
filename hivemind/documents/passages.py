"""Passages: what stands in a file at certain lines, read and quoted together, some 200 tokens of one section (spec 9)."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from hivemind.boundary import boundary
from hivemind.documents.formats.extracted import Extract
from hivemind.documents.formats.outline import Piece
from hivemind.documents.formats.reading import decoded, format_of, read_bytes, read_extract
from hivemind.errors import UserError
from hivemind.fs import open_inside
from hivemind.layout import Layout
from hivemind.masking import mask
from hivemind.search import Confidence, Item

__all__ = ["Citation", "Part", "Passage", "Reader", "Verdict", "group", "passage_text", "read_file", "verify"]

_ENOUGH, _MOST = 160, 260  # tokens: a passage that has so many is long enough, and with so many it is too long


NONE = Confidence(0.0, "")


@dataclass(frozen=True, slots=True)
class Passage:
    """A quotation: `text` is exactly what stands in `path` from `start_line` to `end_line` (from 1, both included).

    `path` is relative to the hive, or absolute outside it; `digest` is the SHA-256 (hex) of the file that was read;
    `titles` are the document's title and the headings above, outermost first; `score` is comparable within one search;
    `why` says in words what of the question was found, and where; `confidence` how far it can be trusted to answer;
    `quote` where in `text` the sentences that answer begin and end; `standing` is what its document says of itself (draft,
    rejected, superseded …), or empty; `lead` is the number of its first node.
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
    confidence: Confidence = NONE
    quote: tuple[int, int] = (0, 0)
    standing: str = ""
    lead: int = 0

    @property
    def citation(self) -> str:
        """`path:line-line`."""
        return f"{self.path}:{self.start_line}-{self.end_line}"

    @property
    def is_cut(self) -> bool:
        """Whether the sentences that answer are not all of it."""
        return self.quote != (0, 0) and self.text[slice(*self.quote)] != self.text.strip()

    def quoted(self) -> Passage:
        """The sentences that answer, as a passage of their own, with their lines."""
        first, last = self.quote
        if first >= last:
            return self
        before, text = self.text[:first], self.text[first:last]
        start, end = self.start_line, self.end_line
        if format_of(self.path) not in ("pdf", "html"):  # whose text stands nowhere in the file
            start += before.count("\n")
            end = start + text.count("\n")
        return replace(self, text=text, start_line=start, end_line=end, quote=(0, 0))


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
        with boundary("document", passage.path):
            extract = read_extract(raw, passage.path)
            text = mask(decoded(raw, passage.path)) if extract is None else extract.text
    except UserError as error:
        return Verdict(False, str(error))
    except OSError as error:
        return Verdict(False, f"{passage.path} cannot be read ({error.strerror})")
    changed = hashlib.sha256(raw).hexdigest() != passage.digest
    since = " (the file has changed elsewhere since it was read)" if changed else ""
    if not passage.text.strip():
        return Verdict(False, "the quote is empty", None, changed)
    found = [_place(text, at, passage.text, extract) for at in _occurrences(text, passage.text)]
    if not found:
        why = "the file has changed since it was read" if changed else "the file is the one that was read"
        return Verdict(False, f"the quote stands nowhere in {passage.path}; {why}", None, changed)
    first, last = min(found, key=lambda place: abs(place[0] - passage.start_line))
    if passage.start_line <= first and last <= passage.end_line:
        return Verdict(True, f"stands at {passage.path}:{first}-{last}{since}", (first, last), changed)
    return Verdict(False, f"stands at lines {first}-{last}, not where it is cited{since}", (first, last), changed)


def _occurrences(text: str, quote: str) -> Iterator[int]:
    at = text.find(quote)
    while at >= 0:
        yield at
        at = text.find(quote, at + len(quote))


def _place(text: str, at: int, quote: str, extract: Extract | None) -> tuple[int, int]:
    """First and last line (or page) of what stands at an offset."""
    if extract is None:
        first = text.count("\n", 0, at) + 1
        return first, first + quote.rstrip("\n").count("\n")
    starts = [piece.start for piece in extract.pieces]
    parts = slice(max(bisect_right(starts, at) - 1, 0), bisect_right(starts, at + len(quote) - 1))
    places = extract.places[parts]
    return min(first for first, _ in places), max(last for _, last in places)


def read_file(path: str, layout: Layout, roots: Iterable[Path] = ()) -> tuple[bytes, os.stat_result]:
    """The content of a file in the hive (or in `roots`) and its stat, taken from the open file.

    Raises OutsideError for one that lies elsewhere, UserError for what is no regular file or too large, OSError.
    """
    return read_bytes(path, open_inside(path, layout.root, roots))


def group(text: str, pieces: Sequence[Piece], tokens: Sequence[int], breaks: Collection[int] = ()) -> list[int]:
    """The passage that each piece belongs to: what stands together in one section, some 200 tokens.

    A heading and front matter are by themselves. What follows "… the following:" stays with it where there is room. At the pieces
    of `breaks` a new one begins.
    """
    numbers: list[int] = []
    number = size = 0
    for at, piece in enumerate(pieces):
        before = pieces[at - 1] if at else None
        goes_on = (
            before is not None
            and at not in breaks
            and not {piece.kind, before.kind} & {"heading", "frontmatter"}
            and size + tokens[at] <= _MOST
            and (size < _ENOUGH or text[before.start : before.end].rstrip("*_ ").endswith(":"))
        )
        if not goes_on:
            number, size = number + 1, 0
        numbers.append(number)
        size += tokens[at]
    return numbers


_FRONT_MATTER = 0.5  # what it says is mostly said better below
STANDING = 0.6
"""What a document weighs that says it is no longer, or not yet, in force."""


@dataclass(frozen=True, slots=True)
class _Member:
    """One node of a passage."""

    node_id: str
    parent_id: str
    text: str
    gap: str
    kind: str
    start_line: int
    end_line: int
    number: int


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    digest: str
    root_id: str
    title: str
    labels: str
    document_class: str
    standing: str


@dataclass(frozen=True, slots=True)
class Part:
    """A passage as it stands in its file. `beside` are the leads of the passages before and after it."""

    lead: int
    file: _File
    members: Sequence[_Member]
    titles: tuple[str, ...]
    leads: bool
    beside: tuple[int | None, int | None] = (None, None)

    @property
    def text(self) -> str:
        """Exactly what stands in the file."""
        return _text(self.members)

    @property
    def meant(self) -> str:
        """What is embedded of it: its text under the nearest titles."""
        return f"{' > '.join(self.titles[-3:])}\n{self.text}"

    @property
    def item(self) -> Item:
        """The passage as the search reads it."""
        prose = self.file.document_class != "code"
        examples = [one for one in self.members if prose and one.kind == "code"]
        said = _text([one for one in self.members if one not in examples])
        standing = _FRONT_MATTER if self.members[0].kind == "frontmatter" else 1.0
        return Item(
            self.lead,
            said,
            self.titles[-1],
            " / ".join(self.titles[:-1]),
            f"{self.file.title} {self.file.labels} {self.file.path.replace('_', ' ')}",
            _text(examples),
            self.leads,
            session=self.file.path,
            previous=self.beside[0],
            next=self.beside[1],
            age=(self.file.path, self.members[0].start_line),
            standing=standing * (STANDING if self.file.standing else 1.0),
        )

    def quoted(self, score: float, why: str, confidence: Confidence = NONE, quote: tuple[int, int] = (0, 0)) -> Passage:
        """The passage as a quotation."""
        if self.file.standing:
            why += f"; its document is {self.file.standing}"
        first, last = self.members[0], self.members[-1]
        return Passage(
            self.text, self.file.path, first.start_line, last.end_line, self.file.digest, score, self.titles,
            first.node_id, why, confidence, quote, self.file.standing, self.lead,
        )  # fmt: skip


def _text(members: Sequence[_Member]) -> str:
    return "".join(member.text + member.gap for member in members[:-1]) + (members[-1].text if members else "")


class Reader:
    """Reads passages, what belongs to several of them once."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self._sql = sql
        self._files: dict[int, _File] = {}
        self._leads: dict[int, list[int]] = {}
        self._above: dict[str, tuple[str, ...]] = {}

    def part(self, lead: int) -> Part | None:
        """The passage that a node leads, None if it leads none."""
        row = self._sql.execute(
            "SELECT p.file_id, p.passage FROM nodes n JOIN places p ON p.node_id = n.id WHERE n.seq = ? AND p.leads",
            (lead,),
        ).fetchone()
        return None if row is None else self._part(lead, *row)

    def parts(self, leads: Iterable[int]) -> dict[int, Part]:
        """lead → passage of those that lead one."""
        return {lead: part for lead in leads if (part := self.part(lead)) is not None}

    def part_of(self, node_id: str) -> Part | None:
        """The passage that a node is in."""
        row = self._sql.execute("SELECT file_id, passage FROM places WHERE node_id = ?", (node_id,)).fetchone()
        return None if row is None else self._part(0, *row)

    def _part(self, lead: int, file_id: int, number: int) -> Part:
        if file_id not in self._files:
            row = self._sql.execute(
                "SELECT path, digest, root_id, title, labels, class, standing FROM files WHERE id = ?", (file_id,)
            ).fetchone()
            self._files[file_id] = _File(*row)
        file = self._files[file_id]
        rows = self._sql.execute(
            "SELECT n.id, n.parent_id, n.text, p.gap, p.kind, p.start_line, p.end_line, p.number"
            " FROM places p JOIN nodes n ON n.id = p.node_id"
            " WHERE p.file_id = ? AND p.passage = ? AND p.number > 0 ORDER BY p.number",
            (file_id, number),
        )
        members = [_Member(*one) for one in rows]
        titles = self._titles(members[0].parent_id)
        titles = titles if titles[:1] == (file.title,) else (file.title, *titles)
        leads = number == 1 or self._kind_before(file_id, number, members[0].number) == "heading"
        return Part(lead, file, members, titles, leads, self._beside(file_id, lead))

    def _beside(self, file_id: int, lead: int) -> tuple[int | None, int | None]:
        if file_id not in self._leads:
            rows = self._sql.execute(
                "SELECT n.seq FROM places p JOIN nodes n ON n.id = p.node_id WHERE p.file_id = ? AND p.leads"
                " ORDER BY p.number",
                (file_id,),
            )
            self._leads[file_id] = [seq for (seq,) in rows]
        leads = self._leads[file_id]
        at = leads.index(lead) if lead in leads else None
        if at is None:
            return None, None
        return leads[at - 1] if at else None, leads[at + 1] if at + 1 < len(leads) else None

    def _kind_before(self, file_id: int, passage: int, number: int) -> str:
        """The kind of the node before the first of a passage, which ends the passage before: so the index finds it."""
        row = self._sql.execute(
            "SELECT kind FROM places WHERE file_id = ? AND passage = ? AND number = ?",
            (file_id, passage - 1, number - 1),
        )
        return str(row.fetchone()[0])

    def _titles(self, node_id: str | None) -> tuple[str, ...]:
        path: list[tuple[str, tuple[str, ...]]] = []
        while node_id is not None and node_id not in self._above:
            kind, title, parent = self._sql.execute(
                "SELECT context_type, context_value, parent_id FROM nodes WHERE id = ?", (node_id,)
            ).fetchone()
            path.append((node_id, (title,) if kind == "heading" else ()))
            node_id = parent
        titles = () if node_id is None else self._above[node_id]
        for above_id, title in reversed(path):
            titles = self._above[above_id] = (*titles, *title)
        return titles


def passage_text(sql: sqlite3.Connection, node_id: str) -> str:
    """The text of the passage that a node is quoted with; of one from no file its own."""
    part = Reader(sql).part_of(node_id)
    if part is None:
        return str(sql.execute("SELECT text FROM nodes WHERE id = ?", (node_id,)).fetchone()[0])
    return part.text
