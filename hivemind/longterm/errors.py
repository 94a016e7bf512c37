"""Errors of long-term memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError


class LongtermError(UserError):
    """Base class of the errors of long-term memory."""


class StoreDamaged(LongtermError):
    """The database is damaged. `hivemind doctor` explains how to save the readable entries."""


class EntryInvalid(LongtermError):
    """A key, content, metadata or another field is invalid. The store is unchanged."""


class NamespaceInvalid(EntryInvalid):
    """A namespace is not a tuple of two or more non-blank strings."""


class NamespaceForbidden(LongtermError):
    """The caller may not use this namespace. The store is unchanged."""


class VersionConflict(LongtermError):
    """The entry does not have the expected version. The store is unchanged. `actual` is the version (0: no entry)."""

    def __init__(self, key: str, expected: int, actual: int) -> None:
        state = f"at version {actual}" if actual else "missing"
        super().__init__(
            f"entry {key!r} was expected at version {expected} and is {state}; nothing was stored",
            remedy="read the entry again and repeat the change",
        )
        self.key = key
        self.expected = expected
        self.actual = actual


@contextmanager
def row_boundary(location: str) -> Iterator[None]:
    """Turn any error in the block, which reads a row of the database, into StoreDamaged. `location` names the row."""
    try:
        with boundary("row", location):
            yield
    except Unreadable as error:
        raise StoreDamaged(
            error.message, location=location, remedy="hivemind doctor says how to save the readable entries"
        ) from error
