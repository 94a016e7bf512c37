"""What became of a message: told by the flags that it has in each recipient's mailbox."""

from __future__ import annotations

from typing import Literal

from hivemind.mail.boxes import Boxes
from hivemind.mail.message import Message
from hivemind.names import is_name

__all__ = ["Status", "status"]

Status = Literal["delivered", "read", "answered", "dead", "missing"]


def status(boxes: Boxes, sent: Message) -> dict[str, Status]:
    """Recipient -> what became of the message that stands in its sender's `.Sent`.

    It has the same base name everywhere, so that each mailbox is asked for one name.
    """
    return {name: _one(boxes, name, sent.base) for name in dict.fromkeys((*sent.to, *sent.cc))}


def _one(boxes: Boxes, name: str, base: str) -> Status:
    if not is_name(name):
        return "missing"
    for folder in ("inbox", "archive"):
        found = boxes.get(name, folder).find(base)
        if found is not None:
            if "R" in found.flags:
                return "answered"
            return "read" if "S" in found.flags else "delivered"
    return "missing" if boxes.get(name, "dead").find(base) is None else "dead"
