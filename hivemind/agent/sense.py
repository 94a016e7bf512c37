"""Sense: mail that has come in is taken up, and each message becomes exactly one block, also across a crash."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hivemind.mail import Message
from hivemind.masking import mask
from hivemind.memory import FileMemoryBlock, MessageMemoryBlock
from hivemind.minds import Turn
from hivemind.presence.parts import Parts

if TYPE_CHECKING:
    from hivemind.agent.agent import Agent

__all__ = ["message_block", "rom_blocks", "sense"]


def sense(agent: Agent, turn: Turn) -> None:  # noqa: ARG001 - what comes in is for the turns to come, too
    """Take in new mail, and let the tasks that wait hear it."""
    agent.scheduler.sense()


def message_block(message: Message) -> MessageMemoryBlock:
    """The one block of a message; its id is the Message-ID, so that taking it in twice makes the same block."""
    told: dict[str, Any] = {"task": message.task, "in_reply_to": message.in_reply_to}
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


def rom_blocks(hive: Parts, agent: str, extra: Iterable[str]) -> list[FileMemoryBlock]:
    """Read-only memory: rom/*.md for everyone, rom/<agent>/*.md for this one, and what its file names. README.md is none."""
    layout = hive.layout
    found: list[Path] = []
    for folder in (layout.rom, layout.rom / agent):
        if folder.is_dir():
            found += sorted(path for path in folder.glob("*.md") if path.name != "README.md" and path.is_file())
    found += [Path(os.path.join(layout.root, name)) for name in extra]
    return [FileMemoryBlock.rom(layout.relative(path)) for path in dict.fromkeys(found)]
