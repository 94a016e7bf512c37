"""Folders without flushes, for tests of many writes and for what only a relaxed hive does; imports no pytest."""

from __future__ import annotations

from typing import TypeVar

from hivemind.fs import set_durability

_P = TypeVar("_P")


def relaxed(place: _P) -> _P:
    """Let this process flush nothing in a folder, in a file or at a database's URL, and return it."""
    set_durability(str(place), durable=False)
    return place
