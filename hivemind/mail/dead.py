"""The dead letters: what could not be read or handled goes to `.Dead` with the reason; nothing is dropped."""

from __future__ import annotations

import os
from datetime import datetime

from hivemind.fs import make_folder, move, reached, write
from hivemind.mail.filename import join, second, split
from hivemind.mail.header import one_line
from hivemind.mail.maildir import Entry, Maildir

__all__ = ["bury"]


def bury(box: Maildir, entry: Entry, reason: str, now: datetime, durable: bool) -> Entry | None:
    """Move a message to `.Dead` and say why in `.Dead/<base name>.why`; None if it has been deleted meanwhile.

    The reason is written first: a crash leaves a reason without its message, never a message without its reason.
    Moved back by hand, the message is tried again.
    """
    dead = box.sub("dead")
    make_folder(dead.cur, durable=durable)
    name = os.path.basename(entry.path)
    base = entry.base
    if os.path.lexists(os.path.join(dead.cur, join(base, entry.flags))):
        base = second(base, f"{now.timestamp():.6f}P{os.getpid()}")
    text = f"{now.isoformat(timespec='seconds')}\n{one_line(reason)}\nit was {'new' if entry.new else 'cur'}/{name}\n"
    why = text.encode("utf-8", "surrogateescape")
    write(os.path.join(dead.path, f"{base}.why"), why, durable=durable)
    reached("mail.dead.explained")
    target = os.path.join(dead.cur, join(base, entry.flags))
    try:
        move(entry.path, target, durable=durable)
    except FileNotFoundError:
        found = box.find(entry.base)
        if found is None:
            return None
        move(found.path, target, durable=durable)
    reached("mail.dead.moved")
    return Entry(base, split(target)[1], target, False)
