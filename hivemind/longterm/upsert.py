"""upsert_memory: what a mind says should be remembered, unless it is there already (seed 001, *upsertMemory Tool Schema*)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hivemind.embedding import Vectors
from hivemind.longterm.draft import Draft
from hivemind.longterm.embeddings import UNNAMED
from hivemind.longterm.entry import UpsertMemoryResult
from hivemind.longterm.writing import Meaning, write_entry

__all__ = ["ALIKE", "Upsert", "upsert"]

ALIKE = 0.95
"""The similarity from which on two contents say the same."""
_LOOKED_AT = 8


@dataclass(frozen=True, slots=True)
class Upsert:
    """One call: the namespace's number, the key (None: one is made), what is stored, and which fields were said."""

    space: int
    key: str | None
    draft: Draft
    meaning: Meaning
    said: frozenset[str]
    allow_duplicate: bool
    now: int


def upsert(sql: sqlite3.Connection, asked: Upsert, vectors: Vectors, new_id: Callable[[], str]) -> UpsertMemoryResult:
    """Store it, or say which entry says the same. Within a write, so that two processes cannot both be first."""
    alike = _alike(sql, asked, vectors)
    if alike is not None and asked.key is None and not asked.allow_duplicate:
        other_id, other, similarity = alike
        said = f"not stored: {other!r} says the same already (similarity {similarity:.2f})"
        return UpsertMemoryResult(False, other_id, "duplicate", said, other, other)
    key = asked.key if asked.key is not None else new_id()
    draft = _with_the_rest(sql, asked.space, key, asked)
    _, entry_id, action = write_entry(sql, asked.space, key, draft, asked.meaning, now=asked.now, new_id=new_id)
    message = f"{action} {key!r}"
    if (
        asked.meaning.problem is not None and asked.meaning.model != UNNAMED
    ):  # without an embedder that is as it should be
        message += f"; found by its words only until it is embedded ({asked.meaning.problem})"
    if alike is not None:
        message += f"; {alike[1]!r} says nearly the same (similarity {alike[2]:.2f})"
    return UpsertMemoryResult(True, entry_id, action, message, key, None if alike is None else alike[1])


def _with_the_rest(sql: sqlite3.Connection, space: int, key: str, asked: Upsert) -> Draft:
    """What was not said stays as it is in the entry that is updated."""
    row = sql.execute(
        "SELECT metadata, category, importance, expires_at, parent_id, links FROM entries"
        " WHERE space = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)",
        (space, key, asked.now),
    ).fetchone()
    if row is None:
        return asked.draft
    names = ("metadata", "category", "importance", "expires_at", "parent_id", "links")
    return replace(asked.draft, **{name: old for name, old in zip(names, row, strict=True) if name not in asked.said})


def _alike(sql: sqlite3.Connection, asked: Upsert, vectors: Vectors) -> tuple[str, str, float] | None:
    """(id, key, similarity) of the entry under another key that says the same: word for word, else by meaning."""
    same = sql.execute(
        "SELECT seq FROM entries WHERE digest = ? AND space = ? ORDER BY seq", (asked.draft.digest, asked.space)
    ).fetchall()
    found = _first_other(sql, asked, [(seq, 1.0) for (seq,) in same])
    vector, reach = asked.meaning.vector, _LOOKED_AT
    while found is None and vector is not None:
        near = vectors.nearest(sql, asked.meaning.model, vector, reach, [asked.space])
        found = _first_other(sql, asked, near)
        if len(near) < reach or near[-1][1] < ALIKE:
            break
        reach *= 8  # all of them have expired, or are the entry itself
    return found


def _first_other(
    sql: sqlite3.Connection, asked: Upsert, near: Sequence[tuple[int, float]]
) -> tuple[str, str, float] | None:
    """(id, key, similarity) of the first that is alike, is there, and has another key."""
    for seq, similarity in near:
        if similarity < ALIKE:
            return None
        row = sql.execute(
            "SELECT id, key FROM entries WHERE seq = ? AND key IS NOT ? AND (expires_at IS NULL OR expires_at > ?)",
            (seq, asked.key, asked.now),
        ).fetchone()
        if row is not None:
            return row[0], row[1], min(1.0, similarity)
    return None
