"""How busy somebody was: a bar for each span of time."""

from __future__ import annotations

from collections.abc import Sequence

from hivemind.web.drawing.svg import Shape, element, picture

__all__ = ["sparkline"]

_STEP, _HEIGHT = 3, 18


def sparkline(heights: Sequence[int], what: str) -> Shape:
    """Bars as high as the numbers, the newest last; a baseline where there was nothing."""
    most = max(heights, default=0)
    bars = [
        element("rect", class_="bar" if one else "none", x=at * _STEP, width=_STEP - 1, y=_HEIGHT - size, height=size)
        for at, one in enumerate(heights)
        for size in [max(2.0, one / most * _HEIGHT) if one else 1.0]
    ]
    return picture(len(heights) * _STEP, _HEIGHT, f"{sum(heights)} {what}", *bars, class_="sparkline")
