"""Memory blocks: slotted references, never the content of a file (spec 2, *Blocks*; seed 004, *Symbolic Memory Model*)."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar

from hivemind.boundary import boundary
from hivemind.errors import UserError

__all__ = [
    "ContextMemoryBlock",
    "FileMemoryBlock",
    "HistoryMemoryBlock",
    "KnowledgeMemoryBlock",
    "MemoryBlock",
    "MemoryType",
    "MessageMemoryBlock",
    "Priority",
    "StatusMemoryBlock",
    "TaskMemoryBlock",
    "next_version",
]


class Priority(Enum):
    """How hard a block is to drop from a context."""

    CRITICAL = 1  # always in, never dropped
    HIGH = 2
    MEDIUM = 3
    LOW = 4


class MemoryType(Enum):
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


next_version = itertools.count(1).__next__


def _now() -> datetime:
    return datetime.now(UTC)


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(slots=True, kw_only=True)
class MemoryBlock:
    """What every block has. `confidence` is 0 to 1; times are UTC (one without a zone is taken as UTC).

    `type` and `id` are set by the class; an `id` that is passed wins. Raises UserError for a confidence that is no
    number from 0 to 1.
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
    # Another number after each change of a field that is saved; no two blocks, and no two states of one, have the same.
    version: int = field(default=0, init=False, repr=False, compare=False)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name not in ("counted", "version"):
            object.__setattr__(self, "version", next_version())

    def __post_init__(self) -> None:
        if self.KIND is not None:
            self.type = self.KIND
        elif self.type is None:
            raise UserError("a bare MemoryBlock needs a type")
        if self.priority is None:
            self.priority = self.PRIORITY
        if not 0.0 <= self.confidence <= 1.0:
            raise UserError(f"a confidence is a number from 0 to 1, not {self.confidence!r}")
        if self.timestamp is None:
            self.timestamp = _now()
        elif self.timestamp.tzinfo is not UTC:
            self.timestamp = _utc(self.timestamp)
        if self.expiry is not None and self.expiry.tzinfo is not UTC:
            self.expiry = _utc(self.expiry)
        if self.metadata is None:
            self.metadata = {}
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
        if self.start_line is not None or self.end_line is not None:
            self._check_lines()
        MemoryBlock.__post_init__(self)
        if rom:
            self.type = MemoryType.ROM
            self.priority = Priority.CRITICAL

    def _check_lines(self) -> None:
        start, end = self.start_line, self.end_line
        if start is None:
            start = 1
            self.start_line = 1
        if start < 1 or (end is not None and end < start):
            raise UserError(
                f"no lines {start}-{end or ''}", where=self.location, mend="lines count from 1, both ends belong to it"
            )

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

    def __post_init__(self) -> None:
        if self.dependencies is None:
            self.dependencies = []
        MemoryBlock.__post_init__(self)

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
        MemoryBlock.__setattr__(self, name, value)
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
            raise UserError(f"a relevance is a number from 0 to 1, not {self.relevance_score!r}", where=self.location)
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

    def __post_init__(self) -> None:
        if self.related_ids is None:
            self.related_ids = []
        MemoryBlock.__post_init__(self)

    def _make_id(self) -> str:
        return f"context:{self.context_type}:{_digest(self.summary, *self.related_ids)}"

    def own_content(self) -> str:
        return self.summary
