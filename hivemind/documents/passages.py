"""Passages: nodes of a file that are read and quoted together, some 200 tokens of one section (spec 9, *Indexing*).

A passage goes by the number (`seq`) of its first node, its lead. A node from no file is a passage of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hivemind.documents.passage import NONE, Passage
from hivemind.search import Confidence, Item

__all__ = ["Part", "Reader", "passage_text"]

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
        leads = number == 1 or self._kind_before(file_id, members[0].number) == "heading"
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

    def _kind_before(self, file_id: int, number: int) -> str:
        row = self._sql.execute("SELECT kind FROM places WHERE file_id = ? AND number = ?", (file_id, number - 1))
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
