"""Backups of a store's database, and what takes its place where it is damaged: the newest good backup, with the newer rows
that can still be read. The damaged file is kept. Interruptible: the next call resumes.

SQLite's `.recover` would read more, but the command line of several systems is built without what it needs.
"""

# ruff: noqa: S608 - the names of tables and columns are the program's own; values are always bound
from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from hivemind.errors import UserError
from hivemind.fs.atomic import fsync_file, fsync_folder, move, write
from hivemind.fs.crash import reached
from hivemind.fs.database import Database, unsound
from hivemind.fs.locks import Lock
from hivemind.fs.paths import free_place

REPORT = ".what-was-saved.txt"
"""The end of the name of the file beside a damaged database that says what became of it."""

_EVERY = 3_600.0  # seconds between two backups of a database that changes
_KEPT = 2
_PAGES = 1_000  # copied at once: a writer waits for no more
_WITH_IT = ("-wal", "-shm")
_log = logging.getLogger(__name__)


class Restorable(Protocol):
    """A store, as far as it is to be restored.

    `tables` are those whose newer rows are taken from a damaged file, each with the condition that a row must meet
    to be believed (empty: none). `locks` are the endings of the locks that keep others away, in their order.
    """

    @property
    def database(self) -> Database: ...
    @property
    def tables(self) -> Mapping[str, str]: ...
    @property
    def locks(self) -> Sequence[str]: ...

    def elsewhere(self, path: Path) -> AbstractContextManager[Restorable]:
        """A store of the same kind over another file."""

    def check(self) -> list[str]:
        """What is wrong with the database, one sentence each. May raise the error for damage instead."""

    def rebuild(self) -> None:
        """Rebuild what follows from the rows: the full-text index, counts."""


def next_backup(path: Path, folder: Path) -> float | None:
    """When a database is due for a backup, in seconds since 1970; None where its newest backup is like it."""
    changed = _changed(path)
    newest = next(iter(_backups(path, folder)), None)
    if not changed or (newest is not None and newest.stat().st_mtime_ns >= changed):
        return None
    return 0.0 if newest is None else newest.stat().st_mtime + _EVERY


def back_up(path: Path, folder: Path) -> Path | None:
    """Copy a database into a folder while others use it, check the copy, and keep the last two; returns the new one.

    A backup has the time of the state that it holds, and its name has it in nanoseconds since 1970. None where there is no
    database, or a damaged one: then the backups stay as they are. Raises OSError, sqlite3.OperationalError.
    """
    changed = _changed(path)
    if not changed or unsound(path) is not None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{path.name}.part"
    with Lock(folder / f"{path.name}.lock"):
        _remove(part)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT, 0o666))  # SQLite would give it to nobody of a group to write
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(part)) as copy:
            source.backup(copy, pages=_PAGES)
            copy.execute("PRAGMA journal_mode = DELETE")
        if (wrong := unsound(part)) is not None:
            _log.warning("%s: no backup was made, the copy is damaged (%s)", path.name, wrong)
            _remove(part)
            return None
        fsync_file(part)
        os.utime(part, ns=(changed, changed))
        new = folder / f"{path.name}.{changed:020}"
        move(part, new)
        for old in _backups(path, folder)[_KEPT:]:
            old.unlink(missing_ok=True)
    return new


def _changed(path: Path) -> int:
    """When the database was last written, in nanoseconds since 1970; 0 if there is none, or an empty one."""
    places = (path.with_name(path.name + end) for end in ("", "-wal"))
    found = [place.stat() for place in places if place.exists()]
    return max((one.st_mtime_ns for one in found if one.st_size), default=0) if path.exists() else 0


def _backups(path: Path, folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob(f"{path.name}.[0-9]*"), key=lambda one: one.name, reverse=True)


def restore(store: Restorable, backups: Path, aside: Path, tell: Callable[[str], None]) -> list[str]:
    """Make a database sound again; returns what was done, one sentence each, nothing if it was sound.

    What follows from the rows is rebuilt in place. A damaged file goes, as it is, into a folder below `aside`, with a
    report beside it, and the newest good backup takes its place, or an empty database where there is none. Others may use
    it meanwhile: they wait, and go on with the new one. Raises the store's errors, OSError, sqlite3.OperationalError;
    then nothing is lost.
    """
    path = Path(store.database.path)
    store.database.close()
    with _alone(path, store.locks):
        if (wrong := unsound(path)) is not None:
            return [_exchange(store, path, wrong, backups, aside, tell)]
    found = _problems(store)
    if not found:
        return []
    if _is_rebuilt(store):
        return [f"what follows from the rows of {path.name} was rebuilt ({found[0]})"]
    store.database.close()
    with _alone(path, store.locks):
        return [_exchange(store, path, found[0], backups, aside, tell)]


def _problems(store: Restorable) -> list[str]:
    try:
        return store.check()
    except store.database.schema.damage as error:
        return [error.what]


class _Undone(Exception):
    """Rebuilding did not help: nothing is changed."""


def _is_rebuilt(store: Restorable) -> bool:
    """Rebuild what follows from the rows, if that leaves nothing wrong."""
    with suppress(_Undone, store.database.schema.damage):
        with store.database.write():
            store.rebuild()
            if store.check():
                raise _Undone
        return True
    return False


def _alone(path: Path, locks: Sequence[str]) -> ExitStack:
    """Nobody else writes meanwhile."""
    with ExitStack() as stack:
        for end in locks:
            stack.enter_context(Lock(f"{path}{end}"))
        return stack.pop_all()


def _exchange(
    store: Restorable, path: Path, wrong: str, backups: Path, aside: Path, tell: Callable[[str], None]
) -> str:
    new, room = path.with_name(path.name + ".restored"), store.database.schema.room
    report = "a restoring that was interrupted was brought to its end"
    if not new.exists():
        tell(f"{path.name} is damaged ({wrong}): restoring it")
        kept = free_place(aside / datetime.now(UTC).strftime("%Y-%m-%d") / path.name)
        _set_aside(path, kept)
        part = path.with_name(path.name + ".restoring")
        saved = _replacement(store, path, kept, part, backups)
        when, left = datetime.now(UTC), f"it is kept as {kept}" if kept.exists() else "nothing of it is left"
        report = f"{path.name} was damaged ({wrong}), on {when:%Y-%m-%d at %H:%M} UTC; {left}; {saved}"
        write(kept.with_name(kept.name + REPORT), report + "\n")
        move(part, new)
    reached(f"{room}.restore.saved")
    for end in _WITH_IT:  # before the new one has the name: this log is not its own
        path.with_name(path.name + end).unlink(missing_ok=True)
    reached(f"{room}.restore.unlogged")
    os.replace(new, path)
    fsync_folder(path.parent)
    return report


def _set_aside(path: Path, kept: Path) -> None:
    """Copies of the file and of its log, on the disk; the originals stay until the new database is there."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    for end in ("", "-wal"):
        source = path.with_name(path.name + end)
        if source.exists():
            part = kept.with_name(f"{kept.name}{end}.tmp")
            shutil.copyfile(source, part)
            fsync_file(part)
            move(part, kept.with_name(kept.name + end))
    fsync_folder(kept.parent)


def _replacement(store: Restorable, path: Path, kept: Path, part: Path, backups: Path) -> str:
    """Write the database that takes the place of a damaged one; says what it is made of."""
    work, plain = (part.with_name(part.name + end) for end in (".read", ".plain"))
    try:
        said = _begin(store, path, part, backups)
        for end in ("", "-wal"):
            if kept.with_name(kept.name + end).exists():
                shutil.copyfile(kept.with_name(kept.name + end), work.with_name(work.name + end))
        shutil.copyfile(part, plain)
        newer = _with_newer(store, part, work) if work.exists() else 0
        if newer is None:
            _remove(part)
            shutil.copyfile(plain, part)
        told = "no newer row could be read" if not newer else f"{newer:,} newer rows could be read and were taken over"
        return f"{said}; {told}; what is missing can only come from a copy of yours"
    finally:
        _remove(work)
        _remove(plain)
        for end in (".lock", *_WITH_IT):
            part.with_name(part.name + end).unlink(missing_ok=True)


def _begin(store: Restorable, path: Path, part: Path, backups: Path) -> str:
    """The newest backup that is good, or an empty database, as `part`."""
    for backup in _backups(path, backups):
        _remove(part)
        shutil.copyfile(backup, part)
        if unsound(part) is None and _fits(store, part):
            return f"the backup {backup.name} takes its place"
    _remove(part)
    with store.elsewhere(part) as empty, empty.database.write():
        pass
    return "there is no backup of it, and an empty one takes its place"


def _fits(store: Restorable, part: Path, *, rebuild: bool = False) -> bool:
    try:
        with store.elsewhere(part) as opened:
            if rebuild:
                opened.rebuild()
            return not opened.check()
    except UserError:
        return False


def _with_newer(store: Restorable, part: Path, damaged: Path) -> int | None:
    """Put the rows that can still be read over those of the backup; how many were other, or None where the result does not
    fit together, or holds less than the backup."""
    try:
        with closing(_damaged(damaged)) as source, closing(sqlite3.connect(part, isolation_level=None)) as sql:
            for name, arguments, function in store.database.schema.functions:
                sql.create_function(name, arguments, function, deterministic=True)
            sql.execute("PRAGMA recursive_triggers = ON")  # else a row that is replaced stays in the full-text index
            sql.execute("BEGIN")
            newer = sum(_take(source, sql, table, believed) for table, believed in store.tables.items())
            newer -= _drop_orphans(sql, store.tables)
            sql.execute("COMMIT")
    except sqlite3.Error as error:
        _log.warning("%s: %s", part.name, error)
        return None
    return newer if newer >= 0 and _fits(store, part, rebuild=True) else None


def _damaged(path: Path) -> sqlite3.Connection:
    """A connection to a damaged file, a copy. SQLite refuses one that was cut off, or of whose tables one is garbled, unless
    somebody is about to mend its tables."""
    sql = sqlite3.connect(path, isolation_level=None)
    sql.execute("PRAGMA writable_schema = ON")
    sql.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return sql


def _take(source: sqlite3.Connection, sql: sqlite3.Connection, table: str, believed: str) -> int:
    """Take over the rows of a table that are not there as they are; how many."""
    columns = [row[1] for row in sql.execute(f"PRAGMA table_info({table})")]
    names = ", ".join(columns)
    same = " AND ".join(f"mine.{name} IS given.{name}" for name in columns)
    put = (
        f"INSERT OR REPLACE INTO {table}({names}) SELECT {names} FROM (SELECT {', '.join(f'? AS {name}' for name in columns)})"
        f" AS given WHERE NOT EXISTS (SELECT 1 FROM {table} AS mine WHERE {same}){' AND ' + believed if believed else ''}"
    )
    taken = 0
    for row in _readable(source, f"SELECT {names} FROM {table}"):
        try:
            taken += sql.execute(put, row).rowcount
        except sqlite3.IntegrityError:  # a value that this column cannot have
            continue
    return taken


def _drop_orphans(sql: sqlite3.Connection, tables: Iterable[str]) -> int:
    """Delete the rows that refer to a row which could not be read, and those that refer to these; how many they were."""
    dropped = 0
    statements = [
        f"DELETE FROM {table} WHERE {child} IS NOT NULL AND {child} NOT IN (SELECT {parent} FROM {other})"
        for table in tables
        for _, _, other, child, parent, *_ in sql.execute(f"PRAGMA foreign_key_list({table})")
    ]
    while found := sum(sql.execute(statement).rowcount for statement in statements):
        dropped += found
    return dropped


def _readable(source: sqlite3.Connection, select: str) -> Iterator[tuple[Any, ...]]:
    """The rows before the first damaged page, and those after the last."""
    for order in ("", " ORDER BY rowid DESC"):
        try:
            yield from source.execute(select + order)
            return
        except sqlite3.DatabaseError:
            continue


def _remove(path: Path) -> None:
    for end in ("", *_WITH_IT):
        path.with_name(path.name + end).unlink(missing_ok=True)
