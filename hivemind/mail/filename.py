"""The names of message files in a Maildir: unique base name, then `:2,` and the flags in ASCII order."""

from __future__ import annotations

import os
import re
import secrets
import socket
from datetime import datetime
from itertools import count

__all__ = ["Names", "add_flags", "is_dropping", "is_own", "is_unique", "join", "second", "sort_key", "split", "stem"]

# <seconds>.M<microseconds>P<pid>Q<count>R<random>.<host>: only the runtime gives such names
_OWN = re.compile(r"(\d{1,12})\.M(\d{6})P(\d+)Q(\d+)R[0-9a-f]{8}\.[a-z0-9-]+")
# what mail programs give: seconds, something unique, host
_UNIQUE = re.compile(r"(\d{9,12})\.([^./]+)\..+", re.DOTALL)
_DROPPINGS = ("~", ".swp", ".swo", ".swx", ".tmp")
_SECOND = ",U="  # a hand-given name that was taken a second time carries a unique attribute, as Maildir++ writes them


class Names:
    """Makes base names that no other delivery can have: time, microseconds, process, counter, random number, host."""

    __slots__ = ("_count", "_host", "_random")

    def __init__(self, host: str | None = None) -> None:
        plain = re.sub(r"[^a-z0-9]+", "-", (host or socket.gethostname()).split(".")[0].lower()).strip("-")
        self._host = plain or "localhost"
        self._random = secrets.token_hex(4)
        self._count = count()

    def fresh(self, now: datetime) -> str:
        seconds = max(0, int(now.timestamp()))
        serial = f"M{now.microsecond:06d}P{os.getpid()}Q{next(self._count)}R{self._random}"
        return f"{seconds}.{serial}.{self._host}"


def split(name: str) -> tuple[str, str]:
    """(base name, flags) of a file name."""
    base, _, flags = name.partition(":2,")
    return base, flags


def join(base: str, flags: str) -> str:
    """The file name in cur/: flags sorted in ASCII order, each once."""
    return f"{base}:2,{''.join(sorted(set(flags)))}"


def add_flags(name: str, flags: str) -> str:
    """The file name with `flags` set beside those it has."""
    base, had = split(name)
    return join(base, had + flags)


def is_own(base: str) -> bool:
    """True for a name that `Names` made: the file was finished before it got it, and nobody else has that name."""
    return _OWN.fullmatch(base) is not None


def is_unique(base: str) -> bool:
    """True for a name as mail programs give them; false for one that a person gave, and may give again."""
    return _OWN.fullmatch(base) is not None or _UNIQUE.fullmatch(base) is not None


def stem(base: str) -> str:
    """The base name without the attribute that a second file of the same hand-given name has got."""
    return base.partition(_SECOND)[0]


def second(base: str, unique: str) -> str:
    """Another base name for a file whose hand-given name is taken."""
    return f"{stem(base)}{_SECOND}{unique}"


def sort_key(base: str) -> tuple[int, int, int, int] | None:
    """Oldest first: (seconds, microseconds, process, count); None for a hand-given name, whose file knows its time."""
    own = _OWN.fullmatch(base)
    if own:
        return int(own[1]), int(own[2]), int(own[3]), int(own[4])
    found = _UNIQUE.fullmatch(base)
    if not found:
        return None
    fraction = re.match(r"M(\d{1,6})", found[2])
    return int(found[1]), int(fraction[1]) if fraction else 0, 0, 0


def is_dropping(name: str) -> bool:
    """True for what editors leave while they save (dot files, `~`, `.swp`, `.tmp`, `4913`): no messages."""
    return name.startswith(".") or name.endswith(_DROPPINGS) or name == "4913"
