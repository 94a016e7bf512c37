"""Bars: what fills a context, by kind of block; how busy somebody was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hivemind.agent.preview import Preview
from hivemind.web.drawing.svg import Shape, element, fitted, picture, text_width, told

_WIDTH, _BAR, _LINE = 960, 30, 20
_KINDS = 8
_STEP, _HEIGHT = 3, 18  # of a sparkline


def draw_budget(parts: Sequence[tuple[str, int]], budget: int, *, alone: bool = False) -> Shape:
    """The bar: (what, tokens) from left to right, then what is free; a legend below it."""
    used = sum(tokens for _, tokens in parts)
    scale = _WIDTH / max(budget, used, 1)
    x, shapes, legend = 0.0, [], []
    column, row = 0.0, 0
    for at, (name, tokens) in enumerate([*parts, ("free", max(0, budget - used))]):
        kind = "free" if at == len(parts) else f"part-{at % _KINDS}"
        title = element("title", f"{told(name)}: {tokens:,} tokens")
        shapes.append(element("rect", title, class_=kind, x=x, y=0, width=max(0.0, tokens * scale - 1), height=_BAR))
        x += tokens * scale
        label = fitted(f"{name} {tokens:,}", 300, 12)
        wide = text_width(label, 12) + 34
        if column + wide > _WIDTH:
            column, row = 0.0, row + 1
        y = _BAR + 10 + row * _LINE
        legend.append(element("rect", class_=kind, x=column, y=y, width=10, height=10, rx=2))
        legend.append(element("text", label, class_="label", x=column + 15, y=y + 9.5))
        column += wide
    height = _BAR + 16 + (row + 1) * _LINE
    return picture(
        _WIDTH, height, f"{used:,} of {budget:,} tokens", *shapes, *legend, alone=alone, class_="drawing budget"
    )


def budget_parts(preview: Preview) -> list[tuple[str, int]]:
    """What fills its context, by kind: the system message with the tools, what each kind of block takes, the rest."""
    kinds: dict[str, int] = defaultdict(int)
    for choice in preview.choices():
        if choice["in"]:
            kinds[choice["type"].lower()] += choice["tokens"]
    blocks = sorted(kinds.items(), key=lambda one: (-one[1], one[0]))
    rest = preview.tokens - sum(tokens for _, tokens in blocks)
    return [("system, tools, task", max(0, rest)), *blocks]


def sparkline(heights: Sequence[int], what: str) -> Shape:
    """Bars as high as the numbers, the newest last; a baseline where there was nothing."""
    most = max(heights, default=0)
    bars = [
        element("rect", class_="bar" if one else "none", x=at * _STEP, width=_STEP - 1, y=_HEIGHT - size, height=size)
        for at, one in enumerate(heights)
        for size in [max(2.0, one / most * _HEIGHT) if one else 1.0]
    ]
    return picture(len(heights) * _STEP, _HEIGHT, f"{sum(heights)} {what}", *bars, class_="sparkline")
