"""A store's SQLite file, for many processes with short transactions, which never fail with `database is locked`.

Writers queue on a lock file next to the database (`<name>.lock`), where the kernel wakes the next one at once; SQLite's own
busy handler sleeps and may starve a writer. Readers see the last committed state and never wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, runtime_checkable
from urllib.parse import quote

from hivemind.errors import UnknownVersion, UserError, remedy_of
from hivemind.frozen import frozen
from hivemind.fs.atomic import is_durable, open_regular
from hivemind.fs.crash import crash_point
from hivemind.fs.locks import Lock
from hivemind.fs.postponed import flush_postponed
from hivemind.fs.records import set_aside
from hivemind.logger import logger


class Connection(sqlite3.Connection):
    """A connection that closes when it is garbage-collected. Python 3.13 warns of other connections left open."""

    def __del__(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.close()


class Rows(Protocol):
    """The result of a statement: its rows, to fetch or iterate once."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Sql(Protocol):
    """A connection to SQLite or another database, inside a transaction. In a statement, `?` marks a parameter."""

    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Rows: ...
    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> object: ...


@runtime_checkable
class SqlWithArrays(Sql, Protocol):
    """A connection to a database that takes many keys as one array."""

    def as_array(self, values: Iterable[object]) -> object: ...


_Sql = TypeVar("_Sql", covariant=True)
_T = TypeVar("_T")
_log = logger(__name__)


class Transactions(Protocol[_Sql]):
    """A database as a store sees it: reading and writing transactions."""

    def read(self) -> AbstractContextManager[_Sql]: ...
    def write(self) -> AbstractContextManager[_Sql]: ...


@frozen
class Schema:
    """The tables of one kind of database, at one version (`PRAGMA user_version`).

    * `name`: the kind of database, for messages.
    * `crash_prefix`: the first part of the names of the database's crash points.
    * `error`: the class of all its errors; `damage_error`, if set, is the class for damaged files.
    * `statements`: create the tables.
    * `functions`: SQL functions as (name, number of arguments, function).
    * `irreplaceable`: no other file has the data; a database that disappeared or became empty counts as damaged.
    * `derived`: all data can be rebuilt from other files; an older version counts as damaged, and commits are not synced.
    """

    name: str
    crash_prefix: str
    version: int
    error: type[UserError]
    statements: tuple[str, ...]
    functions: tuple[tuple[str, int, Callable[..., Any]], ...] = ()
    damage_error: type[UserError] | None = None
    irreplaceable: bool = False
    derived: bool = False

    def check_file(self, path: str) -> None:
        """Check a file's header without opening it as a database, which could change it.

        Raises UnknownVersion for another version, and the damage error for a file that is not a database.
        """
        if self.irreplaceable and (loss := describe_loss(path)) is not None:
            raise self.make_damage_error(f"is {loss}", path)
        try:
            with open(open_regular(path, os.O_RDONLY), "rb") as file:
                header = file.read(100)
        except FileNotFoundError:
            return
        except UserError as error:
            raise self.make_damage_error(error.message, path) from None
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror})", location=path) from None
        if header and not header.startswith(b"SQLite format 3\0"):
            raise self.make_damage_error("is not a database", path)
        if len(header) == 100:
            self._check_version(int.from_bytes(header[60:64], "big"), path)

    @property
    def damage_class(self) -> type[UserError]:
        """The class of the errors for damaged files."""
        return self.damage_error or self.error

    def make_damage_error(self, message: str, path: str) -> UserError:
        """Return the error to raise for the damaged file `path`, with the damage described by `message`."""
        return self.damage_class(message, location=path, remedy="hivemind doctor says how to save it")

    def _check_version(self, version: int, path: str) -> None:
        if self.derived and 0 < version < self.version:
            raise self.make_damage_error(f"is of version {version}", path)
        if version not in (0, self.version):  # 0: being created, or page 1 is still in the log
            raise UnknownVersion(
                f"is a {self.name} of version {version}, this program knows version {self.version}",
                location=path,
                remedy="hivemind help hives of another version"
                if version < self.version
                else "use the hivemind that wrote it, or move the file away",
            )

    def is_prepared(self, connection: sqlite3.Connection, path: str) -> bool:
        """Check that the tables exist. Raises UnknownVersion."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        self._check_version(version, path)
        return bool(version == self.version)

    def prepare(self, connection: sqlite3.Connection, path: str) -> None:
        """Create the tables of a new database. Requires the writers' lock. Raises UnknownVersion, `error`."""
        if self.is_prepared(connection, path):
            return
        if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise self.error("is another program's database", location=path, remedy="choose another path")
        if path != ":memory:":
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in self.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {self.version}")
            crash_point(f"{self.crash_prefix}.schema.written")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_TOOBIG)
_MAGIC = b"SQLite format 3\0"
_NOTE_BYTES = 200
_MAX_PARAMETERS = 500  # parameters in one statement
_MIN_FREE_BYTES = 1 << 16  # that SQLite needs for its files next to a database


def describe_loss(path: str | os.PathLike[str]) -> str | None:
    """Return a phrase for the loss of a database that was created here: "gone, though …" or "empty, though …".

    Return None if the database exists, or was never created.
    """
    try:
        if os.stat(path).st_size:
            return None
        state = "empty"
    except FileNotFoundError:
        state = "gone"
    try:
        with open(f"{os.fspath(path)}.lock", "rb") as file:
            creation_note = file.read(_NOTE_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    return f"{state}, though {creation_note}" if creation_note else None


def note_creation(path: str | os.PathLike[str]) -> None:
    """Note in the writers' lock file, which is never deleted, that the database was created."""
    with contextlib.suppress(OSError), open(f"{os.fspath(path)}.lock", "r+b") as file:  # else at the next opening
        if not file.read(1):
            file.write(f"a database was created here on {datetime.now(UTC):%Y-%m-%d at %H:%M} UTC\n".encode())


def is_disk_full(error: sqlite3.Error, path: str | os.PathLike[str]) -> bool:
    """Check whether a full disk caused a database error. SQLite may report it as an I/O error."""
    primary_code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if primary_code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        filesystem = os.statvfs(os.path.dirname(os.path.abspath(path)))
        return filesystem.f_bavail * filesystem.f_frsize < _MIN_FREE_BYTES
    return primary_code == sqlite3.SQLITE_FULL


def describe_damage(path: str | os.PathLike[str]) -> str | None:
    """Describe the damage to a database file. Return None if the file is undamaged or does not exist yet.

    Reads the whole file. Raises OSError if it is unreadable, sqlite3.OperationalError if another program has locked it.
    """
    if (loss := describe_loss(path)) is not None:
        return f"it is {loss}"
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        return None
    except UserError as error:
        return f"it {error.message}"
    if not magic:
        return None
    if magic != _MAGIC:
        return "it is not a database"
    absolute_path = Path(path).absolute()
    # In a read-only folder SQLite cannot create the -shm file for a shared log. No process can write there, so "immutable".
    uri = (
        f"file:{quote(str(absolute_path))}?mode=ro{'' if os.access(absolute_path.parent, os.W_OK) else '&immutable=1'}"
    )
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=5)) as database:
            messages = [" ".join(str(row[0]).split()) for row in database.execute("PRAGMA quick_check(3)")]
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:  # an interrupted transaction, which the next writer rolls back
            return None
        if (code & 0xFF) not in _DAMAGE_CODES:
            raise
        return str(error)
    except UnicodeDecodeError as error:  # a garbled name in the schema
        return str(error)
    return None if messages == ["ok"] else "; ".join(messages)


def settle_log(path: str | os.PathLike[str]) -> None:
    """Write a killed process's log into its database and remove the log, unless another process has the database open.

    Raises sqlite3.Error.
    """
    if os.path.exists(f"{os.fspath(path)}-wal"):
        with closing(sqlite3.connect(path, timeout=0)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def integrity_errors(sql: sqlite3.Connection, content_name: str) -> Iterator[str]:
    """Yield a sentence for each fault that SQLite finds in the pages, the references and the full-text index `words`.

    `content_name` is the noun for the indexed texts. SQLite checks the index in an INSERT, so `sql` must be writable. Reads all
    pages.
    """
    for (line,) in sql.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield f"SQLite: {line}"
    for table, row, parent, _ in sql.execute("PRAGMA foreign_key_check"):
        yield f"{table}, row {row}: it refers to a missing row of {parent}"
    try:
        sql.execute("INSERT INTO words(words, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        yield f"the full-text index does not match the {content_name} ({error})"


def select_by_keys(
    sql: Sql,
    statement: str,
    keys: Iterable[object],
    leading_parameters: Sequence[object] = (),
    trailing_parameters: Sequence[object] = (),
) -> Iterator[Any]:
    """Run a statement for many keys, some hundred at a time, and yield its rows.

    The statement contains `IN KEYS`, which is replaced by a condition for the current keys. Their parameters come between
    `leading_parameters` and `trailing_parameters`.
    """
    key_list = list(keys)
    for start in range(0, len(key_list), _MAX_PARAMETERS):
        batch = key_list[start : start + _MAX_PARAMETERS]
        batch_sql, parameters = f"IN ({','.join('?' * len(batch))})", batch
        if isinstance(sql, SqlWithArrays):
            batch_sql, parameters = "= ANY(?)", [sql.as_array(batch)]
        yield from sql.execute(
            statement.replace("IN KEYS", batch_sql), (*leading_parameters, *parameters, *trailing_parameters)
        ).fetchall()


_BUSY_S = 60.0  # how long to wait for another program (an SQLite shell) that has locked the database

_LOG_PAGES = 4_000
"""Size of the write-ahead log, in pages (16 MB). A commit copies a log that exceeds it into the database: a page that every
transaction changes is copied once for many transactions, and one transaction rarely fills the log."""

_CACHE_KB = 1_000
"""Page cache of a connection: enough for one transaction's changes. The system caches the rest once for all processes,
while each of fifty agents has its own page cache for each database."""

# Error messages that only damage causes: garbled text, a missing table, a value that one of our SQL functions cannot decode,
# a missing row to which another refers, a duplicate of a generated key.
_DAMAGE_MESSAGES = (
    "Could not decode to UTF-8", "malformed JSON", "no such", "user-defined function raised", "FOREIGN KEY",
    "invalid fts5 file format", "UNIQUE constraint failed: places", "UNIQUE constraint failed: nodes.seq",
)  # fmt: skip


class Database:
    """One connection per process to a database file, opened at first use and never used across a fork.

    `schema` names the tables and the errors. The first use raises UnknownVersion for a file of another version, and the
    schema's damage error for a damaged one.
    """

    def __init__(self, path: str | os.PathLike[str], schema: Schema) -> None:
        self.path = os.fspath(path)
        self.schema = schema
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._guard = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._opened_identity: tuple[int, int] | None = None
        self._is_immutable = False
        self._depth = 0
        self._is_writing = False
        self._met_full_disk = False
        self._writer_lock = None if self.path == ":memory:" else Lock(self.path + ".lock")

    def _drop_inherited_connection(self) -> None:
        """After a fork, forget the parent's connection. Closing it here would break it for the parent."""
        if self._pid != os.getpid():
            if self._connection is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            self._reset()

    def _open(self) -> sqlite3.Connection:
        """Return the connection. Reconnect if the file was replaced, for example by a restored one."""
        if self._connection is not None and not self._depth and not self._is_current():
            self._connection.close()
            self._connection = None
        if self._connection is None:
            try:
                self._connection = self._connect()
                self._opened_identity = self._identity()
            except sqlite3.Error as error:
                raise self._to_user_error(error) from error
            except OSError as error:
                raise self.schema.error(f"cannot be opened ({error.strerror})", location=self.path) from error
        return self._connection

    def _identity(self) -> tuple[int, int] | None:
        """Return the file's device and inode, or None if it is missing or empty."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        return (status.st_dev, status.st_ino) if status.st_size else None

    def _is_current(self) -> bool:
        return self._writer_lock is None or (self._identity() == self._opened_identity and not self._is_immutable)

    def _is_in_unwritable_folder(self) -> bool:
        """Check that the file exists in a read-only folder and has no write-ahead log, so it can be opened as immutable."""
        folder = os.path.dirname(self.path) or "."
        return os.path.exists(self.path) and not os.access(folder, os.W_OK) and not os.path.exists(self.path + "-wal")

    def _connect(self) -> sqlite3.Connection:
        if self.path != ":memory:":
            self.schema.check_file(self.path)
        # SQLite reads a WAL database only if it can create files next to it, or if the file is declared immutable. Another
        # machine may still change it, so an immutable connection is reopened for each transaction.
        self._is_immutable = self._writer_lock is not None and self._is_in_unwritable_folder()
        connection = sqlite3.connect(
            self.path
            if self._writer_lock is None
            else Path(self.path).absolute().as_uri() + self._uri_query(self._writer_lock),
            uri=self._writer_lock is not None,
            timeout=_BUSY_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=Connection,
        )
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            is_synced = is_durable(self.path) and not self.schema.derived
            connection.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            # Otherwise each statement writes its undo data to a file: 35 KB for a deleted row.
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
            for name, arguments, function in self.schema.functions:
                connection.create_function(name, arguments, function, deterministic=True)
            if self._writer_lock is None:
                self.schema.prepare(connection, self.path)
            elif not self.schema.is_prepared(connection, self.path):  # only then, because readers never wait
                with self._writer_turn():
                    self.schema.prepare(connection, self.path)
            if self._writer_lock is not None and self.schema.irreplaceable:
                note_creation(self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _uri_query(self, writer_lock: Lock) -> str:
        """Return the query part of the file's URI. With SQLite's `modeof` a new file gets the mode of the lock file."""
        if self._is_immutable:
            return "?immutable=1"
        if os.path.exists(self.path):
            return ""
        writer_lock.create_file()
        return f"?modeof={quote(os.path.abspath(writer_lock.path))}"

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction that sees one state of the database throughout, and yield its connection. Raises the schema's
        error.
        """
        self._drop_inherited_connection()
        with self._guard:
            connection = self._open()
            if self._depth:
                yield connection
                return
            self._depth += 1
            try:
                connection.execute("BEGIN")
                yield connection
            except sqlite3.Error as error:
                raise self._to_user_error(error) from error
            finally:
                self._depth -= 1
                if connection.in_transaction:
                    connection.execute("ROLLBACK")  # it only read

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Begin an exclusive writing transaction and yield its connection. It is committed at the end, or rolled back on any
        error.

        A transaction inside another is a savepoint, which is rolled back alone if it fails. Raises the schema's error.
        """
        self._drop_inherited_connection()
        with self._guard:
            if self._depth:
                assert self._is_writing, "a write inside a read: the read's snapshot may be old"
                connection = self._open()
                with self._savepoint(connection):
                    yield connection
                return
            with self._writer_turn():
                connection = self._open()  # only now: the file may have been replaced during the wait
                with self._transaction(connection):
                    yield connection

    @property
    def was_made(self) -> bool:
        """True if the database exists or once did. Reading creates a missing database; check this first to avoid it."""
        return os.path.exists(self.path) or describe_loss(self.path) is not None

    @property
    def is_read_only(self) -> bool:
        """True if this process lacks the permission to write the file or to create files next to it."""
        if self._writer_lock is None:
            return False
        return not all(os.access(path, os.W_OK) for path in (os.path.dirname(self.path) or ".", self.path))

    @property
    def is_nested(self) -> bool:
        """True if the current transaction is inside another one. Requires a transaction."""
        return self._depth > 1

    @contextmanager
    def _writer_turn(self) -> Iterator[None]:
        """Hold the writers' lock for the duration of a `with` block."""
        if self._writer_lock is None or self._writer_lock.is_held:
            yield
            return
        try:
            self._writer_lock.acquire()
        except OSError as error:
            message = f"cannot be written to ({error.strerror})"
            raise self.schema.error(message, location=self.path, remedy=remedy_of(error)) from error
        try:
            yield
        finally:
            self._writer_lock.release()

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        self._depth += 1
        self._is_writing = True
        try:
            flush_postponed()
            connection.execute("BEGIN IMMEDIATE")
            yield
            crash_point(f"{self.schema.crash_prefix}.write.before_commit")
            connection.execute("COMMIT")
            crash_point(f"{self.schema.crash_prefix}.write.committed")
            if self._met_full_disk:
                self._shrink_log(connection)
        except sqlite3.Error as error:
            raise self._to_user_error(error) from error
        finally:
            self._depth -= 1
            self._is_writing = False
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @contextmanager
    def _savepoint(self, connection: sqlite3.Connection) -> Iterator[None]:
        name = f"part{self._depth}"
        self._depth += 1
        connection.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            if connection.in_transaction:  # a full disk may have rolled it back
                connection.execute(f"ROLLBACK TO {name}")
            raise
        finally:
            self._depth -= 1
            if connection.in_transaction:
                connection.execute(f"RELEASE {name}")

    def close(self) -> None:
        """Close this process's connection; the next use opens it again."""
        self._drop_inherited_connection()
        with self._guard:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _shrink_log(self, connection: sqlite3.Connection) -> None:
        """Truncate a log that grew while the disk was full. If other processes are reading, the next commit tries again."""
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._met_full_disk = bool(is_busy)
        finally:
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_S * 1000:.0f}")

    def _to_user_error(self, error: sqlite3.Error) -> UserError:
        code, error_class = getattr(error, "sqlite_errorcode", None), self.schema.error
        primary_code = None if code is None else code & 0xFF
        if primary_code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            message = f"another program has locked it for {_BUSY_S:.0f} s"
            return error_class(
                message, location=self.path, remedy="end its transaction (an SQLite shell?) and try again"
            )
        if is_disk_full(error, self.path):
            self._met_full_disk = True
            error.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            return error_class(
                "the disk is full; the change was undone", location=self.path, remedy="free some space, then try again"
            )
        if primary_code in _DAMAGE_CODES or any(fragment in str(error) for fragment in _DAMAGE_MESSAGES):
            return self.schema.make_damage_error(f"is damaged ({error})", self.path)
        return error_class(f"failed ({error})", location=self.path)


class DerivedDatabase(Database):
    """A database that can be rebuilt from other files. A damaged one is set aside and rebuilt."""

    def run_with_rebuild(self, operation: Callable[[], _T]) -> tuple[_T, str | None]:
        """Call `operation`. If the file is damaged, set it aside and call `operation` again, which rebuilds it.

        Return the result of `operation`, and a sentence about the damage or None.
        """
        identity = self._identity()
        try:
            return operation(), None
        except self.schema.damage_class as error:
            message = f"{os.path.basename(self.path)} {error.message}: {self._set_aside(identity)}"
            _log.warning("%s", message)
            return operation(), message

    def set_aside(self) -> str:
        """Rename the file, which makes the next use rebuild it. Return a sentence with the new name."""
        return self._set_aside(self._identity())

    def _set_aside(self, expected_identity: tuple[int, int] | None) -> str:
        """If the file still has the expected identity (`_identity`), rename it. If not, another process has replaced it: do
        nothing.

        Return a sentence about the outcome.
        """
        self.close()
        with Lock(f"{self.path}.lock"):
            if expected_identity is None or self._identity() != expected_identity:
                return "another process has already set it aside"
            for suffix in ("-wal", "-shm"):
                Path(self.path + suffix).unlink(missing_ok=True)
            return f"set aside as {set_aside(self.path).name}, and is rebuilt"


class DatabaseOwner:
    """A store that closes its `database` at the end of a `with` block."""

    database: Database

    def close(self) -> None:
        """Close this process's connection; the next use opens it again."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
