"""Sense: mail, tasks and changed files become blocks. Each message becomes exactly one, also across a crash."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.mail import Message
from hivemind.masking import mask
from hivemind.memory import (
    FileMemoryBlock,
    MemoryBlock,
    MessageMemoryBlock,
    Priority,
    StatusMemoryBlock,
    TaskMemoryBlock,
)
from hivemind.presence.parts import Parts
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.review import read_request
from hivemind.taskrun.task_run import TaskRun

__all__ = ["asks_review", "message_block", "rom_blocks", "status_blocks", "task_blocks"]


def message_block(message: Message) -> MessageMemoryBlock:
    """The one block of a message; its id is the Message-ID, so that taking it in twice gives the same block."""
    told: dict[str, Any] = {"task": message.task, "in_reply_to": message.in_reply_to}
    if asks_review(message):
        told["asks"] = "review"
    if message.automatic:
        told["automatic"] = True
    origin = message.origin
    if origin != "agent":
        told["origin"] = origin
    return MessageMemoryBlock(
        from_agent=message.sender,
        to_agent=message.box,
        subject=mask(message.subject),
        preview=mask(message.preview),
        full_path=message.path,
        message_id=message.id,
        timestamp=message.date,
        metadata={key: value for key, value in told.items() if value is not None},
    )


def asks_review(message: Message) -> bool:
    """True for a request to check sources that can be read; one that can't is mail like any other."""
    try:
        return read_request(message.body) is not None
    except UserError:
        return False


def rom_blocks(hive: Parts, agent: str, extra: Iterable[str]) -> list[FileMemoryBlock]:
    """Read-only memory: rom/*.md for everyone, rom/<agent>/*.md for this one, and what its file names. README.md is none."""
    layout = hive.layout
    found: list[Path] = []
    for folder in (layout.rom, layout.rom / agent):
        if folder.is_dir():
            found += sorted(path for path in folder.glob("*.md") if path.name != "README.md" and path.is_file())
    found += [Path(os.path.join(layout.root, name)) for name in extra]
    return [FileMemoryBlock.rom(layout.relative(path)) for path in dict.fromkeys(found)]


def task_blocks(works: Collection[TaskRun], focus: Focus | None) -> list[MemoryBlock]:
    """A block for each task in hand, and one for each of its attachments while it is in focus."""
    blocks: list[MemoryBlock] = []
    for work in works:
        task = work.task
        in_focus = focus is not None and focus.work is work
        told: dict[str, Any] = {"title": mask(task.title), "maker": task.maker}
        if in_focus and focus is not None and focus.step is not None:
            told["step"] = focus.step.shown()
        blocks.append(
            TaskMemoryBlock(
                task_id=task.id,
                description=mask(task.full_text or task.title),
                project=task.project,
                dependencies=list(task.dependencies),
                status="in_progress" if in_focus else "waiting",
                metadata=told,
            )
        )
        if in_focus:
            blocks += [
                FileMemoryBlock(
                    location=str(path), priority=Priority.MEDIUM, metadata={"task_id": task.id, "origin": "human"}
                )
                for path in task.attachments
            ]
    return blocks


def status_blocks(values: Mapping[str, Any], now: datetime) -> list[StatusMemoryBlock]:
    """The Status blocks that sense keeps: mailbox, task_queue, system_health."""
    return [StatusMemoryBlock(status_type=kind, value=value, timestamp=now) for kind, value in values.items()]
