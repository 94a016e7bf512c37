"""A store's SQLite file: many processes, short transactions, no `database is locked`, one version that is known.

Writers queue on a lock file beside the database (`<name>.lock`), where the kernel wakes the next one at once; SQLite's
own busy handler sleeps and may starve a writer. Readers see the last committed state and wait for nobody.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import quote

from hivemind.errors import UnknownVersion, UserError, mend_of
from hivemind.frozen import frozen
from hivemind.fs.atomic import open_own
from hivemind.fs.crash import reached
from hivemind.fs.locks import Lock
from hivemind.fs.records import set_aside


class Connection(sqlite3.Connection):
    """One that is closed as soon as nothing holds it: from Python 3.13 on any other that is left open is warned of."""

    def __del__(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.close()


class Rows(Protocol):
    """What a statement returns."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Sql(Protocol):
    """What runs the statements of a transaction: SQLite's own connection, or that of another database in its place.
    Parameters are marked by `?`."""

    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Rows: ...
    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> object: ...


_Sql = TypeVar("_Sql", covariant=True)
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Transactions(Protocol[_Sql]):
    """What a store reads and writes by: see `Database`, which is one."""

    def read(self) -> AbstractContextManager[_Sql]: ...
    def write(self) -> AbstractContextManager[_Sql]: ...


@frozen
class Schema:
    """The tables of one kind of database, at one version (`PRAGMA user_version`).

    `name` is what people call it; `room` begins its crash points; `error` is raised for all that goes wrong with it;
    `statements` make it; `functions` are (name, number of arguments, function) that the statements call; `damaged`, if given,
    is raised instead of `error` for a file that SQLite cannot make sense of; `lasting` says that it holds what is nowhere
    else: one that is gone or empty, though it was made, is a damaged one; `derived` that all of it follows from other files:
    one of an older version counts as damaged.
    """

    name: str
    room: str
    version: int
    error: type[UserError]
    statements: tuple[str, ...]
    functions: tuple[tuple[str, int, Callable[..., Any]], ...] = ()
    damaged: type[UserError] | None = None
    lasting: bool = False
    derived: bool = False

    def check_file(self, path: str) -> None:
        """Refuse a file that this program does not know, without opening it as a database: it is kept as it is.

        Raises UnknownVersion for a database of another version and `error` for what is no database at all, or none any more.
        """
        if self.lasting and (lost := missing(path)) is not None:
            raise self.spoilt(f"is {lost}", path)
        try:
            with open(open_own(path, os.O_RDONLY), "rb") as file:
                header = file.read(100)
        except FileNotFoundError:
            return
        except UserError as error:
            raise self.spoilt(error.what, path) from None
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror})", where=path) from None
        if header and not header.startswith(b"SQLite format 3\0"):
            raise self.spoilt("is no database", path)
        if len(header) == 100:
            self._check_version(int.from_bytes(header[60:64], "big"), path)

    @property
    def damage(self) -> type[UserError]:
        """What is raised for a damaged file."""
        return self.damaged or self.error

    def spoilt(self, what: str, path: str) -> UserError:
        """The error for a damaged file."""
        return self.damage(what, where=path, mend="hivemind doctor says how to save it")

    def _check_version(self, found: int, path: str) -> None:
        if self.derived and 0 < found < self.version:
            raise self.spoilt(f"is of version {found}", path)
        if found not in (0, self.version):  # 0: being made, or its first page still stands in the write-ahead log
            raise UnknownVersion(
                f"is a {self.name} of version {found}, this program knows version {self.version}",
                where=path,
                mend="use the hivemind that wrote it, or move the file away",
            )

    def is_prepared(self, connection: sqlite3.Connection, path: str) -> bool:
        """Whether the tables are there. Raises UnknownVersion."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        self._check_version(version, path)
        return bool(version == self.version)

    def prepare(self, connection: sqlite3.Connection, path: str) -> None:
        """Make the tables if the database is new. Called with the writers' lock held. Raises as check_file does."""
        if self.is_prepared(connection, path):
            return
        if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise self.error("is a database of another program", where=path, mend="choose another path")
        if path != ":memory:":
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in self.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {self.version}")
            reached(f"{self.room}.schema.written")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_TOOBIG)
_MAGIC = b"SQLite format 3\0"
_NOTE_BYTES = 200
_MARKS = 500  # parameters of one statement
_LEAST_ROOM = 1 << 16  # bytes: what SQLite takes beside a database to begin with


def missing(path: str | os.PathLike[str]) -> str | None:
    """That a database is gone or empty, though one was made here, in words; None if it is there, or never was."""
    try:
        if os.stat(path).st_size:
            return None
        now = "empty"
    except FileNotFoundError:
        now = "gone"
    try:
        with open(f"{os.fspath(path)}.lock", "rb") as file:
            made = file.read(_NOTE_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    return f"{now}, though {made}" if made else None


def note_made(path: str | os.PathLike[str]) -> None:
    """Note that a database was made, where that outlives it: in the file of its writers' lock, which is never deleted."""
    with contextlib.suppress(OSError), open(f"{os.fspath(path)}.lock", "r+b") as file:  # else at the next opening
        if not file.read(1):
            file.write(f"a database was made here on {datetime.now(UTC):%Y-%m-%d at %H:%M} UTC\n".encode())


def is_disk_full(error: sqlite3.Error, path: str | os.PathLike[str]) -> bool:
    """Whether a database's error comes of a full disk, which SQLite may call an I/O error too."""
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        room = os.statvfs(os.path.dirname(os.path.abspath(path)))
        return room.f_bavail * room.f_frsize < _LEAST_ROOM
    return primary == sqlite3.SQLITE_FULL


def unsound(path: str | os.PathLike[str]) -> str | None:
    """What is wrong with the file, in words; None if it is sound, or is yet to be made.

    Reads all of it. Raises OSError if it cannot be read, sqlite3.OperationalError if another program holds it.
    """
    if (lost := missing(path)) is not None:
        return f"it is {lost}"
    try:
        with open(open_own(path, os.O_RDONLY), "rb") as file:
            head = file.read(len(_MAGIC))
    except FileNotFoundError:
        return None
    except UserError as error:
        return f"it {error.what}"
    if not head:
        return None
    if head != _MAGIC:
        return "it is no database any more"
    place = Path(path).absolute()
    # Where nothing can be written SQLite could not make the file that it shares a log with others by; nobody writes there.
    name = f"file:{quote(str(place))}?mode=ro{'' if os.access(place.parent, os.W_OK) else '&immutable=1'}"
    try:
        with closing(sqlite3.connect(name, uri=True, timeout=5)) as database:
            said = [" ".join(str(row[0]).split()) for row in database.execute("PRAGMA quick_check(3)")]
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if (
            code == sqlite3.SQLITE_READONLY_ROLLBACK
        ):  # a transaction was cut short; whoever opens it next undoes that first
            return None
        if (code & 0xFF) not in _DAMAGED:
            raise
        return str(error)
    except UnicodeDecodeError as error:  # a name in its schema is garbled
        return str(error)
    return None if said == ["ok"] else "; ".join(said)


def settle_log(path: str | os.PathLike[str]) -> None:
    """Write the log that a killed process left beside a database into it, and remove the log, unless another process has the
    database open. Raises sqlite3.Error."""
    if os.path.exists(f"{os.fspath(path)}-wal"):
        with closing(sqlite3.connect(path, timeout=0)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def faults(sql: sqlite3.Connection, indexed: str) -> Iterator[str]:
    """One sentence for each thing that SQLite finds wrong in an open database: its pages, its references, its full-text index
    `words` of what is `indexed`, which it checks by an insert. Reads all of it."""
    for (line,) in sql.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield f"SQLite: {line}"
    for table, row, parent, _ in sql.execute("PRAGMA foreign_key_check"):
        yield f"{table}, row {row}: it refers to {parent} that is not there"
    try:
        sql.execute("INSERT INTO words(words, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        yield f"the full-text index does not fit the {indexed} ({error})"


def select_among(
    sql: Sql, statement: str, keys: Iterable[object], before: Sequence[object] = (), after: Sequence[object] = ()
) -> Iterator[Any]:
    """The rows of a statement for many keys, some hundred at once: KEYS in it stands for their marks, between those of the
    parameters `before` and `after`."""
    wanted = list(keys)
    for at in range(0, len(wanted), _MARKS):
        some = wanted[at : at + _MARKS]
        yield from sql.execute(statement.replace("KEYS", f"({','.join('?' * len(some))})"), (*before, *some, *after))


_BUSY_S = 60.0  # how long another program (an SQLite shell) may hold the database before we give up

_LOG_PAGES = 4_000
"""Pages of the write-ahead log (16 MB) from which on a commit also writes them into the database: a page that every
transaction changes is then written there once for many, and a transaction that fills the log by itself is rare."""

_CACHE_KB = 1_000
"""Pages of a database that a process keeps for itself: enough for what one transaction changes. The system keeps the rest,
once for all; each of fifty agents holds its own for each database."""

# A garbled text; a table that every such database has; values that a function of ours can make no sense of; a row that is
# gone though another refers to it (a constraint of a sound database never fails so).
_SPOILT = (
    "Could not decode to UTF-8", "malformed JSON", "no such", "user-defined function raised", "FOREIGN KEY",
    "invalid fts5 file format", "UNIQUE constraint failed: places", "UNIQUE constraint failed: nodes.seq",
)  # fmt: skip


class Database:
    """Connections to one database file, one per process, opened at first use and never carried across a fork.

    `schema` says what stands in it and which errors are raised. The first use raises UnknownVersion for a file of another
    version, and for a damaged one what the schema says.
    """

    def __init__(self, path: str | os.PathLike[str], schema: Schema, *, durable: bool = True) -> None:
        self.path = os.fspath(path)
        self.schema = schema
        self._durable = durable
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._guard = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        self._unchanging = False
        self._depth = 0
        self._writing = False
        self._was_full = False
        self._writers = None if self.path == ":memory:" else Lock(self.path + ".lock")

    def _own(self) -> None:
        """After a fork: forget the parent's connection. Closing it here would take the parent's database from it."""
        if self._pid != os.getpid():
            if self._connection is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            self._start()

    def _open(self) -> sqlite3.Connection:
        """The connection, a new one if the file is no longer the one that was opened: it was mended, or put back."""
        if self._connection is not None and not self._depth and not self._is_current():
            self._connection.close()
            self._connection = None
        if self._connection is None:
            try:
                self._connection = self._connect()
                self._opened = self._look()
            except sqlite3.Error as error:
                raise self._explained(error) from error
            except OSError as error:
                raise self.schema.error(f"cannot be opened ({error.strerror})", where=self.path) from error
        return self._connection

    def _look(self) -> tuple[int, int] | None:
        """Which file bears the name; None if there is none, or nothing in it."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return (found.st_dev, found.st_ino) if found.st_size else None

    def _is_current(self) -> bool:
        return self._writers is None or (self._look() == self._opened and not self._unchanging)

    def _is_in_unwritable_folder(self) -> bool:
        """Whether nothing can be made beside the file, and all of it is in the file: no log of what was written since."""
        folder = os.path.dirname(self.path) or "."
        return os.path.exists(self.path) and not os.access(folder, os.W_OK) and not os.path.exists(self.path + "-wal")

    def _connect(self) -> sqlite3.Connection:
        if self.path != ":memory:":
            self.schema.check_file(self.path)
        # SQLite reads a database with a write-ahead log only where it can make files beside it, or if it is told that the
        # file does not change. It may do that elsewhere, so such a connection is made anew for each reading.
        self._unchanging = self._writers is not None and self._is_in_unwritable_folder()
        connection = sqlite3.connect(
            self.path if self._writers is None else Path(self.path).absolute().as_uri() + self._how(self._writers),
            uri=self._writers is not None,
            timeout=_BUSY_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=Connection,
        )
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            # What each statement would have to take back, should it fail, goes into a file otherwise: 35 KB for a deleted row.
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
            for name, arguments, function in self.schema.functions:
                connection.create_function(name, arguments, function, deterministic=True)
            if self._writers is None:
                self.schema.prepare(connection, self.path)
            elif not self.schema.is_prepared(connection, self.path):  # only then: a reader waits for no writer
                with self._turn():
                    self.schema.prepare(connection, self.path)
            if self._writers is not None and self.schema.lasting:
                note_made(self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _how(self, writers: Lock) -> str:
        """How SQLite is to open the file. Left to itself it makes one that a group may not write, whatever the umask."""
        if self._unchanging:
            return "?immutable=1"
        if os.path.exists(self.path):
            return ""
        writers.make()
        return f"?modeof={quote(os.path.abspath(writers.path))}"

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the database throughout. Raises the schema's error."""
        self._own()
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
                raise self._explained(error) from error
            finally:
                self._depth -= 1
                if connection.in_transaction:
                    connection.execute("ROLLBACK")  # nothing was written

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else writes beside: all of it is committed, or nothing on any error.

        Within another one it is a part of that, undone alone if it fails. Raises the schema's error.
        """
        self._own()
        with self._guard:
            if self._depth:
                assert self._writing, "a write inside a read: the read's snapshot may be old"
                connection = self._open()
                with self._part(connection):
                    yield connection
                return
            with self._turn():
                connection = self._open()  # only now: the file may have been exchanged while we waited
                with self._whole(connection):
                    yield connection

    @property
    def was_made(self) -> bool:
        """Whether there is a database, or was one: reading makes none."""
        return os.path.exists(self.path) or missing(self.path) is not None

    @property
    def is_read_only(self) -> bool:
        """Whether this process may not write into the file, or make files beside it."""
        if self._writers is None:
            return False
        return not all(os.access(place, os.W_OK) for place in (os.path.dirname(self.path) or ".", self.path))

    @property
    def is_nested(self) -> bool:
        """Whether a transaction stands around the one at work. Only for who is within one."""
        return self._depth > 1

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Our turn to write: nobody else does until it is over."""
        if self._writers is None or self._writers.held:
            yield
            return
        try:
            self._writers.acquire()
        except OSError as error:
            what = f"cannot be written to ({error.strerror})"
            raise self.schema.error(what, where=self.path, mend=mend_of(error)) from error
        try:
            yield
        finally:
            self._writers.release()

    @contextmanager
    def _whole(self, connection: sqlite3.Connection) -> Iterator[None]:
        self._depth += 1
        self._writing = True
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield
            reached(f"{self.schema.room}.write.before_commit")
            connection.execute("COMMIT")
            reached(f"{self.schema.room}.write.committed")
            if self._was_full:
                self._shrink_log(connection)
        except sqlite3.Error as error:
            raise self._explained(error) from error
        finally:
            self._depth -= 1
            self._writing = False
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @contextmanager
    def _part(self, connection: sqlite3.Connection) -> Iterator[None]:
        name = f"part{self._depth}"
        self._depth += 1
        connection.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            if connection.in_transaction:  # a full disk may have ended it already
                connection.execute(f"ROLLBACK TO {name}")
            raise
        finally:
            self._depth -= 1
            if connection.in_transaction:
                connection.execute(f"RELEASE {name}")

    def close(self) -> None:
        """Close this process's connection; the next use opens it again."""
        self._own()
        with self._guard:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _shrink_log(self, connection: sqlite3.Connection) -> None:
        """Give back the room of a log that grew while the disk was full; at the next commit, if others read just now."""
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            (others_read, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._was_full = bool(others_read)
        finally:
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_S * 1000:.0f}")

    def _explained(self, error: sqlite3.Error) -> UserError:
        code, kind = getattr(error, "sqlite_errorcode", None), self.schema.error
        primary = None if code is None else code & 0xFF
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            what = f"another program has held it for {_BUSY_S:.0f} s"
            return kind(what, where=self.path, mend="end its transaction (an SQLite shell?) and try again")
        if is_disk_full(error, self.path):
            self._was_full = True
            error.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            return kind("the disk is full; nothing was changed", where=self.path, mend="make room, try again")
        if primary in _DAMAGED or any(sign in str(error) for sign in _SPOILT):
            return self.schema.spoilt(f"is damaged ({error})", self.path)
        return kind(f"failed ({error})", where=self.path)


class DerivedDatabase(Database):
    """One whose rows all follow from files that lie elsewhere: it is set aside where it is damaged, and rebuilt."""

    def soundly(self, use: Callable[[], _T]) -> tuple[_T, str | None]:
        """What `use` returns; if the file is damaged it is set aside first, `use` begins a new one, and a sentence says so."""
        seen = self._look()
        try:
            return use(), None
        except self.schema.damage as error:
            said = f"{os.path.basename(self.path)} {error.what}: {self._set_aside(seen)}"
            _log.warning("%s", said)
            return use(), said

    def set_aside(self) -> str:
        """Rename the file, so that the next use rebuilds it; returns a sentence that says so."""
        return self._set_aside(self._look())

    def _set_aside(self, seen: tuple[int, int] | None) -> str:
        """Rename the file that was seen, unless another program has done so meanwhile."""
        self.close()
        with Lock(f"{self.path}.lock"):
            if seen is None or self._look() != seen:
                return "it was set aside already"
            for end in ("-wal", "-shm"):
                Path(self.path + end).unlink(missing_ok=True)
            return f"set aside as {set_aside(self.path).name}, and rebuilt"


class DatabaseOwner:
    """What keeps its rows in a `database`; a `with` block ends with that closed."""

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
