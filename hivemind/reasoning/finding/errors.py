"""What can go wrong with the index of graphs. Nothing that the graphs say is ever lost by it."""

from __future__ import annotations

from hivemind.errors import UserError

__all__ = ["GraphIndexDamaged", "GraphIndexError"]


class GraphIndexError(UserError):
    """The index cannot be read or written."""


class GraphIndexDamaged(GraphIndexError):
    """The file of the index is damaged; it is set aside and made anew."""
