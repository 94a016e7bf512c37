"""One entry of a context: `{"id", "content", "confidence", "priority", "metadata"}` (spec 2, *Load, build, compress*)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.layout import HUMAN
from hivemind.memory.blocks import (
    FileMemoryBlock,
    HistoryMemoryBlock,
    MemoryBlock,
    MemoryType,
    MessageMemoryBlock,
    TaskMemoryBlock,
)
from hivemind.names import local_part

__all__ = ["ORIGINS", "Shown", "entry_of", "piece"]

Shown = Callable[[Sequence[dict[str, Any]]], str]
"""Makes of entries the text that a mind reads."""

ORIGINS = ("rom", "hive", "agent", "human", "external")


def piece(entry: dict[str, Any]) -> str:
    """An entry as it stands within `json.dumps` of a list of entries, with the blank before it and the comma after it.

    A tokenizer splits at that blank and never at what surrounds it, so the counts of pieces add up to the list's.
    """
    return f" {json.dumps(entry)},"


def entry_of(block: MemoryBlock, content: str, *, form: str = "full", outside: bool = False) -> dict[str, Any]:
    """The context entry of a block. `form` is full, outline, excerpt or reference; `outside`: its file is not the hive's."""
    return {
        "id": block.id,
        "content": content,
        "confidence": block.confidence,
        "priority": block.priority.name.lower(),
        # What the program knows goes over what the block brings along: nothing in a block can fake its type or origin.
        "metadata": {
            **(_plain(block.metadata) if block.metadata else {}),
            "type": block.type.value,
            "timestamp": block.timestamp.isoformat(),
            **{name: _copied(getattr(block, field)) for name, field in block.SHOWN.items()},
            **_lines(block),
            "origin": _origin(block, outside),
            "form": form,
        },
    }


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def _lines(block: MemoryBlock) -> dict[str, str]:
    """The lines of a file that a block is restricted to."""
    if not isinstance(block, FileMemoryBlock) or block.start_line is None:
        return {}
    return {"lines": f"{block.start_line}-{block.end_line or ''}"}


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


def _plain(metadata: dict[str, Any]) -> dict[str, Any]:
    """A copy that JSON can say: what it has no word for stands there as text."""
    try:
        with boundary("block's metadata"):
            copy: dict[str, Any] = json.loads(json.dumps(metadata, default=str, skipkeys=True))
    except Unreadable as error:
        return {"error": error.what}
    return copy
