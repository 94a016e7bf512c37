"""Entries of long-term memory, search results, users; ids and times."""

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
    """Convert a time to microseconds since 1970. A time without a zone counts as UTC."""
    return ((moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - _EPOCH) // _MICROSECOND


def as_time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


MIN_MICROS, MAX_MICROS = (as_micros(moment.replace(tzinfo=UTC)) for moment in (datetime.min, datetime.max))
"""The first and last time that a datetime in UTC can represent, in microseconds since 1970."""


_RANDOM_BITS = 62


def new_id() -> str:
    """Generate a UUID of version 7 (RFC 9562, sections 5.7 and 6.2: twelve bits hold the fraction of the millisecond).

    The ids rise with time, so new entries change few pages of the index. With random ids, 500 entries in one
    transaction would change about 400 pages.
    """
    milliseconds, remainder = divmod(time.time_ns(), 1_000_000)
    fraction = (remainder << 12) // 1_000_000
    random_bits = int.from_bytes(os.urandom(8), "big") >> (64 - _RANDOM_BITS)
    return str(uuid.UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | 0b10 << _RANDOM_BITS | random_bits))


_NEVER = datetime.min.replace(tzinfo=UTC)

Action = Literal["created", "updated", "duplicate", "refused"]


class Embedding(tuple[float, ...]):
    """An embedding that was read from the store, and the digest of the content that it belongs to.

    `is_from_caller` is False if the store's embedder computed it. If the digest differs from that of an entry's
    content, the store knows that the embedding is out of date.
    """

    is_from_caller: bool = True
    digest: bytes = b""

    @classmethod
    def from_numbers(cls, numbers: Iterable[float], digest: bytes, *, is_from_caller: bool) -> Self:
        embedding = cls(numbers)
        embedding.is_from_caller, embedding.digest = is_from_caller, digest
        return embedding


@frozen(kw_only=True)
class MemoryEntry:
    """One memory. The store assigns id, namespace, key, times and version; it ignores these in an entry that a caller passes.

    `importance` is 0 to 1 (None counts as 0.5). `links` maps relations to keys of the entry's namespace, as in
    `{"previous": key}`. Only get and get_many return the `embedding`. A `pending` entry has no embedding yet and is
    found only by its words. Times are UTC.
    """

    content: str
    id: str = ""
    namespace: Namespace = ()
    key: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    embedding: tuple[float, ...] | None = field(default=None, repr=False)
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
        """Return the fields for JSON, without the embedding: times in ISO 8601, the namespace as a list."""
        json_fields = {
            attribute.name: getattr(self, attribute.name) for attribute in fields(self) if attribute.name != "embedding"
        }
        for name in ("created_at", "updated_at", "expires_at"):
            json_fields[name] = None if json_fields[name] is None else json_fields[name].isoformat()
        json_fields["namespace"] = list(self.namespace)
        json_fields["metadata"], json_fields["links"] = dict(self.metadata), dict(self.links)
        if (confidence := json_fields.get("confidence")) is not None:
            json_fields["confidence"] = confidence.level
        return json_fields


@frozen(kw_only=True)
class MemorySearchResult(MemoryEntry):
    """An entry that a search found. Results are ordered by `score`.

    `similarity` is the cosine to the query (0 to 1; 0 without vectors). `why` explains the match in words. `confidence`
    is None for a blank query and in mode "vector".
    """

    similarity: float = 0.0
    score: float = 0.0
    why: str = ""
    confidence: Confidence | None = None


@frozen
class UpsertMemoryInput:
    """A memory that a mind wants to store. If the key is None, the store generates one."""

    content: str
    metadata: Mapping[str, Any] | None = None
    key: str | None = None


@frozen
class UpsertMemoryResult:
    """The result of `upsert_memory`. `success` is True only if the memory was stored.

    `memory_id` is the stored entry's id. If `action` is "duplicate", it is the id of the existing entry with this
    content.
    """

    success: bool
    memory_id: str
    action: Action
    message: str
    key: str = ""
    similar_key: str | None = None


@frozen
class User:
    """A user. The user's memories are in the namespace `("memories", id)`. Several users may have one name."""

    id: str
    name: str
    created_at: datetime

    @property
    def namespace(self) -> Namespace:
        return ("memories", self.id)
