"""Entries: one memory each, with the seed's fields in snake case (seed 001, *Memory Entry*); their ids and times."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

from hivemind.frozen import frozen
from hivemind.longterm.namespace import Namespace
from hivemind.search import Confidence

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def as_micros(moment: datetime) -> int:
    """A time as microseconds; one without a zone is taken as UTC."""
    return ((moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - _EPOCH) // _MICROSECOND


def as_time(micros: int) -> datetime:
    """The time, in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


FIRST, LAST = (as_micros(moment.replace(tzinfo=UTC)) for moment in (datetime.min, datetime.max))
"""Between them lie all the times that a datetime in UTC can say."""


_RANDOM_BITS = 62


def new_id() -> str:
    """A UUID of version 7 (RFC 9562, section 5.7; the twelve bits after the milliseconds are their fraction, 6.2).

    Random ids would lie all over their index: of 500 entries in one transaction 400 would write a page of it each.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    chance = int.from_bytes(os.urandom(8), "big") >> (64 - _RANDOM_BITS)
    return str(uuid.UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | 0b10 << _RANDOM_BITS | chance))


_NEVER = datetime.min.replace(tzinfo=UTC)

Action = Literal["created", "updated", "duplicate", "refused"]


class Embedding(tuple[float, ...]):
    """An embedding as the store gave it: whether a caller had given it first, and the digest of the content that it is of.

    So an entry that was read, said anew and put back means what it says now, whoever has changed it meanwhile.
    """

    given: bool = True
    digest: bytes = b""

    @classmethod
    def read(cls, numbers: Iterable[float], digest: bytes, *, given: bool) -> Self:
        found = cls(numbers)
        found.given, found.digest = given, digest
        return found


@frozen(kw_only=True)
class MemoryEntry:
    """One memory. Only `content` and what says something about it matter where an entry is given to be stored: id, times
    and version are the store's.

    `importance` is 0 to 1 (None: not said, counts as 0.5). `links` name other entries of the namespace by relation, as
    `{"previous": key}`. `embedding` is there after get and get_many; `pending`: it waits for its embedding and is found
    by its words only. Times are UTC.
    """

    content: str
    id: str = ""
    namespace: Namespace = ()
    key: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    embedding: tuple[float, ...] | None = None
    created_at: datetime = _NEVER
    updated_at: datetime = _NEVER
    category: str | None = None
    importance: float | None = None
    expires_at: datetime | None = None
    version: int = 0
    parent_id: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    pending: bool = False

    def as_dict(self) -> dict[str, Any]:
        """What JSON can say of it: times in ISO 8601, the namespace as a list, no embedding."""
        shown = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "embedding"}
        for name in ("created_at", "updated_at", "expires_at"):
            shown[name] = None if shown[name] is None else shown[name].isoformat()
        shown["namespace"] = list(self.namespace)
        shown["metadata"], shown["links"] = dict(self.metadata), dict(self.links)
        if (trust := shown.get("confidence")) is not None:
            shown["confidence"] = trust.level
        return shown


@frozen(kw_only=True)
class MemorySearchResult(MemoryEntry):
    """An entry that was found. `similarity` is the cosine to the query (0 to 1; 0 where there are no vectors), `score`
    what it was ordered by, `why` says in words what was found, `confidence` how far it can be trusted to answer (None
    where nothing was asked, and for mode "vector")."""

    similarity: float = 0.0
    score: float = 0.0
    why: str = ""
    confidence: Confidence | None = None


@frozen
class UpsertMemoryInput:
    """What a mind wants remembered (seed 001, *upsertMemory Tool Schema*). Without a key one is made."""

    content: str
    metadata: Mapping[str, Any] | None = None
    key: str | None = None


@frozen
class UpsertMemoryResult:
    """What came of it. `success` is True only if the entry is stored; `memory_id` is its id, or that of the entry that
    says the same already (`action` "duplicate")."""

    success: bool
    memory_id: str
    action: Action
    message: str
    key: str = ""
    similar_key: str | None = None


@frozen
class User:
    """Somebody whose memories lie under `("memories", id)` (seed 001, *User*). Names need not differ, ids do."""

    id: str
    name: str
    created_at: datetime

    @property
    def namespace(self) -> Namespace:
        return ("memories", self.id)
