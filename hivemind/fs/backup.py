"""Back up a store's database, and restore a damaged one from the newest good backup and the newer rows that are readable.

The damaged file is kept. An interrupted restore is finished by the next call. SQLite's `.recover` would read more rows, but
several systems build SQLite without the module that it needs.
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
from hivemind.fs.crash import crash_point
from hivemind.fs.database import Database, describe_damage
from hivemind.fs.locks import Lock
from hivemind.fs.paths import unused_path

REPORT_SUFFIX = ".what-was-saved.txt"
"""The suffix of the report that is written next to a damaged database."""

_INTERVAL_S = 3_600.0  # seconds between two backups of a changing database
_RETAINED_BACKUPS = 2
_PAGES_AT_ONCE = 1_000  # copied at a time; a writer waits no longer than this takes
_LOG_SUFFIXES = ("-wal", "-shm")
_log = logging.getLogger(__name__)


class Restorable(Protocol):
    """The part of a store that `restore` needs.

    `tables` has a key for each table with newer rows to merge. The value is an SQL condition for the rows, or empty for all
    rows. `locks` are the suffixes of the lock files that exclude other processes, in locking order.
    """

    @property
    def database(self) -> Database: ...
    @property
    def tables(self) -> Mapping[str, str]: ...
    @property
    def locks(self) -> Sequence[str]: ...

    def elsewhere(self, path: Path) -> AbstractContextManager[Restorable]:
        """Open a store of the same kind on another file, `path`."""

    def check(self) -> list[str]:
        """Return the database's faults, one sentence each. May raise the schema's damage error instead."""

    def rebuild(self) -> None:
        """Rebuild the data derived from the rows: the full-text index, counts."""


def next_backup(path: Path, folder: Path) -> float | None:
    """Return when the next backup is due, in seconds since 1970, or None if the newest backup is up to date."""
    modified_ns = _modified_ns(path)
    newest = next(iter(_backups(path, folder)), None)
    if not modified_ns or (newest is not None and newest.stat().st_mtime_ns >= modified_ns):
        return None
    return 0.0 if newest is None else newest.stat().st_mtime + _INTERVAL_S


def back_up(path: Path, folder: Path) -> Path | None:
    """Copy a database, which may be in use, to a folder, check the copy, and keep only the last two backups. Return the new one.

    A backup's mtime, and the nanoseconds since 1970 in its name, are the time of the state that it contains. Return None, and
    leave the backups alone, if the database is missing or damaged. Raises OSError, sqlite3.OperationalError.
    """
    modified_ns = _modified_ns(path)
    if not modified_ns or describe_damage(path) is not None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{path.name}.part"
    with Lock(folder / f"{path.name}.lock"):
        _remove(draft)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o666))  # SQLite would ignore the umask's group write bit
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(draft)) as copy:
            source.backup(copy, pages=_PAGES_AT_ONCE)
            copy.execute("PRAGMA journal_mode = DELETE")
        if (damage := describe_damage(draft)) is not None:
            _log.warning("%s: the backup was discarded because the copy is damaged (%s)", path.name, damage)
            _remove(draft)
            return None
        fsync_file(draft)
        os.utime(draft, ns=(modified_ns, modified_ns))
        backup = folder / f"{path.name}.{modified_ns:020}"
        move(draft, backup)
        for outdated_backup in _backups(path, folder)[_RETAINED_BACKUPS:]:
            outdated_backup.unlink(missing_ok=True)
    return backup


def _modified_ns(path: Path) -> int:
    """Return when the database was last written, in nanoseconds since 1970; 0 if it is missing or empty."""
    paths = (path.with_name(path.name + suffix) for suffix in ("", "-wal"))
    statuses = [candidate.stat() for candidate in paths if candidate.exists()]
    return max((status.st_mtime_ns for status in statuses if status.st_size), default=0) if path.exists() else 0


def _backups(path: Path, folder: Path) -> list[Path]:
    """Return the backups of a database, newest first."""
    return sorted(folder.glob(f"{path.name}.[0-9]*"), key=lambda backup: backup.name, reverse=True)


def restore(store: Restorable, backups: Path, aside_folder: Path, announce: Callable[[str], None]) -> list[str]:
    """Repair a damaged database. Return a sentence for each repair; [] if the database was sound.

    Damaged derived data is rebuilt in place. A damaged file is copied, with a report, to a folder in `aside_folder`, and replaced
    by the newest good backup, or by an empty database if there is none. Other processes wait meanwhile, then continue with the
    new file. `announce` is called with a sentence when a replacement begins. Raises the store's errors, OSError,
    sqlite3.OperationalError; an error loses no data.
    """
    path = Path(store.database.path)
    store.database.close()
    with _lock_all(path, store.locks):
        if (damage := describe_damage(path)) is not None:
            return [_replace_damaged(store, path, damage, backups, aside_folder, announce)]
    problems = _problems(store)
    if not problems:
        return []
    if _rebuild(store):
        return [f"the data derived from the rows of {path.name} was rebuilt ({problems[0]})"]
    store.database.close()
    with _lock_all(path, store.locks):
        return [_replace_damaged(store, path, problems[0], backups, aside_folder, announce)]


def _problems(store: Restorable) -> list[str]:
    try:
        return store.check()
    except store.database.schema.damage_class as error:
        return [error.message]


class _Undone(Exception):
    """Raised inside a rebuild that did not repair the database, to roll it back."""


def _rebuild(store: Restorable) -> bool:
    """Rebuild the derived data. If the store then passes its check, commit and return True. If not, roll back and
    return False.
    """
    with suppress(_Undone, store.database.schema.damage_class):
        with store.database.write():
            store.rebuild()
            if store.check():
                raise _Undone
        return True
    return False


def _lock_all(path: Path, locks: Sequence[str]) -> ExitStack:
    """Take all of a store's locks, which keeps other writers out. Closing the returned stack releases them."""
    with ExitStack() as stack:
        for suffix in locks:
            stack.enter_context(Lock(f"{path}{suffix}"))
        return stack.pop_all()


def _replace_damaged(
    store: Restorable, path: Path, damage: str, backups: Path, aside_folder: Path, announce: Callable[[str], None]
) -> str:
    restored_path, room = path.with_name(path.name + ".restored"), store.database.schema.crash_prefix
    report = "an interrupted restore was finished"
    if not restored_path.exists():
        announce(f"{path.name} is damaged ({damage}): restoring it")
        aside_path = unused_path(aside_folder / datetime.now(UTC).strftime("%Y-%m-%d") / path.name)
        _copy_aside(path, aside_path)
        draft = path.with_name(path.name + ".restoring")
        contents_summary = _build_replacement(store, path, aside_path, draft, backups)
        now, aside_summary = datetime.now(UTC), f"kept as {aside_path}" if aside_path.exists() else "the file was lost"
        report = (
            f"{path.name} was damaged ({damage}), on {now:%Y-%m-%d at %H:%M} UTC; {aside_summary}; {contents_summary}"
        )
        write(aside_path.with_name(aside_path.name + REPORT_SUFFIX), report + "\n")
        move(draft, restored_path)
    crash_point(f"{room}.restore.saved")
    for suffix in _LOG_SUFFIXES:  # before the rename: the old log does not belong to the new file
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    crash_point(f"{room}.restore.unlogged")
    os.replace(restored_path, path)
    fsync_folder(path.parent)
    return report


def _copy_aside(path: Path, aside_path: Path) -> None:
    """Copy a database and its log to `aside_path`, and sync the copies. The originals stay until they are replaced."""
    aside_path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", "-wal"):
        source = path.with_name(path.name + suffix)
        if source.exists():
            partial_copy = aside_path.with_name(f"{aside_path.name}{suffix}.tmp")
            shutil.copyfile(source, partial_copy)
            fsync_file(partial_copy)
            move(partial_copy, aside_path.with_name(aside_path.name + suffix))
    fsync_folder(aside_path.parent)


def _build_replacement(store: Restorable, path: Path, aside_path: Path, draft: Path, backups: Path) -> str:
    """Write the database that replaces a damaged one to `draft`. Return a sentence about its contents.

    `aside_path` is the copy of the damaged one, `path` the database itself.
    """
    damaged_copy, backup_copy = (draft.with_name(draft.name + end) for end in (".read", ".plain"))
    try:
        origin = _copy_newest_backup(store, path, draft, backups)
        for suffix in ("", "-wal"):
            if aside_path.with_name(aside_path.name + suffix).exists():
                shutil.copyfile(
                    aside_path.with_name(aside_path.name + suffix), damaged_copy.with_name(damaged_copy.name + suffix)
                )
        shutil.copyfile(draft, backup_copy)
        newer_count = _merge_newer_rows(store, draft, damaged_copy) if damaged_copy.exists() else 0
        if newer_count is None:
            _remove(draft)
            shutil.copyfile(backup_copy, draft)
        newer_summary = (
            "no newer rows could be read"
            if not newer_count
            else f"{newer_count:,} newer rows were recovered from the damaged file"
        )
        return f"{origin}; {newer_summary}; anything still missing can only come from a copy of yours"
    finally:
        _remove(damaged_copy)
        _remove(backup_copy)
        for suffix in (".lock", *_LOG_SUFFIXES):
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _copy_newest_backup(store: Restorable, path: Path, draft: Path, backups: Path) -> str:
    """Write the newest good backup, or an empty database, to `draft`. Return a sentence that says which."""
    for backup in _backups(path, backups):
        _remove(draft)
        shutil.copyfile(backup, draft)
        if describe_damage(draft) is None and _is_consistent(store, draft):
            return f"the backup {backup.name} replaces it"
    _remove(draft)
    with store.elsewhere(draft) as empty, empty.database.write():
        pass
    return "no backup exists, and an empty database replaces it"


def _is_consistent(store: Restorable, path: Path, *, rebuild: bool = False) -> bool:
    try:
        with store.elsewhere(path) as candidate:
            if rebuild:
                candidate.rebuild()
            return not candidate.check()
    except UserError:
        return False


def _merge_newer_rows(store: Restorable, draft: Path, damaged_copy: Path) -> int | None:
    """Write the readable rows of the damaged file over those of the backup. Return the number of rows that differed.

    Return None if the merged database is inconsistent, or has fewer rows than the backup.
    """
    try:
        with (
            closing(_open_damaged(damaged_copy)) as source,
            closing(sqlite3.connect(draft, isolation_level=None)) as sql,
        ):
            for name, arguments, function in store.database.schema.functions:
                sql.create_function(name, arguments, function, deterministic=True)
            sql.execute("PRAGMA recursive_triggers = ON")  # otherwise replaced rows stay in the full-text index
            sql.execute("BEGIN")
            newer_count = sum(_merge_table(source, sql, table, condition) for table, condition in store.tables.items())
            newer_count -= _drop_orphans(sql, store.tables)
            sql.execute("COMMIT")
    except sqlite3.Error as error:
        _log.warning("%s: %s", draft.name, error)
        return None
    return newer_count if newer_count >= 0 and _is_consistent(store, draft, rebuild=True) else None


def _open_damaged(path: Path) -> sqlite3.Connection:
    """Open a copy of a damaged file. With `writable_schema` SQLite also opens truncated files and garbled schemas."""
    sql = sqlite3.connect(path, isolation_level=None)
    sql.execute("PRAGMA writable_schema = ON")
    sql.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return sql


def _merge_table(source: sqlite3.Connection, sql: sqlite3.Connection, table: str, condition: str) -> int:
    """Copy the rows of a table in `source` that are missing or different in `sql`. Return their number.

    `condition` is an SQL condition for the rows to copy, or empty for all rows.
    """
    columns = [row[1] for row in sql.execute(f"PRAGMA table_info({table})")]
    names = ", ".join(columns)
    equality = " AND ".join(f"mine.{name} IS given.{name}" for name in columns)
    insert = (
        f"INSERT OR REPLACE INTO {table}({names}) SELECT {names} FROM (SELECT {', '.join(f'? AS {name}' for name in columns)})"
        f" AS given WHERE NOT EXISTS (SELECT 1 FROM {table} AS mine WHERE {equality}){' AND ' + condition if condition else ''}"
    )
    row_count = 0
    for row in _readable_rows(source, f"SELECT {names} FROM {table}"):
        try:
            row_count += sql.execute(insert, row).rowcount
        except sqlite3.IntegrityError:  # a value that this column does not allow
            continue
    return row_count


def _drop_orphans(sql: sqlite3.Connection, tables: Iterable[str]) -> int:
    """Delete rows that refer to missing rows, repeatedly until there are none. Return the number of deleted rows."""
    deleted_count = 0
    statements = [
        f"DELETE FROM {table} WHERE {child} IS NOT NULL AND {child} NOT IN (SELECT {parent} FROM {parent_table})"
        for table in tables
        for _, _, parent_table, child, parent, *_ in sql.execute(f"PRAGMA foreign_key_list({table})")
    ]
    while batch_count := sum(sql.execute(statement).rowcount for statement in statements):
        deleted_count += batch_count
    return deleted_count


def _readable_rows(source: sqlite3.Connection, select: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows before the first damaged page, then the rows after the last damaged page."""
    for order in ("", " ORDER BY rowid DESC"):
        try:
            yield from source.execute(select + order)
            return
        except sqlite3.DatabaseError:
            continue


def _remove(path: Path) -> None:
    for suffix in ("", *_LOG_SUFFIXES):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
