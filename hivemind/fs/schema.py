"""What stands in a store's SQLite file, and what happens when the file was made by someone else."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hivemind.errors import UnknownVersion, UserError
from hivemind.fs.atomic import open_own
from hivemind.fs.crash import reached
from hivemind.fs.soundness import missing

__all__ = ["Schema"]


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one kind of database, at one version (`PRAGMA user_version`).

    `name` is what people call it; `room` begins its crash points; `error` is raised for all that goes wrong with it;
    `statements` make it; `functions` are (name, number of arguments, function) that the statements call; `upgrades` has for
    an older version the statements that make the next one of it; `damaged`, if given, is raised instead of `error` for a file
    that SQLite cannot make sense of; `lasting` says that it holds what is nowhere else: one that is gone or empty, though it
    was made, is a damaged one.
    """

    name: str
    room: str
    version: int
    error: type[UserError]
    statements: tuple[str, ...]
    functions: tuple[tuple[str, int, Callable[..., Any]], ...] = ()
    upgrades: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    damaged: type[UserError] | None = None
    lasting: bool = False

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
        if found not in (
            0,
            self.version,
            *self.upgrades,
        ):  # 0: being made, or its first page still stands in the write-ahead log
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
        """Make the tables if the database is new, bring an older one up to date.

        Called with the writers' lock held. Raises as check_file does.
        """
        if self.is_prepared(connection, path):
            return
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if not found and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise self.error("is a database of another program", where=path, mend="choose another path")
        if path != ":memory:":
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in self._steps_from(found):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {self.version}")
            reached(f"{self.room}.schema.written")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def _steps_from(self, found: int) -> tuple[str, ...]:
        """The statements that lead from one version to this one."""
        if not found:
            return self.statements
        return tuple(statement for version in range(found, self.version) for statement in self.upgrades[version])
