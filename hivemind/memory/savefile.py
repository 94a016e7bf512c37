"""Working memory on disk: JSON lines, one line per save (format: README.md in this folder, *On disk*).

The first line says what the file is, every further line is one save: blocks that were set, ids that were dropped. A save
appends what changed since the last one; once the lines outweigh what they stand for, the file is written anew, atomically.
A last line without its end is a save that did not happen. An unknown version is refused and kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import reached, write
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

KIND = "working-memory"
VERSION = 1
SLACK = 65_536  # bytes of changes that are always tolerated before the file is written anew
BATCH = 1_000  # blocks a line of a file written anew
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


def _line(what: dict[str, Any]) -> bytes:
    return json.dumps(what, separators=(",", ":"), default=str, skipkeys=True).encode() + b"\n"


class SaveFile:
    """One file of saved blocks, and which of them have changed since."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._changed: dict[str, None] = {}  # ids in the order in which they changed first
        self._dropped: set[str] = set()
        self._stands: tuple[int, int] | None = None  # inode and size of the file as this object left it
        self._max_tokens: int | None = None  # as it was saved
        self._whole = 0  # its size when it was written anew

    def mark(self, memory_id: str) -> None:
        """The block of that id is new, or not as it was saved."""
        self._changed[memory_id] = None

    def mark_dropped(self, memory_id: str) -> None:
        """There is no block of that id any more. One that comes later comes at the end."""
        self._changed.pop(memory_id, None)
        self._dropped.add(memory_id)

    def save(self, blocks: Mapping[str, MemoryBlock], max_tokens: int, *, durable: bool) -> None:
        """Save the blocks. Raises UserError if the disk does not take them; what was saved before still stands then."""
        try:
            if self._stands is None or self._stands != self._found() or self._stands[1] > 2 * self._whole + SLACK:
                self._write_anew(blocks, max_tokens, durable)
            elif self._changed or self._dropped or max_tokens != self._max_tokens:
                self._append(blocks, max_tokens, durable)
        except OSError as error:
            self._stands = None
            raise UserError(
                f"working memory cannot be saved ({error.strerror})", where=self.path, mend="the save before it stands"
            ) from error
        self._changed = {}
        self._dropped = set()
        self._max_tokens = max_tokens

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size

    def _write_anew(self, blocks: Mapping[str, MemoryBlock], max_tokens: int, durable: bool) -> None:
        if self._found() is not None:
            self._refuse_unknown()
        lines = [_line({"kind": KIND, "version": VERSION, "max_tokens": max_tokens})]
        batch: list[dict[str, Any]] = []
        for block in blocks.values():
            batch.append(_record(block))
            if len(batch) == BATCH:
                lines.append(_line({"set": batch}))
                batch = []
        if batch:
            lines.append(_line({"set": batch}))
        whole = b"".join(lines)
        write(self.path, whole, durable=durable)
        reached("memory.save.written")
        self._whole = len(whole)
        self._stands = self._found()

    def _append(self, blocks: Mapping[str, MemoryBlock], max_tokens: int, durable: bool) -> None:
        line = _line(
            {
                "max_tokens": max_tokens,
                "drop": sorted(self._dropped),
                "set": [_record(blocks[name]) for name in self._changed],
            }
        )
        assert self._stands is not None
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            half = len(line) // 2
            _write_all(file, line[:half])
            reached("memory.save.torn")
            _write_all(file, line[half:])
            reached("memory.save.appended")
            if durable:
                os.fdatasync(file)
        finally:
            os.close(file)
        self._stands = self._stands[0], self._stands[1] + len(line)

    def _refuse_unknown(self) -> None:
        with open(self.path, "rb") as file:
            first = file.readline()
        if first:
            _check_header(first, self.path)

    def load(self) -> tuple[list[MemoryBlock], int]:
        """The blocks in their order, and max_tokens. Raises Unreadable if it is damaged, UnknownVersion, and UserError if
        there is none."""
        try:
            raw = read_input(self.path)
        except OSError as error:
            raise UserError(f"no working memory can be read ({error.strerror})", where=self.path) from None
        end = raw.rfind(b"\n") + 1
        lines = raw[:end].splitlines()
        max_tokens = _check_header(lines[0] if lines else raw, self.path)
        records: dict[str, dict[str, Any]] = {}
        for number, line in enumerate(lines[1:], start=2):
            with boundary("save", f"{self.path}:{number}", mend=_MEND):
                saved = json.loads(line)
                for memory_id in saved.get("drop", ()):
                    records.pop(memory_id, None)
                for record in saved.get("set", ()):
                    records[record["id"]] = record
                max_tokens = int(saved.get("max_tokens", max_tokens))
        with boundary("working memory", self.path, mend=_MEND):
            blocks = [_block(record) for record in records.values()]
        # A save that was cut off is written over, by writing the file anew.
        self._stands = self._found() if end == len(raw) else None
        self._whole, self._max_tokens = end, max_tokens
        return blocks, max_tokens


def _check_header(line: bytes, path: str) -> int:
    """max_tokens in the first line. Raises Unreadable if it is no such file, UnknownVersion for another version."""
    with boundary(f"{KIND} file", path, mend=_MEND):
        header = json.loads(line)
        kind, version, max_tokens = header["kind"], header["version"], int(header.get("max_tokens", 0))
    if kind != KIND:
        raise Unreadable(f"is no {KIND} file but of kind {kind!r}", where=path, mend=_MEND)
    if version == VERSION:
        return max_tokens
    raise UnknownVersion(
        f"is a {KIND} file of version {version}, this program knows version {VERSION}",
        where=path,
        mend="use the hivemind that wrote it, or move the file away",
    )


def _write_all(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
