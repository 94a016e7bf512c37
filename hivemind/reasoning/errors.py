"""What the reasoning graph refuses, and why."""

from __future__ import annotations

from hivemind.errors import UserError

__all__ = ["BudgetTooSmall", "GraphError"]


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
