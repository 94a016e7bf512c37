"""Passages: consecutive nodes of one section, about 200 tokens, that are searched and quoted together."""

from __future__ import annotations

import json
import re
import sqlite3
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple

from hivemind.documents import tree
from hivemind.documents.citation import Citation
from hivemind.documents.formats.outline import Piece, line_starts
from hivemind.documents.formats.reading import EXTRACTED_FORMATS, format_of
from hivemind.documents.progress import EMBEDDABLE
from hivemind.frozen import frozen
from hivemind.search import Backlog, Confidence, Item


def embedded_texts(sql: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, str]:
    """Return, by node number (`seq`), the text to embed: the paragraph that begins with the node.

    For a node that has no file, this is the node's own text.
    """
    rows = sql.execute(_PARAGRAPHS, (json.dumps(seqs),)).fetchall()
    texts = {}
    for seq, members in groupby(rows, key=itemgetter(0)):
        _, node_texts, gaps, classes = zip(*members, strict=True)
        text = "".join(map(str.__add__, node_texts[:-1], gaps)) + node_texts[-1]
        texts[seq] = plain_text(text, classes[0])
    return texts


BACKLOG = Backlog(  # without groups: a node keeps its vector when it moves to another document
    key_column="n.seq", from_clause=EMBEDDABLE, texts_of=embedded_texts
)
"""Passages, and nodes without a file, that need vectors."""


_MIN_TOKENS, _MAX_TOKENS = 160, 260  # a passage of at least 160 tokens is complete; none may exceed 260
_MIN_PARAGRAPH, _MAX_PARAGRAPH = 40, 160  # the same for a paragraph, which has its own vector
LEADS, LEADS_PARAGRAPH = 1, 2
"""The role of the first node of a passage, and of the first node of a further paragraph."""

NO_CONFIDENCE = Confidence(0.0, "")
Lines = tuple[int, int]
"""The first and the last line, or page of a PDF."""


@frozen
class Passage:
    """A search result. `text` is the exact content of the file `path` from `start_line` to `end_line` (see Citation).

    `path` is relative to the hive, or absolute outside it. `digest` is the SHA-256 (hex) of the imported file. `titles`
    are the document's title and the headings above the passage, outermost first. Scores of one search are comparable.
    `why` describes the match in words; `confidence` says how far the passage can be trusted as an answer. `quote` has the
    offsets in `text` where the answering sentences begin and end, `quote_lines` their first and last line. `status` is
    the document's declared status (draft, rejected …), or "".
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
    confidence: Confidence = NO_CONFIDENCE
    quote: tuple[int, int] = (0, 0)
    quote_lines: tuple[int, int] = (0, 0)
    status: str = ""

    def cite(self) -> Citation:
        """Return a citation of the passage's answering sentences."""
        return Citation(self.path, *self.quote_lines, self.digest, self.text[slice(*self.quote)])


def line_range(begin: int, end: int, starts: Sequence[int], places: Sequence[Lines] | None = None) -> Lines:
    """Return the first and last line of the part of a text from offset `begin` to `end`.

    `starts` are the offsets of the text's lines. For a text extracted from a file, they are the offsets of its parts,
    and `places` are the lines of these parts in the file.
    """
    first, last = bisect_right(starts, begin) - 1, bisect_right(starts, max(begin, end - 1)) - 1
    if places is None:
        return first + 1, last + 1
    covered = places[first : last + 1]
    return min(place[0] for place in covered), max(place[1] for place in covered)


def group_passages(
    text: str, pieces: Sequence[Piece], tokens: Sequence[int], breaks: Collection[int]
) -> tuple[list[int], list[int]]:
    """Group consecutive pieces into passages of about 200 tokens, and the pieces of a passage into paragraphs.

    Return each piece's passage number, and each piece's role: `LEADS` for the first piece of a passage,
    `LEADS_PARAGRAPH` for the first piece of a further paragraph, 0 for any other piece and for headings. A heading or
    front matter is a separate passage. A new passage begins at each index in `breaks`. A piece after a term or a
    colon joins the previous piece if it fits.
    """
    numbers, roles = list[int](), list[int]()
    number = size = paragraph_size = 0
    for at, piece in enumerate(pieces):
        before = pieces[at - 1] if at else None
        is_announced = before is not None and (
            before.kind == "term" or text[before.start : before.end].rstrip("*_ ").endswith(":")
        )
        if (
            before is None
            or at in breaks
            or {piece.kind, before.kind} & {"heading", "frontmatter"}
            or size + tokens[at] > _MAX_TOKENS
            or (size >= _MIN_TOKENS and not is_announced)
        ):
            number, size, role = number + 1, 0, 0 if piece.kind == "heading" else LEADS
        elif paragraph_size + tokens[at] > _MAX_PARAGRAPH or (paragraph_size >= _MIN_PARAGRAPH and not is_announced):
            role = LEADS_PARAGRAPH
        else:
            role = 0
        paragraph_size = tokens[at] + (0 if role else paragraph_size)
        numbers.append(number)
        roles.append(role)
        size += tokens[at]
    return numbers, roles


_FRONT_MATTER_WEIGHT = 0.5  # a document's body mostly repeats its front matter in more detail
NOT_IN_FORCE_WEIGHT = 0.6
"""The weight of a document with the status draft, rejected or the like."""


class _Member(NamedTuple):
    """A node of a passage. `gap` is the file's text between it and the next node."""

    node_id: str
    parent_id: str
    text: str
    gap: str
    kind: str
    start_line: int
    end_line: int


@frozen
class _PassageFile:
    path: str
    digest: str
    title: str
    labels: str
    document_class: str
    status: str


_MARKUP = re.compile(  # repetitions are bounded: matching takes linear time
    r"!?\[([^\]]{0,300})\]\([^)]{0,1000}\)|:[\w:+.-]{1,40}:`[~!]?([^`<]{0,300}?)(?:\s{0,9}<[^`>]{0,300}>)?`"
    r"|https?://[^\s)>\]]+|\{%.{0,300}?%\}|[*`|]+"
)


@frozen
class PassagePart:
    """A passage with its nodes and file. `lead` is the number (`seq`) of its first node.

    `neighbours` are the leads of the previous and the next passage.
    """

    lead: int
    file: _PassageFile
    members: Sequence[_Member]
    titles: tuple[str, ...]
    opens_section: bool
    neighbours: tuple[int | None, int | None]

    @property
    def text(self) -> str:
        """Return the passage's text, exactly as in the file."""
        return _text(self.members)

    @property
    def item(self) -> Item:
        """Return the passage as an item for the search engine."""
        prose = self.file.document_class != "code"
        examples = [member for member in self.members if prose and member.kind == "code"]
        prose_text = _text([member for member in self.members if member not in examples])
        weight = _FRONT_MATTER_WEIGHT if self.members[0].kind == "frontmatter" else 1.0
        return Item(
            self.lead,
            prose_text,
            self.titles[-1],
            " / ".join(self.titles[:-1]),
            f"{self.file.title} {self.file.labels} {self.file.path.replace('_', ' ')}",
            _text(examples),
            self.opens_section,
            session=self.file.path,
            previous=self.neighbours[0],
            next=self.neighbours[1],
            age=(self.file.path, self.members[0].start_line),
            standing=weight * (NOT_IN_FORCE_WEIGHT if self.file.status else 1.0),
        )

    def to_passage(
        self, score: float, reason: str, confidence: Confidence = NO_CONFIDENCE, quote: tuple[int, int] = (0, 0)
    ) -> Passage:
        """Return the passage as a search result. `quote` has the offsets of the quote (default: the whole text)."""
        quote = quote if any(quote) else (0, len(self.text))
        if self.file.status:
            status_note = f"; its document is {self.file.status}"
            reason, confidence = reason + status_note, replace(confidence, reason=confidence.reason + status_note)
        return Passage(
            self.text, self.file.path, *self._lines(0, len(self.text)), self.file.digest, score, self.titles,
            self.members[0].node_id, reason, confidence, quote, self._lines(*quote), self.file.status,
        )  # fmt: skip

    def _lines(self, begin: int, end: int) -> Lines:
        """Return the first and last line in the file of the passage's text from `begin` to `end`."""
        if format_of(self.file.path) in EXTRACTED_FORMATS:
            sizes = (len(member.text + member.gap) for member in self.members[:-1])
            places = [(member.start_line, member.end_line) for member in self.members]
            return line_range(begin, end, [*accumulate(sizes, initial=0)], places)
        above = self.members[0].start_line - 1
        first, last = line_range(begin, end, line_starts(self.text))
        return above + first, above + last


def plain_text(text: str, document_class: str | None) -> str:
    """Remove the markup of a text; return code and texts without a class unchanged. Link addresses waste tokens."""
    return text if document_class in (None, "code") else _MARKUP.sub(lambda match: match[1] or match[2] or "", text)


def _text(members: Sequence[_Member]) -> str:
    return "".join(member.text + member.gap for member in members[:-1]) + (members[-1].text if members else "")


_LEADS = """
SELECT h.seq, q.file_id, q.passage, (
        SELECT kind FROM places b WHERE b.file_id = q.file_id AND b.passage = q.passage - 1 AND b.number = q.number - 1
    ), (
        SELECT n.seq FROM places b JOIN nodes n ON n.id = b.node_id
        WHERE b.file_id = q.file_id AND b.passage < q.passage AND b.leads = 1 ORDER BY b.passage DESC LIMIT 1
    ), (
        SELECT n.seq FROM places b JOIN nodes n ON n.id = b.node_id
        WHERE b.file_id = q.file_id AND b.passage > q.passage AND b.leads = 1 ORDER BY b.passage LIMIT 1
    ), f.path, f.digest, f.title, f.labels, f.class, f.standing
FROM json_each(?) j CROSS JOIN nodes h ON h.seq = j.value CROSS JOIN places q ON q.node_id = h.id
CROSS JOIN files f ON f.id = q.file_id WHERE q.leads = 1
"""
_PARAGRAPHS = """
SELECT j.value, n.text, coalesce(p.gap, ''), f.class
FROM json_each(?) j CROSS JOIN nodes h ON h.seq = j.value LEFT JOIN places q ON q.node_id = h.id
LEFT JOIN places p ON p.file_id = q.file_id AND p.passage = q.passage AND p.number >= q.number AND p.number < coalesce((
    SELECT min(e.number) FROM places e
    WHERE e.file_id = q.file_id AND e.passage = q.passage AND e.number > q.number AND e.leads
), p.number + 1)
LEFT JOIN files f ON f.id = q.file_id CROSS JOIN nodes n ON n.id = coalesce(p.node_id, h.id) ORDER BY j.value, p.number
"""
_VECTORS = """
SELECT e.seq, h.seq FROM json_each(?) j CROSS JOIN nodes h ON h.seq = j.value JOIN places q ON q.node_id = h.id
JOIN places p ON p.file_id = q.file_id AND p.passage = q.passage AND p.leads JOIN nodes e ON e.id = p.node_id
ORDER BY j.key, p.number
"""
_MEMBERS = """
SELECT j.key, n.id, n.parent_id, n.text, p.gap, p.kind, p.start_line, p.end_line
FROM json_each(?) j CROSS JOIN places p ON p.file_id = j.value ->> 0 AND p.passage = j.value ->> 1 AND p.number > 0
CROSS JOIN nodes n ON n.id = p.node_id ORDER BY j.key, p.number
"""


def read_parts(sql: sqlite3.Connection, leads: Iterable[int]) -> dict[int, PassagePart]:
    """Return the passages whose first nodes have the numbers (`seq`) in `leads`, by this number. Other nodes' numbers
    are skipped.

    A few statements read all passages: one statement per passage would take most of a search's time.
    """
    rows = sql.execute(_LEADS, (json.dumps(list(leads)),)).fetchall()
    members: list[list[_Member]] = [[] for _ in rows]
    for at, *member in sql.execute(_MEMBERS, (json.dumps([row[1:3] for row in rows]),)):
        members[at].append(_Member(*member))
    ancestries = tree.ancestries(sql, sorted({passage[0].parent_id for passage in members}))
    parts = {}
    for (lead, _, _, kind_before, previous, following, *columns), nodes in zip(rows, members, strict=True):
        file, ancestors = _PassageFile(*columns), ancestries[nodes[0].parent_id]
        titles = [node.context_value for node in reversed(ancestors) if node.context_type == "heading"]
        if titles[:1] != [file.title]:
            titles.insert(0, file.title)
        opens_section = kind_before in ("root", "heading")
        parts[lead] = PassagePart(lead, file, nodes, tuple(titles), opens_section, (previous, following))
    return parts


def vector_keys(sql: sqlite3.Connection, leads: Iterable[int]) -> dict[int, int]:
    """Return a mapping for all paragraphs of the passages, in reading order: the number of a paragraph's first node →
    its passage's lead."""
    return dict(sql.execute(_VECTORS, (json.dumps(list(leads)),)).fetchall())


def passage_text(sql: sqlite3.Connection, node_id: str) -> str:
    """Return the text of the node's passage, or the node's own text if there is no file."""
    lead = sql.execute(
        "SELECT h.seq FROM places p JOIN places q ON q.file_id = p.file_id AND q.passage = p.passage AND q.leads = 1"
        " JOIN nodes h ON h.id = q.node_id WHERE p.node_id = ?",
        (node_id,),
    ).fetchone()
    return tree.get(sql, node_id).text if lead is None else read_parts(sql, lead)[lead[0]].text
