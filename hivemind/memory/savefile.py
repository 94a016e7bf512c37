"""Working memory on disk: a log with a record for each save (format: README.md in this folder, *On disk*).

A record says which blocks were set and which ids dropped since the one before; once the records outweigh what they stand
for, the log is rewritten.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.fs import Log
from hivemind.memory.blocks import (
    ContextMemoryBlock,
    FileMemoryBlock,
    HistoryMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    MemoryType,
    MessageMemoryBlock,
    Priority,
    StatusMemoryBlock,
    TaskMemoryBlock,
)

__all__ = ["SaveFile"]

SLACK = 65_536  # bytes of changes that are always tolerated before the file is written anew
BATCH = 1_000  # blocks a record of a log that is rewritten
_MEND = "hivemind doctor --fix sets it aside"

_CLASSES: dict[str, type[MemoryBlock]] = {
    "file": FileMemoryBlock,
    "status": StatusMemoryBlock,
    "task": TaskMemoryBlock,
    "message": MessageMemoryBlock,
    "knowledge": KnowledgeMemoryBlock,
    "history": HistoryMemoryBlock,
    "context": ContextMemoryBlock,
    "block": MemoryBlock,
}
_NAMES = {kind: name for name, kind in _CLASSES.items()}
_FIELDS = {kind: [item.name for item in fields(kind) if item.init] for kind in _NAMES}
_PLAIN = {
    kind: [name for name in names if name not in ("type", "priority", "timestamp", "expiry")]
    for kind, names in _FIELDS.items()
}


def _record(block: MemoryBlock) -> dict[str, Any]:
    kind = type(block)
    record: dict[str, Any] = {"class": _NAMES[kind], "type": block.type.value}
    for name in _PLAIN[kind]:
        record[name] = getattr(block, name)
    if not isinstance(block, MessageMemoryBlock) or block.own_priority:
        record["priority"] = block.priority.name
    record["timestamp"] = block.timestamp.isoformat()
    if block.expiry is not None:
        record["expiry"] = block.expiry.isoformat()
    return record


def _block(record: dict[str, Any]) -> MemoryBlock:
    kind = _CLASSES[record.pop("class")]
    record["type"] = MemoryType(record["type"])
    if "priority" in record:
        record["priority"] = Priority[record["priority"]]
    record["timestamp"] = datetime.fromisoformat(record["timestamp"])
    if "expiry" in record:
        record["expiry"] = datetime.fromisoformat(record["expiry"])
    return kind(**record)


class SaveFile:
    """One log of saved blocks, and which state of each it holds."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._log = Log(path, "working-memory", 2, numbered=True)
        self._saved: dict[str, int] = {}  # the version of each block that the log holds
        self._dropped: set[str] = set()
        self._max_tokens: int | None = None
        self._whole = 0  # the log's size when it was rewritten

    def drop(self, memory_id: str) -> None:
        """There is no block of that id any more. One that comes later comes at the end."""
        self._dropped.add(memory_id)
        self._saved.pop(memory_id, None)

    def save(self, blocks: Mapping[str, MemoryBlock], max_tokens: int, *, durable: bool) -> None:
        """Save the blocks. Raises UserError if the disk does not take them; what was saved before still stands then."""
        self._log.durable = durable
        now = {name: block.version for name, block in blocks.items()}
        try:
            if not 0 < self._log.size <= 2 * self._whole + SLACK or not self._log.is_untouched:
                self._log.rewrite(_saves(list(blocks.values()), max_tokens))
                self._whole = self._log.size
            elif self._dropped or now != self._saved or max_tokens != self._max_tokens:
                changed = [_record(blocks[name]) for name, version in now.items() if self._saved.get(name) != version]
                self._log.append({"max_tokens": max_tokens, "drop": sorted(self._dropped), "set": changed})
        except FileNotFoundError as error:
            raise UserError("cannot be written (its folder is gone)", where=self.path) from error
        self._saved, self._dropped, self._max_tokens = now, set(), max_tokens

    def load(self) -> tuple[list[MemoryBlock], int]:
        """The blocks in their order, and max_tokens. Raises Unreadable or LogDamaged if it is damaged, UnknownVersion, and
        UserError if there is none."""
        saves = self._log.read()
        if not saves:
            if not os.path.lexists(self.path):
                raise UserError("no working memory is there", where=self.path)
            raise Unreadable("holds no working memory", where=self.path, mend=_MEND)
        records: dict[str, dict[str, Any]] = {}
        max_tokens = 0
        with boundary("working memory", self.path, mend=_MEND):
            for save in saves:
                for memory_id in save.get("drop", ()):
                    records.pop(memory_id, None)
                for record in save.get("set", ()):
                    records[record["id"]] = record
                max_tokens = int(save.get("max_tokens", max_tokens))
            blocks = [_block(record) for record in records.values()]
        self._saved = {block.id: block.version for block in blocks}
        self._whole, self._max_tokens = self._log.size, max_tokens
        return blocks, max_tokens


def _saves(blocks: list[MemoryBlock], max_tokens: int) -> Iterator[dict[str, Any]]:
    """All blocks as they are, as saves of a log that has no others."""
    for at in range(0, max(1, len(blocks)), BATCH):
        yield {"max_tokens": max_tokens, "set": [_record(block) for block in blocks[at : at + BATCH]]}
