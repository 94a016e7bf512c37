"""Passages: what stands in a file at certain lines, read and quoted together, some 200 tokens of one section (spec 9)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from hivemind.boundary import boundary
from hivemind.documents import tree
from hivemind.documents.citation import Citation, Verdict
from hivemind.documents.formats.extracted import Extract
from hivemind.documents.formats.outline import Piece, line_starts
from hivemind.documents.formats.reading import EXTRACTED, decoded, format_of, read_bytes, read_extract
from hivemind.documents.progress import MEANT
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import open_inside
from hivemind.layout import Layout
from hivemind.masking import mask
from hivemind.search import Backlog, Confidence, Item

__all__ = [
    "BACKLOG", "Part", "Passage", "group", "lead_of", "passage_text",
    "read_file", "read_parts", "verify",
]  # fmt: skip


def _meant(sql: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, str]:
    """What is embedded of each: a passage with its titles, another node's own text."""
    parts = read_parts(sql, seqs)
    rows = sql.execute(
        "SELECT seq, text FROM nodes WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq", (json.dumps(seqs),)
    )
    return {seq: parts[seq].meant if seq in parts else text for seq, text in rows}


BACKLOG = Backlog(  # all vectors are of one group: a node may move to another document and keeps its vector
    key="n.seq",
    rows=MEANT,
    texts=_meant,
)
"""Passages, and nodes from no file, are to have vectors."""


_ENOUGH, _MOST = 160, 260  # tokens: a passage that has so many is long enough, and with so many it is too long


NONE = Confidence(0.0, "")
Lines = tuple[int, int]
"""First and last line, or page."""


@frozen
class Passage:
    """A quotation: `text` is exactly what stands in `path` from `start_line` to `end_line` (see Citation).

    `path` is relative to the hive, or absolute outside it; `digest` is the SHA-256 (hex) of the file that was read;
    `titles` are the document's title and the headings above, outermost first; `score` is comparable within one search;
    `why` says in words what of the question was found, and where; `confidence` how far it can be trusted to answer;
    `quote` where in `text` the sentences that answer begin and end, `quote_lines` their first and last line; `standing` is
    what its document says of itself (draft, rejected, superseded …), or empty; `lead` is the number of its first node.
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
    quote_lines: tuple[int, int] = (0, 0)
    standing: str = ""
    lead: int = 0

    def quoted(self) -> Citation:
        """Cite the sentences that answer."""
        return Citation(self.path, *self.quote_lines, self.digest, self.text[slice(*self.quote)])


def verify(passage: Citation | Passage, layout: Layout, roots: Iterable[Path] = ()) -> Verdict:
    """Check that the quote stands in its file now, at exactly its lines. Reads that one file, and nothing of the database.

    A file that has changed elsewhere still has the quote. The reason names the lines of a quote that stands at others.
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
    quote = passage.text.strip("\n")
    if not quote.strip():
        return Verdict(False, "the quote is empty", None, changed)
    start, end = passage.start_line, passage.end_line

    def distance(place: Lines) -> tuple[bool, bool, int]:
        first, last = place
        return place != (start, end), not start <= first <= last <= end, abs(first - start)

    nearest = min(_places(text, quote, extract), key=distance, default=None)
    if nearest is None:
        why = "the file has changed since it was read" if changed else "the file is the one that was read"
        return Verdict(False, f"the quote stands nowhere in {passage.path}; {why}", None, changed)
    first, last = nearest
    if nearest == (start, end):
        return Verdict(True, f"stands at {passage.path}:{first}-{last}{since}", nearest, changed)
    place = f"{'pages' if format_of(passage.path) == 'pdf' else 'lines'} {first}-{last}"
    return Verdict(False, f"stands at {place}, not where it is cited{since}", nearest, changed)


def _places(text: str, quote: str, extract: Extract | None) -> Iterator[Lines]:
    """The place of each occurrence of a quote: of those that begin on one line of the text they are the same."""
    lines = line_starts(text)
    starts, places = (lines, None) if extract is None else ([piece.start for piece in extract.pieces], extract.places)
    at = text.find(quote)
    while at >= 0:
        yield _place(at, at + len(quote), starts, places)
        line = bisect_right(lines, at)
        at = text.find(quote, lines[line]) if line < len(lines) else -1


def _place(begin: int, end: int, starts: Sequence[int], places: Sequence[Lines] | None = None) -> Lines:
    """First and last line of what stands between two offsets, where lines begin at `starts`; of a text that was got out of
    a file parts begin there, and stand at `places`."""
    first, last = bisect_right(starts, begin) - 1, bisect_right(starts, max(begin, end - 1)) - 1
    if places is None:
        return first + 1, last + 1
    covered = places[first : last + 1]
    return min(place[0] for place in covered), max(place[1] for place in covered)


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


class _Member(NamedTuple):
    """One node of a passage."""

    node_id: str
    parent_id: str
    text: str
    gap: str
    kind: str
    start_line: int
    end_line: int


@frozen
class _File:
    path: str
    digest: str
    title: str
    labels: str
    document_class: str
    standing: str


_MARKUP = re.compile(  # bounded, so that no text costs more than its length
    r"!?\[([^\]]{0,300})\]\([^)]{0,1000}\)|:[\w:+.-]{1,40}:`[~!]?([^`<]{0,300}?)(?:\s{0,9}<[^`>]{0,300}>)?`"
    r"|https?://[^\s)>\]]+|\{%.{0,300}?%\}|[*`|]+"
)


@frozen
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
    def plain(self) -> str:
        """Its text, of prose without markup: addresses of links are many tokens, and none of what it says."""
        if self.file.document_class == "code":
            return self.text
        return _MARKUP.sub(lambda found: found[1] or found[2] or "", self.text)

    @property
    def meant(self) -> str:
        """What is embedded of it: its plain text under the nearest titles."""
        return f"{' > '.join(self.titles[-3:])}\n{self.plain}"

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
        """The passage as a quotation; without a `quote` all of it is quoted."""
        quote = quote if any(quote) else (0, len(self.text))
        if self.file.standing:
            said = f"; its document is {self.file.standing}"
            why, confidence = why + said, replace(confidence, reason=confidence.reason + said)
        return Passage(
            self.text, self.file.path, *self._lines(0, len(self.text)), self.file.digest, score, self.titles,
            self.members[0].node_id, why, confidence, quote, self._lines(*quote), self.file.standing, self.lead,
        )  # fmt: skip

    def _lines(self, begin: int, end: int) -> Lines:
        """First and last line, in the file, of what stands between two offsets of the text."""
        if format_of(self.file.path) in EXTRACTED:
            sizes = (len(member.text + member.gap) for member in self.members[:-1])
            places = [(member.start_line, member.end_line) for member in self.members]
            return _place(begin, end, [*accumulate(sizes, initial=0)], places)
        above = self.members[0].start_line - 1
        first, last = _place(begin, end, line_starts(self.text))
        return above + first, above + last


def _text(members: Sequence[_Member]) -> str:
    return "".join(member.text + member.gap for member in members[:-1]) + (members[-1].text if members else "")


_LEADS = """
SELECT h.seq, q.file_id, q.passage, (
        SELECT kind FROM places b WHERE b.file_id = q.file_id AND b.passage = q.passage - 1 AND b.number = q.number - 1
    ), (
        SELECT n.seq FROM places b JOIN nodes n ON n.id = b.node_id
        WHERE b.file_id = q.file_id AND b.passage < q.passage AND b.leads ORDER BY b.passage DESC LIMIT 1
    ), (
        SELECT n.seq FROM places b JOIN nodes n ON n.id = b.node_id
        WHERE b.file_id = q.file_id AND b.passage > q.passage AND b.leads ORDER BY b.passage LIMIT 1
    )
FROM json_each(?) j CROSS JOIN nodes h ON h.seq = j.value CROSS JOIN places q ON q.node_id = h.id WHERE q.leads
"""
_MEMBERS = """
SELECT j.key, n.id, n.parent_id, n.text, p.gap, p.kind, p.start_line, p.end_line
FROM json_each(?) j CROSS JOIN places p ON p.file_id = j.value ->> 0 AND p.passage = j.value ->> 1 AND p.number > 0
CROSS JOIN nodes n ON n.id = p.node_id ORDER BY j.key, p.number
"""


def read_parts(sql: sqlite3.Connection, leads: Iterable[int]) -> dict[int, Part]:
    """lead → passage of those that lead one; in a few statements for all, as one for each would be most of a search."""
    rows = sql.execute(_LEADS, (json.dumps(list(leads)),)).fetchall()
    members: list[list[_Member]] = [[] for _ in rows]
    for at, *member in sql.execute(_MEMBERS, (json.dumps([row[1:3] for row in rows]),)):
        members[at].append(_Member(*member))
    asked = json.dumps(sorted({row[1] for row in rows}))
    files = {
        number: _File(*row)
        for number, *row in sql.execute(
            "SELECT id, path, digest, title, labels, class, standing FROM files"
            " WHERE id IN (SELECT value FROM json_each(?))",
            (asked,),
        )
    }
    above = tree.ways_up(sql, sorted({own[0].parent_id for own in members}))
    found = {}
    for (lead, file_id, _, before, *beside), own in zip(rows, members, strict=True):
        titles = tuple(one.context_value for one in reversed(above[own[0].parent_id]) if one.context_type == "heading")
        if titles[:1] != (files[file_id].title,):
            titles = (files[file_id].title, *titles)
        found[lead] = Part(lead, files[file_id], own, titles, before in ("root", "heading"), (beside[0], beside[1]))
    return found


def lead_of(sql: sqlite3.Connection, node_id: str) -> int | None:
    """The number of the node that leads the passage in which a node is quoted; None of one from no file."""
    row = sql.execute(
        "SELECT h.seq FROM places p JOIN places q ON q.file_id = p.file_id AND q.passage = p.passage AND q.leads"
        " JOIN nodes h ON h.id = q.node_id WHERE p.node_id = ?",
        (node_id,),
    ).fetchone()
    return None if row is None else int(row[0])


def passage_text(sql: sqlite3.Connection, node_id: str) -> str:
    """The text of the passage that a node is quoted with; of one from no file its own."""
    lead = lead_of(sql, node_id)
    return tree.get(sql, node_id).text if lead is None else read_parts(sql, [lead])[lead].text
