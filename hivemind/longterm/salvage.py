"""What can still be read of a damaged database, and a sound one made of it (README, *A damaged database*)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hivemind.embedding import VectorTable, pack
from hivemind.fs.salvage import open_damaged, rows_by_id, rows_of
from hivemind.longterm.draft import check_key, check_vector, digest_of
from hivemind.longterm.errors import EntryInvalid, StoreDamaged
from hivemind.longterm.moment import FIRST, LAST
from hivemind.longterm.namespace import Namespace, check_namespace, decoded, encoded
from hivemind.longterm.rows import object_of
from hivemind.longterm.schema import PLACES

__all__ = ["Salvaged", "read_damaged", "write_salvaged"]

_IDS = (  # whatever knows entries by their number: another tree of pages may be whole where one is not
    "SELECT seq FROM entries ORDER BY seq",
    "SELECT seq FROM entries ORDER BY seq DESC",
    "SELECT seq FROM entries INDEXED BY sqlite_autoindex_entries_1",
    "SELECT seq FROM entries INDEXED BY entries_digest",
    "SELECT id FROM words_docsize",
    "SELECT key FROM vectors_changes",
)
_KEYS = "SELECT seq, space, key FROM entries INDEXED BY sqlite_autoindex_entries_2"
_PATHS = (
    "SELECT id, path FROM namespaces ORDER BY id",
    "SELECT id, path FROM namespaces ORDER BY id DESC",
    "SELECT id, path FROM namespaces INDEXED BY sqlite_autoindex_namespaces_1",
)
_ENTRY = (
    "seq, id, space, key, content, digest, metadata, category, importance, created_at, updated_at, expires_at, version,"
    " parent_id, links, wants, problem"
)
_VERSION = "seq, version, content, metadata, category, importance, updated_at, expires_at, parent_id, links"
_GIVEN = "SELECT g.vector, v.model, v.vector FROM given g JOIN vectors v ON v.key = g.seq WHERE g.seq = ?"
_USERS = "SELECT id, name, created_at FROM users"

_VECTORS = VectorTable("vectors")
Row = tuple[Any, ...]


@dataclass(slots=True)
class Salvaged:
    """What was read, as rows. `lost` are (namespace, key) of entries that are known to have been there and could not be
    read; `unfit` counts entries that do not say what they said when they were written, as far as can be seen; `strayed`
    entries whose namespace is lost."""

    spaces: dict[int, Namespace] = field(default_factory=dict)
    entries: dict[int, Row] = field(default_factory=dict)
    versions: list[Row] = field(default_factory=list)
    given: list[tuple[int, bytes, str]] = field(default_factory=list)
    users: list[Row] = field(default_factory=list)
    lost: list[tuple[Namespace, str]] = field(default_factory=list)
    unfit: int = 0
    strayed: int = 0


def read_damaged(path: str) -> Salvaged:
    """Everything in the database file `path` (a copy: it may be changed by reading) that makes sense."""
    found = Salvaged()
    with open_damaged(path) as sql:
        keys = {seq: (space, key) for seq, space, key in rows_of(sql, _KEYS) if _is_number(seq)}
        ids = {seq for statement in _IDS for (seq,) in rows_of(sql, statement) if _is_number(seq)} | keys.keys()
        _read_spaces(sql, found)
        for row in rows_by_id(sql, f"SELECT {_ENTRY} FROM entries", sorted(ids)):
            if (entry := _entry(row)) is not None:
                found.entries[row[0]] = entry
                found.unfit += entry[4:8] != row[4:8]
        for seq, (space, key) in sorted(keys.items()):
            if seq not in found.entries and isinstance(key, str):
                found.lost.append((found.spaces.get(space) or _nameless(space), key))
        for seq, entry in found.entries.items():
            rows = rows_of(sql, f"SELECT {_VERSION} FROM versions WHERE seq = ?", (seq,))
            found.versions += [row for row in rows if _is_version(row)]
            found.given += _given(sql, entry)
        found.users = [row for row in rows_of(sql, _USERS) if _is_user(row)]
    return found


def _read_spaces(sql: sqlite3.Connection, found: Salvaged) -> None:
    for statement in _PATHS:
        for space, path in rows_of(sql, statement):
            try:
                found.spaces.setdefault(space, check_namespace(decoded(path)))
            except (StoreDamaged, EntryInvalid, TypeError):
                continue  # it is no name any more: its entries get one


def _nameless(space: int) -> Namespace:
    """Where entries go whose namespace is lost: nobody's, so that no wall falls."""
    return ("recovered", f"namespace-{space}")


def _entry(row: Row) -> Row | None:
    """The row as an entry may stand; None if it cannot be one."""
    seq, entry_id, space, key, content, _, metadata, category, importance, created, updated, expires, *rest = row
    version, parent_id, links, wants, _ = rest
    try:
        check_key(key)
    except EntryInvalid:
        return None
    if seq // PLACES != space or not (_is_text(entry_id) and _is_text(content)):
        return None
    times = [moment for moment in (created, updated) if _is_time(moment)] or [0]
    weighs = isinstance(importance, int | float) and 0 <= importance <= 1
    return (
        seq, entry_id, space, key, content, digest_of(content), _object(metadata),
        category if _is_text(category) else None, float(importance) if weighs else None, times[0], times[-1],
        expires if _is_time(expires) else None, version if _is_number(version) and version > 0 else 1,
        parent_id if _is_text(parent_id) else None, _object(links, keys=True), int(wants != 0), None,
    )  # fmt: skip


def _is_version(row: Row) -> bool:
    seq, version, content, metadata, category, importance, updated, expires, parent_id, links = row
    return (
        (_is_number(seq) and _is_number(version) and version > 0 and _is_text(content) and _is_time(updated))
        and (_object(metadata) == metadata and _object(links, keys=True) == links)
        and all(text is None or _is_text(text) for text in (category, parent_id))
        and (expires is None or _is_time(expires))
        and (importance is None or isinstance(importance, float))
    )


def _is_user(row: Row) -> bool:
    return _is_text(row[0]) and _is_text(row[1]) and _is_time(row[2])


def _given(sql: sqlite3.Connection, entry: Row) -> Iterator[tuple[int, bytes, str]]:
    """(seq, float32 bytes, model) of the embedding that a caller gave, if it and its packed form still agree."""
    for given, model, packed in rows_of(sql, _GIVEN, (entry[0],)):
        if isinstance(given, bytes) and len(given) % 4 == 0 and isinstance(model, str):
            try:
                size = len(given) // 4
                fits = pack(array("f", check_vector(array("f", given), size)), size) == packed
            except (EntryInvalid, ValueError):
                fits = False
            if fits:
                yield entry[0], given, model


def _object(text: object, *, keys: bool = False) -> str:
    """A JSON object as it is (with `keys`: of texts), `{}` for what is none."""
    try:
        found = object_of(text) if isinstance(text, str) else None
    except StoreDamaged:
        found = None
    sound = isinstance(found, dict) and (not keys or all(isinstance(one, str) for one in found.values()))
    return str(text) if sound else "{}"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: object) -> bool:
    return isinstance(value, int)


def _is_time(value: object) -> bool:
    return isinstance(value, int) and FIRST <= value <= LAST


def write_salvaged(sql: sqlite3.Connection, found: Salvaged) -> None:
    """Put what was read into a new, empty database. Vectors are left out: they are computed anew from the contents."""
    spaces = {entry[2] for entry in found.entries.values()}
    found.strayed = sum(entry[2] not in found.spaces for entry in found.entries.values())
    paths = [(space, encoded(found.spaces.get(space) or _nameless(space))) for space in sorted(spaces)]
    sql.executemany("INSERT INTO namespaces(id, path) VALUES (?, ?)", paths)
    sql.execute("INSERT INTO unindexed VALUES (1)")
    for seq in sorted(found.entries):
        if not _insert(
            sql, "entries", _ENTRY, found.entries[seq]
        ):  # its id or its key is another's: one of them is garbled
            found.lost.append((found.spaces.get(seq // PLACES) or _nameless(seq // PLACES), found.entries.pop(seq)[3]))
    sql.execute("INSERT INTO words(words) VALUES ('rebuild')")
    sql.execute("DELETE FROM unindexed")
    sql.execute("UPDATE entries SET parent_id = NULL WHERE parent_id NOT IN (SELECT id FROM entries)")
    for version in found.versions:
        if version[0] in found.entries:
            _insert(sql, "versions", _VERSION, version)
    for seq, given, model in found.given:
        if seq in found.entries:
            sql.execute("INSERT INTO given VALUES (?, ?)", (seq, given))
            _VECTORS.put(sql, model, [(seq, seq // PLACES, pack(array("f", given), len(given) // 4))])
    for user in found.users:
        _insert(sql, "users", "id, name, created_at", user)


def _insert(sql: sqlite3.Connection, table: str, columns: str, row: Sequence[Any]) -> bool:
    marks = ", ".join("?" * len(row))
    return sql.execute(f"INSERT OR IGNORE INTO {table}({columns}) VALUES ({marks})", row).rowcount > 0
