"""A PostgreSQL database in the place of a SQLite file: one connection a process, short transactions, one version that is
known.

What is written takes its turn: writers of one schema queue on an advisory lock, which the server releases when their
transaction or their connection ends. Readers see one committed state and wait for nobody. A connection that was lost is
made anew at the next transaction; what was under way fails, and nothing of it is stored.
"""

# ruff: noqa: S608 - names in statements are this program's own constants
from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from hivemind.boundary import boundary
from hivemind.errors import UnknownVersion, UserError
from hivemind.frozen import frozen
from hivemind.fs.crash import reached

if TYPE_CHECKING:
    import psycopg

_SCHEMES = ("postgresql", "postgres")
_SECRET = ("password", "sslpassword")
_DEFAULTS = {
    "connect_timeout": "10", "application_name": "hivemind",
    "keepalives_idle": "20", "keepalives_interval": "5", "keepalives_count": "3", "tcp_user_timeout": "30000",
}  # fmt: skip
# A client that is stopped within a transaction must not hold up the others for ever, nor one wait for ever.
_SETTINGS = (
    "SET statement_timeout = '60s'; SET idle_in_transaction_session_timeout = '60s'; SET client_min_messages = error"
)
_RIGHTS = ["SELECT", "INSERT", "UPDATE", "DELETE"]
# Whatever rights a role has been given on all tables, the owner alone writes which version they have.
_ONLY_READ = (
    b"ALTER TABLE version ENABLE ROW LEVEL SECURITY; DROP POLICY IF EXISTS seen ON version;"
    b" CREATE POLICY seen ON version FOR SELECT USING (true)"
)
_ELSEWHERE = "keep the password in PGPASSFILE (~/.pgpass), PGPASSWORD or a service file (postgresql://?service=NAME)"


def is_postgres(place: object) -> bool:
    """Whether a path or URL names a PostgreSQL database."""
    return isinstance(place, str) and place.partition("://")[0] in _SCHEMES and "://" in place


def check_url(url: str) -> str:
    """The URL as it is. Raises UserError, which shows no URL, unless it names a PostgreSQL database without a password."""
    with boundary("URL of a database"):
        parts = urlsplit(url)
        password, named = parts.password, {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if not is_postgres(url):
        raise UserError("that is no URL of a PostgreSQL database", mend="write postgresql://USER@HOST/DATABASE")
    if password is not None or named.intersection(_SECRET):
        raise UserError("the URL holds a password", mend=_ELSEWHERE)
    return url


def client(url: str, error: type[UserError] = UserError) -> ModuleType:
    """The module psycopg. Raises `error` where it is not installed."""
    try:
        import psycopg
    except ImportError:
        mend = "pip install 'hivemind-swarm[postgres]'"
        raise error("needs psycopg, a client of PostgreSQL", where=url, mend=mend) from None
    return psycopg


def connect(
    url: str, error: type[UserError] = UserError, defaults: Mapping[str, str] | None = None
) -> psycopg.Connection[Any]:
    """A connection that notices when the other side is gone. `defaults` (libpq's parameters) go before this program's, what
    the URL says before both. Raises psycopg.Error, and `error` where psycopg is not installed."""
    module = client(url, error)
    said = {name: value for name, value in module.conninfo.conninfo_to_dict(url).items() if value is not None}
    settings = module.conninfo.make_conninfo("", **{**_DEFAULTS, **(defaults or {}), **said})
    found: psycopg.Connection[Any] = module.connect(settings, autocommit=True)
    return found


@frozen
class PostgresSchema:
    """Tables of one kind in a schema of their own, at one version, which is a row of its table `version`.

    `name` is the schema's, `what` what people call its contents. `migrations[n]` are the statements that make version n + 1
    of version n, run with the schema as search path; the last of them is what this program knows. `extensions` are (name,
    least version). `error` is raised for all that goes wrong. `settings` are statements for each new connection, `adapt` says
    how its types are read and written.
    """

    name: str
    what: str
    room: str
    error: type[UserError]
    migrations: tuple[tuple[str, ...], ...]
    extensions: tuple[tuple[str, tuple[int, ...]], ...] = ()
    settings: tuple[str, ...] = ()
    adapt: Callable[[psycopg.Connection[Any]], None] | None = None

    def prepare(self, connection: psycopg.Connection[Any], where: str) -> None:
        """Make the tables, or bring those of an earlier version up to date: one process does, the others wait for it.

        Raises UnknownVersion, psycopg.Error, and the schema's error for a database that cannot have them.
        """
        newest = len(self.migrations)
        if self.version(connection, where) == newest:
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self.name,))
            found = self.version(connection, where)
            if not found:
                if connection.info.parameter_status("server_encoding") != "UTF8":
                    raise self.error("its encoding is not UTF8", where=where, mend="createdb -E UTF8 -T template0 NAME")
                if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self.name,)).fetchone():
                    connection.execute(f"CREATE SCHEMA {self.name}".encode())
            for name, least in self.extensions:
                self._require(connection, where, name, least)
            connection.execute(f"SET LOCAL search_path = {self.name}, public".encode())
            connection.execute("SET LOCAL statement_timeout = 0")
            if not found:
                connection.execute("CREATE TABLE version (number integer NOT NULL)")
                connection.execute("INSERT INTO version VALUES (0)")
            connection.execute(_ONLY_READ)
            for statements in self.migrations[found:]:
                for statement in statements:
                    connection.execute(statement.encode())
            reached(f"{self.room}.schema.written")
            connection.execute("UPDATE version SET number = %s", (newest,))

    def version(self, connection: psycopg.Connection[Any], where: str) -> int:
        """The version of the tables, 0 where there are none. Raises UnknownVersion."""
        # not by to_regclass, which may still answer from a cache that is older than the lock we waited for
        there = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'version'"
        if connection.execute(there, (self.name,)).fetchone() is None:
            return 0
        row = connection.execute(f"SELECT number FROM {self.name}.version".encode()).fetchone()
        found, newest = (0 if row is None else int(row[0])), len(self.migrations)
        if not 1 <= found <= newest:
            raise UnknownVersion(
                f"has {self.what} of version {found}, this program knows version {newest}",
                where=where,
                mend="use the hivemind that wrote it, or another database",
            )
        return found

    def _require(self, connection: psycopg.Connection[Any], where: str, name: str, least: tuple[int, ...]) -> None:
        available = connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = %s", (name,)).fetchone()
        if available is not None:
            connection.execute(f"CREATE EXTENSION IF NOT EXISTS {name} SCHEMA public".encode())
        for what, mend in self._extension(connection, name, least):
            raise self.error(what, where=where, mend=mend)

    def _extension(
        self, connection: psycopg.Connection[Any], name: str, least: tuple[int, ...]
    ) -> Iterator[tuple[str, str]]:
        """What is wrong with an extension; one that the role may make itself is not lacking."""
        found, may = connection.execute(
            "SELECT (SELECT extversion FROM pg_extension WHERE extname = %s), (SELECT bool_or(r.rolsuper OR v.trusted AND"
            " has_database_privilege(current_database(), 'CREATE')) FROM pg_available_extension_versions v, pg_roles r"
            " WHERE v.name = %s AND r.rolname = current_user)",
            (name, name),
        ).fetchone() or (None, None)
        with boundary("version of an extension", name):
            numbers = tuple(int(part) for part in (found or "").split(".") if part.isdigit())
        if found is None and may is None:
            yield f"its server has no extension {name!r}", "install pgvector on the server"
        elif found is None:
            if not may:
                yield f"has no extension {name!r}", f"as an administrator of the database: CREATE EXTENSION {name}"
        elif numbers < least:
            wanted = ".".join(map(str, least))
            yield f"its extension {name!r} is {found}, {wanted} is needed", f"ALTER EXTENSION {name} UPDATE"

    def lacks(self, connection: psycopg.Connection[Any], where: str) -> Iterator[tuple[str, str]]:
        """What the database lacks for these tables, and how that is mended. Changes nothing. Raises as `prepare` does."""
        for name, least in self.extensions:
            yield from self._extension(connection, name, least)
        role, database, may, exists = connection.execute(
            "SELECT quote_ident(current_user), quote_ident(current_database()),"
            " has_database_privilege(current_database(), 'CREATE'), to_regnamespace(%s) IS NOT NULL",
            (self.name,),
        ).fetchone() or ("", "", False, False)
        if not exists:
            if not may:
                yield f"{role} may not make the schema {self.name}", f"GRANT CREATE ON DATABASE {database} TO {role}"
            return
        denied = connection.execute(
            "SELECT NOT has_schema_privilege(%(schema)s, 'USAGE') OR EXISTS (SELECT FROM pg_class c WHERE"
            " c.relnamespace = to_regnamespace(%(schema)s) AND CASE WHEN c.relkind = 'S' THEN NOT has_sequence_privilege("
            "c.oid, 'USAGE') AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'i')"  # of a column
            " WHEN c.relkind = 'r' AND right(c.relname, 6) <> '_aside' THEN EXISTS (SELECT FROM unnest(%(rights)s::text[])"
            " AS wanted WHERE (wanted = 'SELECT' OR c.relname <> 'version') AND NOT has_table_privilege(c.oid, wanted)) END)",
            {"schema": self.name, "rights": _RIGHTS},
        ).fetchone()
        if denied != (False,):
            objects = ("USAGE ON", f"{', '.join(_RIGHTS)} ON ALL TABLES IN", "USAGE ON ALL SEQUENCES IN")
            statements = "; ".join(f"GRANT {rights} SCHEMA {self.name} TO {role}" for rights in objects)
            yield f"{role} may not use the tables of {self.name}", f"as their owner: {statements}"
            return
        version, newest = self.version(connection, where), len(self.migrations)
        owner = connection.execute(
            "SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE relname = 'version'"
            " AND relnamespace = to_regnamespace(%s) AND NOT pg_has_role(relowner, 'USAGE')",
            (self.name,),
        ).fetchone()
        if 0 < version < newest and owner is not None:
            mend = f"any hive with this version of hivemind whose URL names their owner, {owner[0]}, does so first"
            yield f"has {self.what} of version {version}, which {role} may not bring to version {newest}", mend
            return
        made = connection.execute(
            "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " WHERE c.relnamespace = to_regnamespace(%s) AND i.indisvalid",
            (self.name,),
        ).fetchall()
        for statement in (one for statements in self.migrations for one in statements):
            found = re.match(r"CREATE (?:UNIQUE )?INDEX (?!ON )(\w+)", statement)
            if found is not None and (found[1],) not in made:
                again = f"DROP INDEX IF EXISTS {found[1]}; {' '.join(statement.split())}"
                mend = f"as its owner: SET search_path = {self.name}, public; {again}"
                yield f"has no index {found[1]}, or a broken one: searches are slow", mend

    @contextmanager
    def explained(self, where: str, outcome: str = "") -> Iterator[None]:
        """What psycopg raises becomes the schema's error, in words. `outcome` says what became of a write."""
        kind, then = self.error, f"; {outcome}" if outcome else ""
        psycopg = client(where, kind)
        try:
            yield
        except psycopg.errors.InsufficientPrivilege as error:
            mend = f"its owner gives the right; chapter 13 of the manual says which ones {self.what} need"
            raise kind(f"its role may not do that ({_line(error)}){then}", where=where, mend=mend) from error
        except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled) as error:
            mend = "somebody holds it, or it is overloaded: try again"
            raise kind(f"the server took too long ({_line(error)}){then}", where=where, mend=mend) from error
        except (psycopg.DataError, psycopg.errors.ProgramLimitExceeded) as error:
            raise kind(f"PostgreSQL can't keep that ({_line(error)}){then}", where=where) from error
        except psycopg.OperationalError as error:
            mend = "start the server, or mend the way to it; what is asked next is asked anew"
            raise kind(f"the server is away ({_line(error)}){then}", where=where, mend=mend) from error
        except psycopg.Error as error:
            raise kind(f"failed ({_line(error)}){then}", where=where) from error


@lru_cache(maxsize=512)
def _marked(statement: str) -> bytes:
    """The statement as psycopg takes it: parameters are `%s` there."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


class Statements:
    """Runs the statements of one transaction; their parameters are marked by `?`, as for SQLite (`fs.database.Sql`)."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        return self.connection.execute(_marked(statement), parameters, binary=True)

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> None:
        with self.connection.cursor() as cursor:
            cursor.executemany(_marked(statement), parameters)


class Postgres:
    """The tables of a schema in the database that a URL names. Raises UserError for a URL with a password, and the schema's
    error where psycopg, the server, a right or an extension is missing; UnknownVersion for tables of another version."""

    was_made = True  # nobody knows before asking; the first transaction makes the tables

    def __init__(self, url: str, schema: PostgresSchema, *, durable: bool = True) -> None:
        self.path = check_url(url)
        self.schema = schema
        self._durable = durable
        self._inherited: list[Any] = []  # connections of a parent, which only that may close
        self._connection: psycopg.Connection[Any] | None = None
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._guard = threading.RLock()
        self._inherited.append(self._connection)
        self._connection = None
        self._depth = 0
        self._writing = False

    @contextmanager
    def read(self) -> Iterator[Statements]:
        """Statements that see one state of the database throughout."""
        with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", writing=False) as sql:
            yield sql

    @contextmanager
    def write(self) -> Iterator[Statements]:
        """A transaction that nobody else writes beside: all of it is committed, or nothing on any error.

        Within another one it is a part of that, undone alone if it fails.
        """
        with self._transaction("BEGIN ISOLATION LEVEL READ COMMITTED", writing=True) as sql:
            yield sql

    @contextmanager
    def _transaction(self, begin: str, *, writing: bool) -> Iterator[Statements]:
        if self._pid != os.getpid():
            self._start()
        with self._guard:
            part: AbstractContextManager[object]
            if self._depth:
                assert self._writing or not writing, "a write inside a read: the read's snapshot may be old"
                assert self._connection is not None
                part = self._connection.transaction() if writing else nullcontext()
            else:
                part = self._whole(begin, writing)
            with part:
                assert self._connection is not None
                self._depth += 1
                try:
                    yield Statements(self._connection)
                finally:
                    self._depth -= 1

    @contextmanager
    def _whole(self, begin: str, writing: bool) -> Iterator[None]:
        with self._explained("nothing was stored") if writing else self._explained():
            connection = self._begun(begin)
            self._writing = writing
            try:
                if writing:
                    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self.schema.name,))
                yield
                if writing:
                    reached(f"{self.schema.room}.write.before_commit")
                    with self._explained("whether it was stored is not known"):
                        connection.execute("COMMIT")
                    reached(f"{self.schema.room}.write.committed")
            finally:
                self._writing = False
                if connection.broken:
                    connection.close()
                elif connection.info.transaction_status:  # nothing was written, or it failed
                    connection.execute("ROLLBACK")

    def _begun(self, begin: str) -> psycopg.Connection[Any]:
        """The connection, within a new transaction; a new one, if the server was started anew or has closed it meanwhile."""
        import psycopg

        if self._connection is not None and not self._connection.closed:
            try:
                self._connection.execute(begin.encode())
                return self._connection
            except psycopg.OperationalError:
                if not self._connection.broken:
                    raise
                self._connection.close()
        self._connection = self._connect()
        self._connection.execute(begin.encode())
        return self._connection

    def _connect(self) -> psycopg.Connection[Any]:
        connection = connect(self.path, self.schema.error)
        try:
            connection.execute(_SETTINGS)
            connection.execute(
                "SELECT set_config('synchronous_commit', CASE WHEN NOT %s THEN 'off' WHEN current_setting("
                "'synchronous_commit') = 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)",
                (self._durable,),
            )
            self.schema.prepare(connection, self.path)
            names = [name for name, _ in self.schema.extensions]
            places = connection.execute(
                "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
                " WHERE e.extname = ANY(%s)",
                (names,),
            ).fetchall()
            path = ", ".join([self.schema.name, *(place for (place,) in places)])
            connection.execute(f"SET search_path = {path}".encode())
            for statement in self.schema.settings:
                connection.execute(statement.encode())
            if self.schema.adapt is not None:
                self.schema.adapt(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _explained(self, outcome: str = "") -> AbstractContextManager[None]:
        return self.schema.explained(self.path, outcome)

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None and self._pid == os.getpid():
            self.close()

    def close(self) -> None:
        """Close this process's connection; the next use opens it again."""
        if self._pid != os.getpid():
            self._start()
        with self._guard:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _line(error: BaseException) -> str:
    """The first line of what libpq or the server says, which may be a page."""
    return " ".join(str(error).split("\n")[0].split()) or type(error).__name__
