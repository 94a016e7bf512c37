"""Memory blocks, which refer to content and never hold a file's text; and the entries (JSON) that stand for blocks in a
context."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.layout import HUMAN
from hivemind.names import local_part


class Priority(IntEnum):
    """The order in which blocks enter a context, if they fit. CRITICAL blocks always enter."""

    CRITICAL = 1  # always selected, never dropped
    HIGH = 2
    MEDIUM = 3
    LOW = 4


BUDGET_SHARES = {Priority.CRITICAL: 1.0, Priority.HIGH: 0.8, Priority.MEDIUM: 0.9, Priority.LOW: 0.95}
"""Blocks of a priority are taken only while they keep the used share of the token budget below this limit."""


class MemoryType(StrEnum):
    """The kind of content that a block refers to."""

    ROM = "rom"
    FILE = "file"
    STATUS = "status"
    TASK = "task"
    MESSAGE = "message"
    KNOWLEDGE = "knowledge"
    HISTORY = "history"
    CONTEXT = "context"


_CLASS_DEFAULT: Any = None  # __post_init__ replaces it by the default of the block's class
_ORIGINS = ("hive", "agent", "human", "external")

ContextRenderer = Callable[[Sequence[dict[str, Any]]], str]
"""A function that renders context entries as the text that a mind reads."""


def _now() -> datetime:
    return datetime.now(UTC)


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(slots=True, kw_only=True)
class MemoryBlock:
    """The base class of blocks, with their common fields. Times are UTC; a time without a zone counts as UTC.

    A subclass sets `type`, and `id` unless one is passed. Raises UserError unless `confidence` is 0 to 1.
    """

    KIND: ClassVar[MemoryType | None] = None
    PRIORITY: ClassVar[Priority] = Priority.MEDIUM
    CONTEXT_FIELDS: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The metadata of the block's context entry: name in the metadata → field of the block."""
    LOCATION_FIELD: ClassVar[str] = ""
    """The name of the field with the location of the content; "" if the block has inline content."""

    type: MemoryType = _CLASS_DEFAULT
    id: str = ""
    confidence: float = 1.0
    priority: Priority = _CLASS_DEFAULT
    timestamp: datetime = field(default_factory=_now)
    expiry: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    # The counted size of the block's context entry: tokens, token counter, size and mtime (ns) of the counted file.
    exact_count: tuple[int, object, int, int] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.KIND is not None:
            self.type = self.KIND
        elif self.type is None:
            raise UserError("a bare MemoryBlock needs a type")
        if self.priority is None:
            self.priority = self.PRIORITY
        if not 0.0 <= self.confidence <= 1.0:
            raise UserError(f"a confidence must be between 0 and 1, not {self.confidence!r}")
        if self.timestamp.tzinfo is not UTC:
            self.timestamp = _utc(self.timestamp)
        if self.expiry is not None:
            self.expiry = _utc(self.expiry)
        if not self.id:
            self.id = self._make_id()

    def _make_id(self) -> str:
        raise UserError("a bare MemoryBlock needs an id")

    @property
    def content_location(self) -> str | None:
        """Return the location of the content (a path, or `scheme:reference`); None for a block with inline content."""
        return getattr(self, self.LOCATION_FIELD) if self.LOCATION_FIELD else None

    def inline_content(self) -> str | None:
        """Return the inline content, or None if the content is at a location."""
        return None if self.LOCATION_FIELD else str(self.metadata.get("content", ""))


def _utc(moment: datetime) -> datetime:
    with boundary("time"):
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


@dataclass(slots=True, kw_only=True)
class FileMemoryBlock(MemoryBlock):
    """A reference to a file, or to its lines `start_line` to `end_line` (1-based, inclusive).

    If `start_line` is None, the range begins at line 1; if `end_line` is None, it ends with the file. Different ranges
    of one file are different blocks. `digest` is the whole file's SHA-256.
    """

    KIND: ClassVar[MemoryType | None] = MemoryType.FILE
    LOCATION_FIELD: ClassVar[str] = "location"
    CONTEXT_FIELDS: ClassVar[Mapping[str, str]] = {"source": "location"}

    location: str
    start_line: int | None = None
    end_line: int | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        is_rom = self.type is MemoryType.ROM
        if self.end_line is not None and self.start_line is None:
            self.start_line = 1
        if self.start_line is not None and not 0 < self.start_line <= (self.end_line or self.start_line):
            remedy = "number the lines from 1; the range includes both ends"
            raise UserError(
                f"has no lines {self.start_line}-{self.end_line or ''}", location=self.location, remedy=remedy
            )
        MemoryBlock.__post_init__(self)
        if is_rom:
            self.type, self.priority = MemoryType.ROM, Priority.CRITICAL

    def _make_id(self) -> str:
        return self.location if self.start_line is None else f"{self.location}:{self.start_line}-{self.end_line or ''}"

    @classmethod
    def rom(cls, location: str, **fields: Any) -> FileMemoryBlock:
        """Create a block for a file of `rom/`: always CRITICAL, never dropped, never compressed."""
        return cls(location=location, type=MemoryType.ROM, **fields)


@dataclass(slots=True, kw_only=True)
class StatusMemoryBlock(MemoryBlock):
    """The state of a part of the system ("mailbox", "task_queue", "system_health"). `value` is any JSON value."""

    KIND: ClassVar[MemoryType | None] = MemoryType.STATUS
    PRIORITY: ClassVar[Priority] = Priority.HIGH
    CONTEXT_FIELDS: ClassVar[Mapping[str, str]] = {"status_type": "status_type"}

    status_type: str
    value: Any

    def _make_id(self) -> str:
        return f"status:{self.status_type}"

    def inline_content(self) -> str:
        if isinstance(self.value, str):
            return self.value
        try:
            return json.dumps(self.value, ensure_ascii=False, default=str, skipkeys=True)
        except (ValueError, RecursionError):  # the value contains itself
            return repr(self.value)


@dataclass(slots=True, kw_only=True)
class TaskMemoryBlock(MemoryBlock):
    """A task, as a reference. `metadata["maker"]` names the author of the task's description: an agent, or "human"."""

    KIND: ClassVar[MemoryType | None] = MemoryType.TASK
    PRIORITY: ClassVar[Priority] = Priority.HIGH
    CONTEXT_FIELDS: ClassVar[Mapping[str, str]] = {
        name: name for name in ("task_id", "status", "project", "dependencies")
    }

    task_id: str
    description: str
    project: str | None = None
    dependencies: list[str] = field(default_factory=list)
    status: str = "pending"

    def _make_id(self) -> str:
        return f"task:{self.task_id}"

    def inline_content(self) -> str:
        return self.description


@dataclass(slots=True, kw_only=True)
class MessageMemoryBlock(MemoryBlock):
    """A letter, as a reference. Unless a priority is passed, the block is HIGH until `read` is set, then MEDIUM."""

    KIND: ClassVar[MemoryType | None] = MemoryType.MESSAGE
    LOCATION_FIELD: ClassVar[str] = "full_path"
    CONTEXT_FIELDS: ClassVar[Mapping[str, str]] = {
        "from": "from_agent", "to": "to_agent", "subject": "subject", "read": "read", "source": "full_path",
    }  # fmt: skip

    # False if `read` decides the priority. It is the first field, because `__setattr__` needs it to set `read`.
    has_fixed_priority: bool = field(default=True, init=False, repr=False, compare=False)
    from_agent: str
    to_agent: str
    subject: str
    preview: str
    full_path: str
    read: bool = False
    message_id: str | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name == "read" and not self.has_fixed_priority:
            self.priority = Priority.MEDIUM if value else Priority.HIGH

    def __post_init__(self) -> None:
        has_priority = self.priority is not None
        MemoryBlock.__post_init__(self)
        if not has_priority:
            self.has_fixed_priority = False
            self.read = self.read

    def _make_id(self) -> str:
        return f"message:{self.message_id or self.full_path}"


@dataclass(slots=True, kw_only=True)
class KnowledgeMemoryBlock(MemoryBlock):
    """Knowledge: a file, or an entry of a store with the location `scheme:reference` (see `ContentLoader.sources`).

    `relevance_score` (0 to 1) is the similarity to the current focus. `metadata["lines"] = "12-20"` selects lines of the
    file.
    """

    KIND: ClassVar[MemoryType | None] = MemoryType.KNOWLEDGE
    LOCATION_FIELD: ClassVar[str] = "location"
    CONTEXT_FIELDS: ClassVar[Mapping[str, str]] = {
        "topic": "topic", "subtopic": "subtopic", "relevance": "relevance_score", "source": "location",
    }  # fmt: skip

    topic: str
    subtopic: str | None = None
    location: str
    relevance_score: float = 0.5

    def __post_init__(self) -> None:
        if not math.isfinite(self.relevance_score):
            raise UserError(
                f"a relevance must be between 0 and 1, not {self.relevance_score!r}", location=self.location
            )
        MemoryBlock.__post_init__(self)

    def _make_id(self) -> str:
        return f"knowledge:{self.location}#{self.subtopic}" if self.subtopic else f"knowledge:{self.location}"


@dataclass(slots=True, kw_only=True)
class HistoryMemoryBlock(MemoryBlock):
    """An action (the call of a tool) and its result."""

    KIND: ClassVar[MemoryType | None] = MemoryType.HISTORY
    CONTEXT_FIELDS: ClassVar[Mapping[str, str]] = {"action": "action_type", "result": "result"}

    action_type: str
    action_detail: str
    result: str | None = None

    def _make_id(self) -> str:
        return f"history:{_digest(self.action_type, self.action_detail, self.timestamp.isoformat())}"

    def inline_content(self) -> str:
        line = f"{self.action_type}: {self.action_detail}" if self.action_detail else self.action_type
        return line if self.result is None else f"{line}\n→ {self.result}"


@dataclass(slots=True, kw_only=True)
class ContextMemoryBlock(MemoryBlock):
    """A text that was derived from the blocks `related_ids` (`context_type`: "search", "project_context" …)."""

    KIND: ClassVar[MemoryType | None] = MemoryType.CONTEXT
    CONTEXT_FIELDS: ClassVar[Mapping[str, str]] = {"context_type": "context_type", "related_ids": "related_ids"}

    context_type: str
    summary: str
    related_ids: list[str] = field(default_factory=list)

    def _make_id(self) -> str:
        return f"context:{self.context_type}:{_digest(self.summary, *self.related_ids)}"

    def inline_content(self) -> str:
        return self.summary


# -- entries of a context -------------------------------------------------------------------------------------------


def json_fragment(entry: dict[str, Any]) -> str:
    """Return an entry as JSON text, in its form within a JSON list: after a blank and followed by a comma.

    A tokenizer splits a text at this blank, so the token counts of the fragments add up to the count of the list.
    """
    return f" {json.dumps(entry)},"


def context_entry(block: MemoryBlock, content: str, *, form: str = "full", is_external: bool = False) -> dict[str, Any]:
    """Return the entry that represents a block in a context.

    `form` says how complete `content` is: full, outline, excerpt or reference. `is_external` marks content from outside
    the hive.
    """
    line_range = {}
    if isinstance(block, FileMemoryBlock) and block.start_line is not None:
        line_range["lines"] = f"{block.start_line}-{block.end_line or ''}"
    return {
        "id": block.id,
        "content": content,
        "confidence": block.confidence,
        "priority": block.priority.name.lower(),
        # The program's own fields override the block's metadata, so a block cannot fake its type or origin.
        "metadata": {
            **json_copy(block.metadata),
            "type": block.type.value,
            "timestamp": block.timestamp.isoformat(),
            **{name: json_copy(getattr(block, field)) for name, field in block.CONTEXT_FIELDS.items()},
            **line_range,
            "origin": _origin(block, is_external),
            "form": form,
        },
    }


def _origin(block: MemoryBlock, is_external: bool) -> str:
    if block.type is MemoryType.ROM:
        return "rom"
    if is_external:
        return "external"
    claimed_origin = block.metadata.get("origin")
    if claimed_origin in _ORIGINS:
        return str(claimed_origin)
    if isinstance(block, MessageMemoryBlock):
        return _sender_origin(block.from_agent)
    if isinstance(block, TaskMemoryBlock):
        maker = str(block.metadata.get("maker", HUMAN))
        return "external" if "@" in maker else _sender_origin(maker)
    return "agent" if isinstance(block, HistoryMemoryBlock) else "hive"


def _sender_origin(name: str) -> str:
    try:
        return HUMAN if local_part(name) == HUMAN else "agent"
    except UserError:  # the name is not valid in a hive
        return "external"


def json_copy(value: Any) -> Any:
    """Return a copy of the value that JSON can represent; parts of other types become text."""
    if not isinstance(value, dict | list | float):
        return value
    try:
        with boundary("block's metadata"):
            return json.loads(json.dumps(value, default=str, skipkeys=True), parse_constant=str)
    except Unreadable as error:
        return {"error": error.message}
