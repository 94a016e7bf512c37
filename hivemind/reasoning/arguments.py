"""What callers give, checked before anything is done with it. Each raises GraphError that says what was meant."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from hivemind.reasoning.errors import GraphError

__all__ = ["a_list", "a_path", "a_text", "a_text_or_none", "a_whole_number"]


def a_text(value: object, what: str) -> str:
    """The text itself."""
    if not isinstance(value, str):
        raise GraphError(f"{what} is a text, not {value!r}")
    return value


def a_text_or_none(value: object, what: str) -> str | None:
    """The text, or None."""
    return None if value is None else a_text(value, what)


def a_whole_number(value: object, what: str, least: int) -> int:
    """The number, `least` or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise GraphError(f"{what} is a number of {least} or more, not {value!r}")
    return value


def a_list(value: object, what: str) -> list[Any]:
    """What stands in it, as a list; one text is none, nor is a mapping."""
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise GraphError(f"{what} are a list, not {value!r}")
    return list(value)


def a_path(value: object) -> str:
    """The path as a text."""
    try:
        return os.fsdecode(value)  # type: ignore[arg-type]
    except TypeError:
        raise GraphError(f"a path is a text or a Path, not {value!r}") from None
