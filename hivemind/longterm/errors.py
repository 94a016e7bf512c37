"""What can go wrong with a memory, each with its own type; all of them are errors a person can mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError


class LongtermError(UserError):
    """Root of the errors of this room."""


class StoreDamaged(LongtermError):
    """The database is damaged; `mending.mend` saves what can be read of it."""


class EntryInvalid(LongtermError):
    """A key, a content, metadata or another field breaks its rule; nothing was stored."""


class NamespaceInvalid(EntryInvalid):
    """A namespace is a tuple of at least two strings that are not blank."""


class NamespaceForbidden(LongtermError):
    """The caller may not use this namespace (seed 001, *Security & Privacy*); nothing was read or stored."""


class VersionConflict(LongtermError):
    """The entry is not at the version that the caller expected; nothing was stored. `actual` is 0 if there is none."""

    def __init__(self, key: str, expected: int, actual: int) -> None:
        found = f"at version {actual}" if actual else "not there"
        super().__init__(
            f"entry {key!r} was expected at version {expected} and is {found}; nothing was stored",
            mend="read it again, then decide anew",
        )
        self.key = key
        self.expected = expected
        self.actual = actual


@contextmanager
def row_of(what: str) -> Iterator[None]:
    """The boundary of a row: whatever reading it raises is damage, which is mended. `what` says which row it is."""
    try:
        with boundary("row", what):
            yield
    except Unreadable as error:
        raise StoreDamaged(error.what, where=what, mend="hivemind doctor says how to save it") from error
