"""A PostgreSQL database instead of an SQLite file: one connection per process, short transactions.

Writers of one schema queue on an advisory lock, which the server releases when their transaction or connection ends.
Readers see one committed state and never wait. When a connection is lost, its transaction fails and is rolled back; the
next transaction reconnects.
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
from hivemind.fs.atomic import is_durable
from hivemind.fs.crash import crash_point
from hivemind.fs.postponed import flush_postponed

if TYPE_CHECKING:
    import psycopg

_SCHEMES = ("postgresql", "postgres")
_SECRET_PARAMETERS = ("password", "sslpassword")
_DEFAULTS = {
    "connect_timeout": "10", "application_name": "hivemind",
    "keepalives_idle": "20", "keepalives_interval": "5", "keepalives_count": "3", "tcp_user_timeout": "30000",
}  # fmt: skip
# A client that is stopped inside a transaction must not block others forever, and no client may wait forever.
_SETTINGS = (
    "SET statement_timeout = '60s'; SET idle_in_transaction_session_timeout = '60s'; SET client_min_messages = error"
)
_RIGHTS = ["SELECT", "INSERT", "UPDATE", "DELETE"]
# Only the owner may write the tables' version, even if another role has rights on all tables.
_READ_ONLY_POLICY = (
    b"ALTER TABLE version ENABLE ROW LEVEL SECURITY; DROP POLICY IF EXISTS seen ON version;"
    b" CREATE POLICY seen ON version FOR SELECT USING (true)"
)
_LOGIN_REMEDY = "keep the password in PGPASSFILE (~/.pgpass), PGPASSWORD or a service file (postgresql://?service=NAME)"


def is_postgres(url: object) -> bool:
    """Check whether a path or URL names a PostgreSQL database."""
    return isinstance(url, str) and url.partition("://")[0] in _SCHEMES and "://" in url


def check_url(url: str) -> str:
    """Return the URL unchanged. Raises UserError if it does not name a PostgreSQL database, or if it contains a password.

    The error does not show the URL.
    """
    with boundary("URL of a database"):
        parts = urlsplit(url)
        password, parameter_names = parts.password, {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if not is_postgres(url):
        raise UserError("not the URL of a PostgreSQL database", remedy="write postgresql://USER@HOST/DATABASE")
    if password is not None or parameter_names.intersection(_SECRET_PARAMETERS):
        raise UserError("the URL contains a password", remedy=_LOGIN_REMEDY)
    return url


def import_client(url: str, error: type[UserError] = UserError) -> ModuleType:
    """Import and return psycopg. Raises `error`, which names `url`, if it is not installed."""
    try:
        import psycopg
    except ImportError:
        remedy = "pip install 'hivemind-swarm[postgres]'"
        raise error("needs psycopg, the PostgreSQL client", location=url, remedy=remedy) from None
    return psycopg


def connect(
    url: str, error: type[UserError] = UserError, defaults: Mapping[str, str] | None = None
) -> psycopg.Connection[Any]:
    """Return a new connection with keepalives, which detect a lost server.

    `defaults` (libpq parameters) override this program's defaults; the URL overrides both. Raises psycopg.Error, or `error` if
    psycopg is not installed.
    """
    module = import_client(url, error)
    url_parameters = {name: value for name, value in module.conninfo.conninfo_to_dict(url).items() if value is not None}
    settings = module.conninfo.make_conninfo("", **{**_DEFAULTS, **(defaults or {}), **url_parameters})
    connection: psycopg.Connection[Any] = module.connect(settings, autocommit=True)
    return connection


@frozen
class PostgresSchema:
    """The tables in one PostgreSQL schema, at one version, which is stored in the table `version`.

    * `name`: the schema; `contents`: a noun for its rows, for messages.
    * `crash_prefix`: the first part of the names of the schema's crash points.
    * `error`: the class of all its errors.
    * `migrations[n]`: the statements that turn version n into n + 1, run with the schema as search path. Their number is
      the version that this program knows.
    * `extensions`: the required extensions as (name, minimum version).
    * `settings`: statements for each new connection; `adapt` registers its type adapters.
    """

    name: str
    contents: str
    crash_prefix: str
    error: type[UserError]
    migrations: tuple[tuple[str, ...], ...]
    extensions: tuple[tuple[str, tuple[int, ...]], ...] = ()
    settings: tuple[str, ...] = ()
    adapt: Callable[[psycopg.Connection[Any]], None] | None = None

    def prepare(self, connection: psycopg.Connection[Any], url: str) -> None:
        """Create the tables, or migrate those of an earlier version. One process does so while the others wait.

        Raises UnknownVersion, psycopg.Error, and the schema's error if the database is unsuitable.
        """
        newest = len(self.migrations)
        if self.version(connection, url) == newest:
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self.name,))
            version = self.version(connection, url)
            if not version:
                if connection.info.parameter_status("server_encoding") != "UTF8":
                    raise self.error(
                        "its encoding is not UTF8", location=url, remedy="createdb -E UTF8 -T template0 NAME"
                    )
                if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self.name,)).fetchone():
                    connection.execute(f"CREATE SCHEMA {self.name}".encode())
            for name, min_version in self.extensions:
                self._require(connection, url, name, min_version)
            connection.execute(f"SET LOCAL search_path = {self.name}, public".encode())
            connection.execute("SET LOCAL statement_timeout = 0")
            if not version:
                connection.execute("CREATE TABLE version (number integer NOT NULL)")
                connection.execute("INSERT INTO version VALUES (0)")
            connection.execute(_READ_ONLY_POLICY)
            for statements in self.migrations[version:]:
                for statement in statements:
                    connection.execute(statement.encode())
            crash_point(f"{self.crash_prefix}.schema.written")
            connection.execute("UPDATE version SET number = %s", (newest,))

    def version(self, connection: psycopg.Connection[Any], url: str) -> int:
        """Return the version of the tables, 0 if there are none. Raises UnknownVersion."""
        # to_regclass may use a cache that is older than the lock we waited for
        exists_query = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'version'"
        if connection.execute(exists_query, (self.name,)).fetchone() is None:
            return 0
        row = connection.execute(f"SELECT number FROM {self.name}.version".encode()).fetchone()
        version, newest = (0 if row is None else int(row[0])), len(self.migrations)
        if not 1 <= version <= newest:
            raise UnknownVersion(
                f"has {self.contents} of version {version}, this program knows version {newest}",
                location=url,
                remedy="use the hivemind that wrote it, or another database",
            )
        return version

    def _require(self, connection: psycopg.Connection[Any], url: str, name: str, min_version: tuple[int, ...]) -> None:
        available = connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = %s", (name,)).fetchone()
        if available is not None:
            connection.execute(f"CREATE EXTENSION IF NOT EXISTS {name} SCHEMA public".encode())
        for problem, remedy in self._extension_problems(connection, name, min_version):
            raise self.error(problem, location=url, remedy=remedy)

    def _extension_problems(
        self, connection: psycopg.Connection[Any], name: str, min_version: tuple[int, ...]
    ) -> Iterator[tuple[str, str]]:
        """Yield (problem, remedy) if the extension `name` is too old, or missing and the role may not create it."""
        installed_version, can_create = connection.execute(
            "SELECT (SELECT extversion FROM pg_extension WHERE extname = %s), (SELECT bool_or(r.rolsuper OR v.trusted AND"
            " has_database_privilege(current_database(), 'CREATE')) FROM pg_available_extension_versions v, pg_roles r"
            " WHERE v.name = %s AND r.rolname = current_user)",
            (name, name),
        ).fetchone() or (None, None)
        with boundary("version of an extension", name):
            numbers = tuple(int(part) for part in (installed_version or "").split(".") if part.isdigit())
        if installed_version is None and can_create is None:
            yield f"its server has no extension {name!r}", "install pgvector on the server"
        elif installed_version is None:
            if not can_create:
                yield f"has no extension {name!r}", f"as an administrator of the database: CREATE EXTENSION {name}"
        elif numbers < min_version:
            required = ".".join(map(str, min_version))
            yield (
                f"its extension {name!r} is {installed_version}, {required} is needed",
                f"ALTER EXTENSION {name} UPDATE",
            )

    def missing_requirements(self, connection: psycopg.Connection[Any], url: str) -> Iterator[tuple[str, str]]:
        """Yield what the database lacks for these tables, as (problem, remedy). Only reads.

        Raises the errors of `prepare`.
        """
        for name, min_version in self.extensions:
            yield from self._extension_problems(connection, name, min_version)
        role, database, can_create, exists = connection.execute(
            "SELECT quote_ident(current_user), quote_ident(current_database()),"
            " has_database_privilege(current_database(), 'CREATE'), to_regnamespace(%s) IS NOT NULL",
            (self.name,),
        ).fetchone() or ("", "", False, False)
        if not exists:
            if not can_create:
                yield f"{role} may not create the schema {self.name}", f"GRANT CREATE ON DATABASE {database} TO {role}"
            return
        denied_row = connection.execute(
            "SELECT NOT has_schema_privilege(%(schema)s, 'USAGE') OR EXISTS (SELECT FROM pg_class c WHERE"
            " c.relnamespace = to_regnamespace(%(schema)s) AND CASE WHEN c.relkind = 'S' THEN NOT has_sequence_privilege("
            "c.oid, 'USAGE') AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'i')"  # of a column
            " WHEN c.relkind = 'r' AND right(c.relname, 6) <> '_aside' THEN EXISTS (SELECT FROM unnest(%(rights)s::text[])"
            " AS wanted WHERE (wanted = 'SELECT' OR c.relname <> 'version') AND NOT has_table_privilege(c.oid, wanted)) END)",
            {"schema": self.name, "rights": _RIGHTS},
        ).fetchone()
        if denied_row != (False,):
            objects = ("USAGE ON", f"{', '.join(_RIGHTS)} ON ALL TABLES IN", "USAGE ON ALL SEQUENCES IN")
            statements = "; ".join(f"GRANT {rights} SCHEMA {self.name} TO {role}" for rights in objects)
            yield f"{role} may not use the tables of {self.name}", f"as their owner: {statements}"
            return
        version, newest = self.version(connection, url), len(self.migrations)
        owner = connection.execute(
            "SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE relname = 'version'"
            " AND relnamespace = to_regnamespace(%s) AND NOT pg_has_role(relowner, 'USAGE')",
            (self.name,),
        ).fetchone()
        if 0 < version < newest and owner is not None:
            remedy = f"first run a hive of this version whose URL names the tables' owner, {owner[0]}"
            yield f"has {self.contents} of version {version}, which {role} may not migrate to version {newest}", remedy
            return
        valid_indexes = connection.execute(
            "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " WHERE c.relnamespace = to_regnamespace(%s) AND i.indisvalid",
            (self.name,),
        ).fetchall()
        for statement in (migration_step for statements in self.migrations for migration_step in statements):
            index_match = re.match(r"CREATE (?:UNIQUE )?INDEX (?!ON )(\w+)", statement)
            if index_match is not None and (index_match[1],) not in valid_indexes:
                recreation = f"DROP INDEX IF EXISTS {index_match[1]}; {' '.join(statement.split())}"
                remedy = f"as its owner: SET search_path = {self.name}, public; {recreation}"
                yield f"its index {index_match[1]} is missing or broken: searches are slow", remedy

    @contextmanager
    def translate_errors(self, url: str, outcome: str = "") -> Iterator[None]:
        """Within a `with` block, turn psycopg's errors into the schema's error. `outcome`, the fate of the current write, is
        added to the message.
        """
        error_class, suffix = self.error, f"; {outcome}" if outcome else ""
        psycopg = import_client(url, error_class)
        try:
            yield
        except psycopg.errors.InsufficientPrivilege as error:
            remedy = f"ask its owner for the rights that {self.contents} need (hivemind help PostgreSQL rights)"
            raise error_class(
                f"its role may not do that ({_first_line(error)}){suffix}", location=url, remedy=remedy
            ) from error
        except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled) as error:
            remedy = "it is locked or overloaded: try again"
            raise error_class(
                f"the server took too long ({_first_line(error)}){suffix}", location=url, remedy=remedy
            ) from error
        except (psycopg.DataError, psycopg.errors.ProgramLimitExceeded) as error:
            raise error_class(f"PostgreSQL refuses the data ({_first_line(error)}){suffix}", location=url) from error
        except psycopg.OperationalError as error:
            remedy = "start the server, or repair the network; the next call reconnects"
            raise error_class(
                f"the server is not reachable ({_first_line(error)}){suffix}", location=url, remedy=remedy
            ) from error
        except psycopg.Error as error:
            raise error_class(f"failed ({_first_line(error)}){suffix}", location=url) from error


@lru_cache(maxsize=512)
def _convert_parameters(statement: str) -> bytes:
    """Convert a statement's `?` parameters to psycopg's `%s`."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


class Statements:
    """Runs the statements of one transaction. `?` marks a parameter, as in SQLite (`fs.database.Sql`)."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        return self.connection.execute(_convert_parameters(statement), parameters, binary=True)

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> None:
        with self.connection.cursor() as cursor:
            cursor.executemany(_convert_parameters(statement), parameters)

    def as_array(self, values: Iterable[object]) -> str:
        """Return the values as the text of an array, which psycopg passes on faster than a list."""
        return "{" + ",".join(map(_quote_element, values)) + "}"


def _quote_element(value: object) -> str:
    text = f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Postgres:
    """The tables of a schema in the database at a URL.

    Raises UserError for a URL with a password, UnknownVersion for tables of another version, and the schema's error if
    psycopg, the server, a right or an extension is missing.
    """

    was_made = True  # unknown without connecting; the first transaction creates the tables

    def __init__(self, url: str, schema: PostgresSchema) -> None:
        self.path = check_url(url)
        self.schema = schema
        self._inherited: list[Any] = []  # a parent process's connections, which only the parent may close
        self._connection: psycopg.Connection[Any] | None = None
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._guard = threading.RLock()
        self._inherited.append(self._connection)
        self._connection = None
        self._depth = 0
        self._is_writing = False

    @contextmanager
    def read(self) -> Iterator[Statements]:
        """Begin a transaction that sees one state of the database throughout, and yield what runs its statements."""
        with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", is_writing=False) as sql:
            yield sql

    @contextmanager
    def write(self) -> Iterator[Statements]:
        """Begin an exclusive writing transaction and yield what runs its statements. It is committed at the end, or rolled back
        on any error.

        A transaction inside another is a savepoint, which is rolled back alone if it fails.
        """
        with self._transaction("BEGIN ISOLATION LEVEL READ COMMITTED", is_writing=True) as sql:
            yield sql

    @contextmanager
    def _transaction(self, begin_statement: str, *, is_writing: bool) -> Iterator[Statements]:
        if self._pid != os.getpid():
            self._reset()
        with self._guard:
            transaction: AbstractContextManager[object]
            if self._depth:
                assert self._is_writing or not is_writing, "a write inside a read: the read's snapshot may be old"
                assert self._connection is not None
                transaction = self._connection.transaction() if is_writing else nullcontext()
            else:
                transaction = self._run_transaction(begin_statement, is_writing)
            with transaction:
                assert self._connection is not None
                self._depth += 1
                try:
                    yield Statements(self._connection)
                finally:
                    self._depth -= 1

    @contextmanager
    def _run_transaction(self, begin_statement: str, is_writing: bool) -> Iterator[None]:
        with self._translate_errors("nothing was stored") if is_writing else self._translate_errors():
            flush_postponed()
            connection = self._execute_first(begin_statement.encode()).connection
            self._is_writing = is_writing
            try:
                if is_writing:
                    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self.schema.name,))
                yield
                if is_writing:
                    crash_point(f"{self.schema.crash_prefix}.write.before_commit")
                    with self._translate_errors("it is unknown whether it was stored"):
                        connection.execute("COMMIT")
                    crash_point(f"{self.schema.crash_prefix}.write.committed")
            finally:
                self._is_writing = False
                if connection.broken:
                    connection.close()
                elif connection.info.transaction_status:  # it only read, or failed
                    connection.execute("ROLLBACK")

    def select(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of one statement that only reads. Outside a transaction this is one round trip."""
        if self._pid != os.getpid():
            self._reset()
        with self._guard, self._translate_errors():
            return self._execute_first(_convert_parameters(statement), parameters).fetchall()

    def _execute_first(self, statement: bytes, parameters: Sequence[Any] | None = None) -> psycopg.Cursor[Any]:
        """Execute the first or only statement of a transaction and return its cursor. Reconnect if the server closed the
        connection.
        """
        import psycopg

        has_rows = parameters is not None
        if self._connection is not None and not self._connection.closed:
            try:
                return self._connection.execute(statement, parameters, binary=has_rows)
            except psycopg.OperationalError:
                if not self._connection.broken or self._depth:
                    raise
                self._connection.close()
        self._connection = self._connect()
        return self._connection.execute(statement, parameters, binary=has_rows)

    def _connect(self) -> psycopg.Connection[Any]:
        connection = connect(self.path, self.schema.error)
        try:
            connection.execute(_SETTINGS)
            connection.execute(
                "SELECT set_config('synchronous_commit', CASE WHEN NOT %s THEN 'off' WHEN current_setting("
                "'synchronous_commit') = 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)",
                (is_durable(self.path),),
            )
            self.schema.prepare(connection, self.path)
            names = [name for name, _ in self.schema.extensions]
            schema_rows = connection.execute(
                "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
                " WHERE e.extname = ANY(%s)",
                (names,),
            ).fetchall()
            search_path = ", ".join([self.schema.name, *(schema_name for (schema_name,) in schema_rows)])
            connection.execute(f"SET search_path = {search_path}".encode())
            for statement in self.schema.settings:
                connection.execute(statement.encode())
            if self.schema.adapt is not None:
                self.schema.adapt(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _translate_errors(self, outcome: str = "") -> AbstractContextManager[None]:
        return self.schema.translate_errors(self.path, outcome)

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None and self._pid == os.getpid():
            self.close()

    def close(self) -> None:
        """Close this process's connection. The next use reopens it."""
        if self._pid != os.getpid():
            self._reset()
        with self._guard:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _first_line(error: BaseException) -> str:
    """Return the first line of libpq's or the server's error, which may fill a page."""
    return " ".join(str(error).split("\n")[0].split()) or type(error).__name__
