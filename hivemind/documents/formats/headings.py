"""How deep we are below headings, whatever numbers or signs a format gives them."""

from __future__ import annotations

__all__ = ["Headings"]


class Headings:
    """The levels of the headings that we are below, outermost first."""

    def __init__(self) -> None:
        self._levels: list[int] = []

    @property
    def depth(self) -> int:
        """The depth of what stands below them."""
        return len(self._levels) + 1

    def enter(self, level: int) -> int:
        """Begin a part of this level (any earlier one of it or below it ends); gives the heading's own depth."""
        while self._levels and self._levels[-1] >= level:
            self._levels.pop()
        depth = self.depth
        self._levels.append(level)
        return depth
