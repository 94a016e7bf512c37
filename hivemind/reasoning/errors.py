"""What the reasoning graph refuses, and input turned into values or that error."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from hivemind.boundary import Unreadable, checked
from hivemind.errors import UserError

__all__ = ["BudgetTooSmall", "GraphError", "parse"]

_M = TypeVar("_M", bound=BaseModel)


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


def parse(model: type[_M], value: object) -> _M:
    """The value as that model. Raises GraphError that names the place and the problem."""
    if isinstance(value, model):
        return value
    try:
        return checked(model, value, model.__name__)
    except Unreadable as error:
        raise GraphError(error.what) from None
