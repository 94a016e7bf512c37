"""The body of a mail, and where it lies now (spec 1, *Mail*: a mail program may move it from new/ to cur/)."""

from __future__ import annotations

import os
from collections.abc import Callable

from hivemind.boundary import boundary

__all__ = ["body_of", "moved_to"]


def body_of(text: str) -> str:
    """The text of a message (RFC 5322, or none at all: then all of it). Raises Unreadable."""
    from hivemind.mail.parse import parse_message  # late: a context without mail needs no parser

    with boundary("letter"):
        return parse_message(text.encode("utf-8", "surrogateescape"), "").body


def moved_to(full_path: str, path_of: Callable[[str], str]) -> str:
    """The path of a message of a Maildir: as it was, or in cur/ with flags, if it has been read since."""
    path = path_of(full_path)
    if os.path.exists(path):
        return full_path
    folder, name = os.path.split(path)
    box, place = os.path.split(folder)
    if place not in ("new", "cur"):
        return full_path
    base = name.partition(":")[0]
    try:
        names = sorted(os.listdir(os.path.join(box, "cur")))
    except OSError:
        return full_path
    return next((os.path.join(box, "cur", name) for name in names if name.partition(":")[0] == base), full_path)
