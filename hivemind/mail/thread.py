"""A conversation: all messages that are joined by In-Reply-To and References."""

from __future__ import annotations

from hivemind.boundary import Unreadable
from hivemind.mail.boxes import Boxes
from hivemind.mail.maildir import Entry
from hivemind.mail.message import Message
from hivemind.mail.reading import Reader

__all__ = ["thread"]

_FOLDERS = ("inbox", "archive", "sent", "dead")


def thread(reader: Reader, boxes: Boxes, box: str, start: Message) -> list[Message]:
    """Every message of the mailbox and its sub-folders in the thread of `start`, oldest first, each once."""
    found: dict[str, tuple[str, Entry]] = {}
    joined: dict[str, set[str]] = {}
    for folder in _FOLDERS:
        maildir = boxes.get(box, folder)
        for entry in maildir.entries():
            try:
                head = reader.read_head(maildir, entry)
            except Unreadable:  # it belongs to no thread
                continue
            if head is None:
                continue
            parsed, id_ = head.parsed, head.id
            found.setdefault(id_, (folder, head.entry))
            for other in (*parsed.references, *([parsed.in_reply_to] if parsed.in_reply_to else [])):
                joined.setdefault(id_, set()).add(other)
                joined.setdefault(other, set()).add(id_)
    members = _reachable(start.id, joined)
    messages = []
    for id_ in members & found.keys():
        folder, entry = found[id_]
        try:
            message = reader.read_message(box, boxes.get(box, folder), entry)
        except Unreadable:  # its head can be read, the rest cannot
            continue
        if message is not None:
            messages.append(message)
    return sorted(messages, key=lambda message: (message.date, message.base))


def _reachable(start: str, joined: dict[str, set[str]]) -> set[str]:
    seen, todo = {start}, [start]
    while todo:
        for other in joined.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen
