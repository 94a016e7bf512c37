"""Memory blocks, which refer to content and never hold a file's text, and their entries in a context (spec 2; seed 004)."""

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
    """How hard a block is to drop from a context."""

    CRITICAL = 1  # always in, never dropped
    HIGH = 2
    MEDIUM = 3
    LOW = 4


class MemoryType(StrEnum):
    """What a block refers to."""

    ROM = "rom"
    FILE = "file"
    STATUS = "status"
    TASK = "task"
    MESSAGE = "message"
    KNOWLEDGE = "knowledge"
    HISTORY = "history"
    CONTEXT = "context"


_AS_CLASS_SAYS: Any = None  # until __post_init__ has put in what the class says
_ORIGINS = ("hive", "agent", "human", "external")

Shown = Callable[[Sequence[dict[str, Any]]], str]
"""Turns entries into the text that a mind reads."""


def _now() -> datetime:
    return datetime.now(UTC)


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(slots=True, kw_only=True)
class MemoryBlock:
    """What every block has. `confidence` is 0 to 1; times are UTC (one without a zone is taken as UTC).

    `type` and `id` are set by the class; an `id` that is passed wins. Raises UserError for a confidence that is not
    between 0 and 1.
    """

    KIND: ClassVar[MemoryType | None] = None
    PRIORITY: ClassVar[Priority] = Priority.MEDIUM
    SHOWN: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What its entry in a context says of it: the name there, and the field."""
    POINTER: ClassVar[str] = ""
    """The field that says where its content lies, if the block does not carry it itself."""

    type: MemoryType = _AS_CLASS_SAYS
    id: str = ""
    confidence: float = 1.0
    priority: Priority = _AS_CLASS_SAYS
    timestamp: datetime = field(default_factory=_now)
    expiry: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    # The exact count of its entry: tokens, by which counter, at which size and mtime (ns) of its file.
    counted: tuple[int, object, int, int] | None = field(default=None, init=False, repr=False, compare=False)

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
    def points_at(self) -> str | None:
        """Where its content lies; None for a block that carries its content itself."""
        return getattr(self, self.POINTER) if self.POINTER else None

    def own_content(self) -> str | None:
        """The content that the block carries itself, or None if it points at it."""
        return None if self.POINTER else str(self.metadata.get("content", ""))


def _utc(moment: datetime) -> datetime:
    with boundary("time"):
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


@dataclass(slots=True, kw_only=True)
class FileMemoryBlock(MemoryBlock):
    """A file, or the lines `start_line` to `end_line` of it (1-based, inclusive). `digest`: SHA-256 of the whole file.

    With one of the two lines given, the other end is the file's own. Two ranges of one file are two blocks.
    """

    KIND: ClassVar[MemoryType | None] = MemoryType.FILE
    POINTER: ClassVar[str] = "location"
    SHOWN: ClassVar[Mapping[str, str]] = {"source": "location"}

    location: str
    start_line: int | None = None
    end_line: int | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        rom = self.type is MemoryType.ROM
        if self.end_line is not None and self.start_line is None:
            self.start_line = 1
        if self.start_line is not None and not 0 < self.start_line <= (self.end_line or self.start_line):
            mend = "lines count from 1, both ends belong to the range"
            raise UserError(f"no lines {self.start_line}-{self.end_line or ''}", where=self.location, mend=mend)
        MemoryBlock.__post_init__(self)
        if rom:
            self.type, self.priority = MemoryType.ROM, Priority.CRITICAL

    def _make_id(self) -> str:
        return self.location if self.start_line is None else f"{self.location}:{self.start_line}-{self.end_line or ''}"

    @classmethod
    def rom(cls, location: str, **fields: Any) -> FileMemoryBlock:
        """A block for a file of `rom/`: always CRITICAL, never dropped, never compressed."""
        return cls(location=location, type=MemoryType.ROM, **fields)


@dataclass(slots=True, kw_only=True)
class StatusMemoryBlock(MemoryBlock):
    """The state of a part of the system ("mailbox", "task_queue", "system_health"); `value` is anything JSON can say."""

    KIND: ClassVar[MemoryType | None] = MemoryType.STATUS
    PRIORITY: ClassVar[Priority] = Priority.HIGH
    SHOWN: ClassVar[Mapping[str, str]] = {"status_type": "status_type"}

    status_type: str
    value: Any

    def _make_id(self) -> str:
        return f"status:{self.status_type}"

    def own_content(self) -> str:
        if isinstance(self.value, str):
            return self.value
        try:
            return json.dumps(self.value, ensure_ascii=False, default=str, skipkeys=True)
        except (ValueError, RecursionError):  # refers to itself
            return repr(self.value)


@dataclass(slots=True, kw_only=True)
class TaskMemoryBlock(MemoryBlock):
    """A task. `metadata["maker"]` (an agent's name, or "human") tells whose words the description is."""

    KIND: ClassVar[MemoryType | None] = MemoryType.TASK
    PRIORITY: ClassVar[Priority] = Priority.HIGH
    SHOWN: ClassVar[Mapping[str, str]] = {name: name for name in ("task_id", "status", "project", "dependencies")}

    task_id: str
    description: str
    project: str | None = None
    dependencies: list[str] = field(default_factory=list)
    status: str = "pending"

    def _make_id(self) -> str:
        return f"task:{self.task_id}"

    def own_content(self) -> str:
        return self.description


@dataclass(slots=True, kw_only=True)
class MessageMemoryBlock(MemoryBlock):
    """A mail. HIGH while unread and MEDIUM once read, also when `read` is set later, unless a priority was passed."""

    KIND: ClassVar[MemoryType | None] = MemoryType.MESSAGE
    POINTER: ClassVar[str] = "full_path"
    SHOWN: ClassVar[Mapping[str, str]] = {
        "from": "from_agent", "to": "to_agent", "subject": "subject", "read": "read", "source": "full_path",
    }  # fmt: skip

    # False where `read` decides the priority. Before the other fields, so that it is there when `read` is set.
    own_priority: bool = field(default=True, init=False, repr=False, compare=False)
    from_agent: str
    to_agent: str
    subject: str
    preview: str
    full_path: str
    read: bool = False
    message_id: str | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name == "read" and not self.own_priority:
            self.priority = Priority.MEDIUM if value else Priority.HIGH

    def __post_init__(self) -> None:
        own = self.priority is not None
        MemoryBlock.__post_init__(self)
        if not own:
            self.own_priority = False
            self.read = self.read

    def _make_id(self) -> str:
        return f"message:{self.message_id or self.full_path}"


@dataclass(slots=True, kw_only=True)
class KnowledgeMemoryBlock(MemoryBlock):
    """A piece of knowledge: a file, or what a store keeps under `scheme:reference` (see ContentLoader's `sources`).

    `relevance_score` (0 to 1) is its similarity to the current focus. `metadata["lines"] = "12-20"` narrows a file down.
    """

    KIND: ClassVar[MemoryType | None] = MemoryType.KNOWLEDGE
    POINTER: ClassVar[str] = "location"
    SHOWN: ClassVar[Mapping[str, str]] = {
        "topic": "topic", "subtopic": "subtopic", "relevance": "relevance_score", "source": "location",
    }  # fmt: skip

    topic: str
    subtopic: str | None = None
    location: str
    relevance_score: float = 0.5

    def __post_init__(self) -> None:
        if not math.isfinite(self.relevance_score):
            raise UserError(f"a relevance must be between 0 and 1, not {self.relevance_score!r}", where=self.location)
        MemoryBlock.__post_init__(self)

    def _make_id(self) -> str:
        return f"knowledge:{self.location}#{self.subtopic}" if self.subtopic else f"knowledge:{self.location}"


@dataclass(slots=True, kw_only=True)
class HistoryMemoryBlock(MemoryBlock):
    """An action that was taken, and what came of it."""

    KIND: ClassVar[MemoryType | None] = MemoryType.HISTORY
    SHOWN: ClassVar[Mapping[str, str]] = {"action": "action_type", "result": "result"}

    action_type: str
    action_detail: str
    result: str | None = None

    def _make_id(self) -> str:
        return f"history:{_digest(self.action_type, self.action_detail, self.timestamp.isoformat())}"

    def own_content(self) -> str:
        line = f"{self.action_type}: {self.action_detail}" if self.action_detail else self.action_type
        return line if self.result is None else f"{line}\n→ {self.result}"


@dataclass(slots=True, kw_only=True)
class ContextMemoryBlock(MemoryBlock):
    """Context derived from what happened ("project_context", "conversation_context"); `related_ids`: what it rests on."""

    KIND: ClassVar[MemoryType | None] = MemoryType.CONTEXT
    SHOWN: ClassVar[Mapping[str, str]] = {"context_type": "context_type", "related_ids": "related_ids"}

    context_type: str
    summary: str
    related_ids: list[str] = field(default_factory=list)

    def _make_id(self) -> str:
        return f"context:{self.context_type}:{_digest(self.summary, *self.related_ids)}"

    def own_content(self) -> str:
        return self.summary


# -- entries of a context -------------------------------------------------------------------------------------------


def piece(entry: dict[str, Any]) -> str:
    """An entry as it stands within `json.dumps` of a list of entries, with the blank before it and the comma after it.

    A tokenizer splits at that blank and never at what surrounds it, so the counts of pieces add up to the list's.
    """
    return f" {json.dumps(entry)},"


def entry_of(block: MemoryBlock, content: str, *, form: str = "full", outside: bool = False) -> dict[str, Any]:
    """The context entry of a block. `form` is full, outline, excerpt or reference; `outside`: its file is not the hive's."""
    lines = {}
    if isinstance(block, FileMemoryBlock) and block.start_line is not None:
        lines["lines"] = f"{block.start_line}-{block.end_line or ''}"
    return {
        "id": block.id,
        "content": content,
        "confidence": block.confidence,
        "priority": block.priority.name.lower(),
        # What the program knows goes over what the block brings along: nothing in a block can fake its type or origin.
        "metadata": {
            **plain(block.metadata),
            "type": block.type.value,
            "timestamp": block.timestamp.isoformat(),
            **{name: plain(getattr(block, field)) for name, field in block.SHOWN.items()},
            **lines,
            "origin": _origin(block, outside),
            "form": form,
        },
    }


def _origin(block: MemoryBlock, outside: bool) -> str:
    if block.type is MemoryType.ROM:
        return "rom"
    if outside:
        return "external"
    said = block.metadata.get("origin")
    if said in _ORIGINS:
        return str(said)
    if isinstance(block, MessageMemoryBlock):
        return _sender(block.from_agent)
    if isinstance(block, TaskMemoryBlock):
        maker = str(block.metadata.get("maker", HUMAN))
        return "external" if "@" in maker else _sender(maker)
    return "agent" if isinstance(block, HistoryMemoryBlock) else "hive"


def _sender(name: str) -> str:
    try:
        return HUMAN if local_part(name) == HUMAN else "agent"
    except UserError:  # a name that nobody in a hive can have
        return "external"


def plain(value: Any) -> Any:
    """A copy that JSON can hold: what JSON has no word for becomes text."""
    if not isinstance(value, dict | list | float):
        return value
    try:
        with boundary("block's metadata"):
            return json.loads(json.dumps(value, default=str, skipkeys=True), parse_constant=str)
    except Unreadable as error:
        return {"error": error.what}
