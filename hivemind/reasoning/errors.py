"""What the reasoning graph refuses: its errors, and the checks of arguments that raise them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from hivemind.errors import UserError

__all__ = ["BudgetTooSmall", "GraphError", "a_list", "a_path", "a_text", "a_text_or_none", "a_whole_number"]


class GraphError(UserError):
    """Something that the graph refuses. Nothing has changed."""


class BudgetTooSmall(GraphError):
    """A context can't be made so small; `least` is the least budget, in tokens, that would do."""

    def __init__(self, budget: int, least: int) -> None:
        super().__init__(
            f"what must stay in the context needs {least} tokens, the budget is {budget}",
            mend=f"give a budget of at least {least} tokens",
        )
        self.least = least


def a_text(value: object, what: str) -> str:
    """The text itself."""
    if not isinstance(value, str):
        raise GraphError(f"{what} must be text, not {value!r}")
    return value


def a_text_or_none(value: object, what: str) -> str | None:
    """The text, or None."""
    return None if value is None else a_text(value, what)


def a_whole_number(value: object, what: str, least: int) -> int:
    """The number, `least` or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise GraphError(f"{what} must be a whole number of {least} or more, not {value!r}")
    return value


def a_list(value: object, what: str) -> list[Any]:
    """The items as a list; a text or a mapping is refused."""
    if type(value) is list or type(value) is tuple:
        return list(value)
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise GraphError(f"{what} must be a list, not {value!r}")
    return list(value)


def a_path(value: object) -> str:
    """The path as text."""
    try:
        return os.fsdecode(value)  # type: ignore[arg-type]
    except TypeError:
        raise GraphError(f"a path must be a text or a Path, not {value!r}") from None
