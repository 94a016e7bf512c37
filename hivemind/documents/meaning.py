"""Vectors of passages, and of nodes from no file: what waits for one, and what is embedded of it (spec 9, *Indexing*)."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence

from hivemind.documents.passages import read_parts
from hivemind.embedding import Embedder, Meaning, put_vectors
from hivemind.search import Waiting, keep_parts

__all__ = ["count_waiting", "drop_meanings", "how_far", "keep", "waiting"]

_PER_SECOND = 10.0  # passages of some 200 tokens, by one core that is free: a guess, until it is measured
_ALL = 0  # the group of every vector: a node may move to another document and keeps its vector
_WAITS = (
    " FROM nodes n LEFT JOIN places p ON p.node_id = n.id LEFT JOIN vectors v ON v.key = n.seq"
    " WHERE n.text <> '' AND (p.node_id IS NULL OR p.leads)"
    " AND (v.key IS NULL OR v.model <> ? OR length(v.vector) <> ?)"
)
_KNOWN = (
    "SELECT count(*) FROM nodes n LEFT JOIN places p ON p.node_id = n.id"
    " WHERE n.text <> '' AND (p.node_id IS NULL OR p.leads)"
)


def count_waiting(sql: sqlite3.Connection, embedder: Embedder | None) -> tuple[int, int]:
    """How many passages and other nodes have no vector of this embedder's model yet (all without one), and of how many."""
    (total,) = sql.execute(_KNOWN).fetchone()
    if embedder is None:
        return int(total), int(total)
    (found,) = sql.execute("SELECT count(*)" + _WAITS, (embedder.name, 4 * embedder.dimension)).fetchone()
    return int(found), int(total)


def how_far(known: int, total: int, per_second: float = _PER_SECOND) -> str:
    """How many passages are known by their meaning, in words, and how long the others may take."""
    if known >= total:
        return f"all {total:,} passages by meaning"
    minutes = max(1, round((total - known) / per_second / 60))
    return f"{known:,} of {total:,} passages by meaning, about {minutes:,} min left"


def waiting(
    sql: sqlite3.Connection, embedder: Embedder, after: int, limit: int, among: Sequence[int] | None = None
) -> list[Waiting]:
    """What has no vector yet, oldest first, beyond the seq `after`; or those of some seqs."""
    only = "" if among is None else f" AND n.seq IN ({','.join(map(str, among))})"
    rows = sql.execute(
        f"SELECT n.seq{_WAITS} AND n.seq > ?{only} ORDER BY n.seq LIMIT ?",
        (embedder.name, 4 * embedder.dimension, after, limit),
    )
    return [Waiting(seq, text, _digest(text)) for seq, text in _meant(sql, [seq for (seq,) in rows]).items()]


def _meant(sql: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, str]:
    """What is embedded of each: a passage with its titles, another node's own text."""
    parts = read_parts(sql, seqs)
    rows = sql.execute(
        "SELECT seq, text FROM nodes WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq", (json.dumps(seqs),)
    )
    return {seq: parts[seq].meant if seq in parts else text for seq, text in rows}


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def keep(sql: sqlite3.Connection, model: str, found: Sequence[tuple[Waiting, Meaning]]) -> None:
    """Keep what says still what it said."""
    now = _meant(sql, [one.id for one, _ in found])
    for one, meaning in found:
        if now.get(one.id) == one.text:
            put_vectors(sql, model, [(one.id, _ALL, meaning.vector)])
            keep_parts(sql, one.id, model, meaning.parts)


def drop_meanings(sql: sqlite3.Connection, node_ids: Iterable[str]) -> None:
    """Passages that these nodes led are others now."""
    for node_id in node_ids:
        sql.execute("DELETE FROM vectors WHERE key = (SELECT seq FROM nodes WHERE id = ?)", (node_id,))
