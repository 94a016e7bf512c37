"""What entries have to do with each other: links by relation, children by `parent_id`, and what entries said before."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace

from hivemind.longterm.arguments import check_name
from hivemind.longterm.draft import check_key
from hivemind.longterm.entry import MemoryEntry
from hivemind.longterm.errors import EntryInvalid, row_of
from hivemind.longterm.moment import as_time
from hivemind.longterm.rows import ALIVE, fetch, fetch_key, object_of

__all__ = ["children_of", "history_of", "linked_from", "set_link"]


def history_of(sql: sqlite3.Connection, seq: int, entry: MemoryEntry) -> list[MemoryEntry]:
    """What an entry said, oldest first; the last one is what it says now."""
    before = []
    for content, metadata, category, importance, updated, expires, parent_id, links, version in sql.execute(
        "SELECT content, metadata, category, importance, updated_at, expires_at, parent_id, links, version"
        " FROM versions WHERE seq = ? ORDER BY version",
        (seq,),
    ):
        with row_of(f"version {version} of entry {entry.key!r}"):
            said = replace(
                entry,
                content=content,
                metadata=object_of(metadata),
                embedding=None,
                category=category,
                importance=importance,
                updated_at=as_time(updated),
                expires_at=None if expires is None else as_time(expires),
                parent_id=parent_id,
                links=object_of(links),
                version=version,
            )
        before.append(said)
    return [*before, entry]


def children_of(sql: sqlite3.Connection, space: int, entry: MemoryEntry, now: int) -> list[MemoryEntry]:
    """The entries of the namespace whose parent this is, oldest first."""
    rows = sql.execute(
        f"SELECT e.seq FROM entries e WHERE e.parent_id = ? AND e.space = ? AND {ALIVE}", (entry.id, space, now)
    )
    return [child for _, child in sorted(fetch(sql, [seq for (seq,) in rows], now), key=lambda pair: pair[0])]


def linked_from(sql: sqlite3.Connection, space: int, links: Mapping[str, str], now: int) -> dict[str, MemoryEntry]:
    """The entries that links name, by relation; a link to what is not there (any more) is left out."""
    found = {relation: fetch_key(sql, space, key, now) for relation, key in links.items()}
    return {relation: pair[1] for relation, pair in found.items() if pair is not None}


def set_link(sql: sqlite3.Connection, seq: int, links: Mapping[str, str], relation: str, key: str | None) -> None:
    """Let an entry name another by a relation, or with None no longer. That is no new version of it."""
    if not isinstance(relation, str) or not relation.strip():
        raise EntryInvalid(f"{relation!r} is no relation", mend='a word, such as "previous"')
    check_name(relation, "the relation")
    kept = {name: one for name, one in links.items() if name != relation}
    if key is not None:
        kept[relation] = check_key(key)
    sql.execute("UPDATE entries SET links = ? WHERE seq = ?", (json.dumps(kept, ensure_ascii=False), seq))
