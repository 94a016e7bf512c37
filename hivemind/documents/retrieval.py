"""Finding passages: full text first, then a closer look at the best of them with titles, labels and neighbours."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from hivemind.documents.passage import Passage
from hivemind.documents.query import Asked
from hivemind.documents.question import Fields, Words, ask
from hivemind.documents.ranking import FLOOR, rank
from hivemind.embedding import fused

__all__ = ["passage_text", "search"]

_CANDIDATES = 100
_LOOKED_AT = 1_000
_FRONT_MATTER = 0.5  # what it says is mostly said better below
_NEAR_ENOUGH = 0.45  # the least cosine of a passage that shares too few words with the question


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


def search(sql: sqlite3.Connection, asked: Asked, limit: int, keys: Sequence[str], words: Words) -> list[Passage]:
    """The best passages of the files at or below `keys`, best first; equal ones by path and line."""
    question = ask(sql, asked.text, words)
    if limit <= 0 or not keys:
        return []
    alike = _alike(sql, asked, keys)
    reader = _Reader(sql)
    found = [reader.passage(*row) for row in dict.fromkeys([*_candidates(sql, question.match, keys), *alike])]
    rows = [reader.fields(*where, file, members) for where, file, members in found]
    matches = rank(question, rows, words.places(rows, [term.stem for term in question.terms]))
    texts, whys = {}, {}
    for (where, _, members), match in zip(found, matches, strict=True):
        if match.covered >= FLOOR and match.where.keys() & {"text", "example", "heading", "titles"}:
            texts[where] = match.score * (_FRONT_MATTER if members[0].kind == "frontmatter" else 1.0)
            whys[where] = match.why
    near = {where: cosine for where, cosine in alike.items() if cosine >= _NEAR_ENOUGH or where in texts}
    for where, cosine in near.items():
        whys[where] = "; ".join(filter(None, (whys.get(where), f"its meaning is near ({cosine:.2f})")))
    scores = fused(texts, near)
    passages = [
        reader.quoted(file, members, round(scores[where], 6), asked.told(whys[where]))
        for where, file, members in found
        if where in scores
    ]
    passages.sort(key=lambda passage: (-passage.score, passage.path, passage.start_line, passage.text))
    return passages[:limit]


def passage_text(sql: sqlite3.Connection, node_id: str) -> str:
    """The text of the passage that a node is quoted with; of one from no file its own."""
    row = sql.execute("SELECT file_id, passage FROM places WHERE node_id = ?", (node_id,)).fetchone()
    if row is None:
        return str(sql.execute("SELECT text FROM nodes WHERE id = ?", (node_id,)).fetchone()[0])
    return _Reader.text(_Reader(sql).members(*row))


def _scope(keys: Sequence[str]) -> tuple[str, list[str]]:
    """A condition on a file's path, and its values: the file itself or what is below a folder."""
    where = " OR ".join("f.path = ? OR (f.path >= ? AND f.path < ?)" for _ in keys)
    return f"p.kind NOT IN ('heading', 'root') AND ({where})", [b for key in keys for b in (key, key + "/", key + "0")]


def _candidates(sql: sqlite3.Connection, match: str | None, keys: Sequence[str]) -> list[tuple[int, int]]:
    """(file, passage) of the best full-text hits within the keys."""
    if match is None:
        return []
    where, bounds = _scope(keys)
    best = (
        "SELECT rowid AS seq, rank FROM words WHERE words MATCH ? AND rank MATCH 'bm25(1.0, 0.7)' ORDER BY rank LIMIT ?"
    )
    joined = (
        f"SELECT p.file_id, p.passage FROM ({best}) w CROSS JOIN nodes n ON n.seq = w.seq"
        f" CROSS JOIN places p ON p.node_id = n.id CROSS JOIN files f ON f.id = p.file_id WHERE {where}"
        " ORDER BY w.rank, p.file_id, p.passage LIMIT ?"
    )
    for most in (_LOOKED_AT, -1):  # all of them only where most of the best lie outside of the keys
        rows = sql.execute(joined, (match, most, *bounds, _CANDIDATES)).fetchall()
        if len(rows) == _CANDIDATES:
            break
    return [(int(file_id), int(passage)) for file_id, passage in rows]


def _alike(sql: sqlite3.Connection, asked: Asked, keys: Sequence[str]) -> dict[tuple[int, int], float]:
    """(file, passage) of what is nearest in meaning, with its cosine; nothing without an embedder."""
    if asked.meaning is None:
        return {}
    where, bounds = _scope(keys)
    found: dict[tuple[int, int], float] = {}
    for node_id, cosine in asked.meaning.nearest(sql, _CANDIDATES):
        row = sql.execute(
            f"SELECT p.file_id, p.passage FROM places p JOIN files f ON f.id = p.file_id WHERE p.node_id = ? AND {where}",
            (node_id, *bounds),
        ).fetchone()
        if row is not None:
            found.setdefault((row[0], row[1]), cosine)  # best first: the first is the best
    return found


class _Reader:
    """Reads what belongs to candidates, each thing once."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self._sql = sql
        self._files: dict[int, _File] = {}
        self._members: dict[tuple[int, int], list[_Member]] = {}
        self._above: dict[str, tuple[str, ...]] = {}

    def passage(self, file_id: int, number: int) -> tuple[tuple[int, int], _File, list[_Member]]:
        if file_id not in self._files:
            row = self._sql.execute(
                "SELECT path, digest, root_id, title, labels, class FROM files WHERE id = ?", (file_id,)
            ).fetchone()
            self._files[file_id] = _File(*row)
        return (file_id, number), self._files[file_id], self.members(file_id, number)

    def members(self, file_id: int, number: int) -> list[_Member]:
        where = (file_id, number)
        if where not in self._members:
            rows = self._sql.execute(
                "SELECT n.id, n.parent_id, n.text, p.gap, p.kind, p.start_line, p.end_line, p.number"
                " FROM places p JOIN nodes n ON n.id = p.node_id"
                " WHERE p.file_id = ? AND p.passage = ? AND p.number > 0 ORDER BY p.number",
                where,
            )
            self._members[where] = [_Member(*row) for row in rows]
        return self._members[where]

    @staticmethod
    def text(members: Sequence[_Member]) -> str:
        return "".join(member.text + member.gap for member in members[:-1]) + (members[-1].text if members else "")

    def fields(self, file_id: int, number: int, file: _File, members: Sequence[_Member]) -> Fields:
        titles, labels = self.titles(file, members), f"{file.title} {file.labels} {file.path.replace('_', ' ')}"
        leads = number == 1 or self._kind_before(file_id, members[0].number) == "heading"
        # what stands in a code block of prose is an example of what the prose says
        examples = [one for one in members if one.kind == "code" and file.document_class != "code"]
        said = self.text([one for one in members if one not in examples])
        above = (titles[-1], " / ".join(titles[:-1]), labels)
        return Fields(said, *above, self.near(file_id, number), self.text(examples), leads)

    def _kind_before(self, file_id: int, number: int) -> str:
        row = self._sql.execute("SELECT kind FROM places WHERE file_id = ? AND number = ?", (file_id, number - 1))
        return str(row.fetchone()[0])

    def quoted(self, file: _File, members: Sequence[_Member], score: float, why: str) -> Passage:
        lines, titles = (members[0].start_line, members[-1].end_line), self.titles(file, members)
        return Passage(self.text(members), file.path, *lines, file.digest, score, titles, members[0].node_id, why)

    def near(self, file_id: int, number: int) -> str:
        """The passages before and after, within the same part of the document."""
        own = self.members(file_id, number)
        sides = (self.members(file_id, number - 1), self.members(file_id, number + 1))
        return "\n".join(self.text(side) for side in sides if side and side[0].parent_id == own[0].parent_id)

    def titles(self, file: _File, members: Sequence[_Member]) -> tuple[str, ...]:
        found = self._titles_above(members[0].parent_id)
        return found if found[:1] == (file.title,) else (file.title, *found)

    def _titles_above(self, node_id: str | None) -> tuple[str, ...]:
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
