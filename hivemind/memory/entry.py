"""One entry of a context: `{"id", "content", "confidence", "priority", "metadata"}` (spec 2, *Load, build, compress*)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.layout import HUMAN
from hivemind.memory.blocks import (
    ContextMemoryBlock,
    FileMemoryBlock,
    HistoryMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    MemoryType,
    MessageMemoryBlock,
    StatusMemoryBlock,
    TaskMemoryBlock,
)
from hivemind.names import local_part

__all__ = ["ORIGINS", "Shown", "entry_of", "own_content", "piece"]

Shown = Callable[[Sequence[dict[str, Any]]], str]
"""Makes of entries the text that a mind reads."""

ORIGINS = ("rom", "hive", "agent", "human", "external")


def piece(entry: dict[str, Any]) -> str:
    """An entry as it stands within `json.dumps` of a list of entries, with the blank before it and the comma after it.

    A tokenizer splits at that blank and never at what surrounds it, so the counts of pieces add up to the list's.
    """
    return f" {json.dumps(entry)},"


def own_content(block: MemoryBlock) -> str | None:
    """The content of a block that carries it itself, or None for one that points at it (file, message, knowledge)."""
    if isinstance(block, TaskMemoryBlock):
        return block.description
    if isinstance(block, StatusMemoryBlock):
        return block.value if isinstance(block.value, str) else _json(block.value)
    if isinstance(block, HistoryMemoryBlock):
        line = f"{block.action_type}: {block.action_detail}" if block.action_detail else block.action_type
        return line if block.result is None else f"{line}\n→ {block.result}"
    if isinstance(block, ContextMemoryBlock):
        return block.summary
    if isinstance(block, FileMemoryBlock | MessageMemoryBlock | KnowledgeMemoryBlock):
        return None
    return str(block.metadata.get("content", ""))


def entry_of(block: MemoryBlock, content: str, *, form: str = "full", outside: bool = False) -> dict[str, Any]:
    """The context entry of a block. `form` is full, outline, excerpt or reference; `outside`: its file is not the hive's."""
    return {
        "id": block.id,
        "content": content,
        "confidence": block.confidence,
        "priority": block.priority.name.lower(),
        "metadata": _metadata(block, form, outside),
    }


def _metadata(block: MemoryBlock, form: str, outside: bool) -> dict[str, Any]:
    # What the program knows goes over what the block brings along: nothing in a block can fake its type or origin.
    return {
        **(_plain(block.metadata) if block.metadata else {}),
        "type": block.type.value,
        "timestamp": block.timestamp.isoformat(),
        **_fields(block),
        "origin": _origin(block, outside),
        "form": form,
    }


def _fields(block: MemoryBlock) -> dict[str, Any]:
    if isinstance(block, FileMemoryBlock):
        fields: dict[str, Any] = {"source": block.location}
        if block.start_line is not None:
            fields["lines"] = f"{block.start_line}-{block.end_line or ''}"
        return fields
    if isinstance(block, TaskMemoryBlock):
        return {
            "task_id": block.task_id,
            "status": block.status,
            "project": block.project,
            "dependencies": list(block.dependencies),
        }
    if isinstance(block, MessageMemoryBlock):
        return {
            "from": block.from_agent,
            "to": block.to_agent,
            "subject": block.subject,
            "read": block.read,
            "source": block.full_path,
        }
    if isinstance(block, KnowledgeMemoryBlock):
        return {
            "topic": block.topic,
            "subtopic": block.subtopic,
            "relevance": block.relevance_score,
            "source": block.location,
        }
    if isinstance(block, HistoryMemoryBlock):
        return {"action": block.action_type, "result": block.result}
    if isinstance(block, ContextMemoryBlock):
        return {"context_type": block.context_type, "related_ids": list(block.related_ids)}
    return {"status_type": block.status_type} if isinstance(block, StatusMemoryBlock) else {}


def _origin(block: MemoryBlock, outside: bool) -> str:
    if block.type is MemoryType.ROM:
        return "rom"
    if outside:
        return "external"
    said = block.metadata.get("origin")
    if said in ORIGINS and said != "rom":
        return str(said)
    if isinstance(block, MessageMemoryBlock):
        return _sender(block.from_agent)
    if isinstance(block, TaskMemoryBlock):
        return _sender(str(block.metadata.get("maker", HUMAN)))
    return "agent" if isinstance(block, HistoryMemoryBlock) else "hive"


def _sender(name: str) -> str:
    try:
        return HUMAN if local_part(name) == HUMAN else "agent"
    except UserError:  # a name that nobody in a hive can have
        return "external"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
    except (ValueError, RecursionError):  # refers to itself
        return repr(value)


def _plain(metadata: dict[str, Any]) -> dict[str, Any]:
    """A copy that JSON can say: what it has no word for stands there as text."""
    try:
        with boundary("block's metadata"):
            copy: dict[str, Any] = json.loads(json.dumps(metadata, default=str, skipkeys=True))
    except Unreadable as error:
        return {"error": error.what}
    return copy
