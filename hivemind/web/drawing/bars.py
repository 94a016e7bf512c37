"""Bar drawings: the tokens of a context by kind of block, and an agent's activity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hivemind.agent.preview import Preview
from hivemind.web.drawing.svg import Shape, element, fit_text, masked_line, picture, text_width

_WIDTH, _BAR, _LINE = 960, 30, 20
_COLOUR_COUNT = 8
_STEP, _HEIGHT = 3, 18  # of a sparkline


def draw_budget(parts: Sequence[tuple[str, int]], budget: int, *, is_standalone: bool = False) -> Shape:
    """Draw `parts` (name, tokens) and the tokens left of `budget` as one bar, from left to right, with a legend below."""
    used = sum(tokens for _, tokens in parts)
    scale = _WIDTH / max(budget, used, 1)
    x, shapes, legend = 0.0, [], []
    column, row = 0.0, 0
    for index, (name, tokens) in enumerate([*parts, ("free", max(0, budget - used))]):
        kind = "free" if index == len(parts) else f"part-{index % _COLOUR_COUNT}"
        title = element("title", f"{masked_line(name)}: {tokens:,} tokens")
        shapes.append(element("rect", title, class_=kind, x=x, y=0, width=max(0.0, tokens * scale - 1), height=_BAR))
        x += tokens * scale
        label = fit_text(f"{name} {tokens:,}", 300, 12)
        width = text_width(label, 12) + 34
        if column + width > _WIDTH:
            column, row = 0.0, row + 1
        y = _BAR + 10 + row * _LINE
        legend.append(element("rect", class_=kind, x=column, y=y, width=10, height=10, rx=2))
        legend.append(element("text", label, class_="label", x=column + 15, y=y + 9.5))
        column += width
    height = _BAR + 16 + (row + 1) * _LINE
    return picture(
        _WIDTH,
        height,
        f"{used:,} of {budget:,} tokens",
        *shapes,
        *legend,
        is_standalone=is_standalone,
        class_="drawing budget",
    )


def budget_parts(preview: Preview) -> list[tuple[str, int]]:
    """Return the parts of a context as (name, tokens): first the system message, tools and task together, then each
    kind of block."""
    kinds: dict[str, int] = defaultdict(int)
    for choice in preview.choices():
        if choice["in"]:
            kinds[choice["type"].lower()] += choice["tokens"]
    blocks = sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0]))
    other_tokens = preview.tokens - sum(tokens for _, tokens in blocks)
    return [("system, tools, task", max(0, other_tokens)), *blocks]


def sparkline(heights: Sequence[int], unit: str) -> Shape:
    """Draw a bar for each number of `heights`; a zero is a thin line. The title is their sum with `unit`, as in "12 turns"."""
    highest = max(heights, default=0)
    bars = [
        element(
            "rect", class_="bar" if count else "none", x=index * _STEP, width=_STEP - 1, y=_HEIGHT - size, height=size
        )
        for index, count in enumerate(heights)
        for size in [max(2.0, count / highest * _HEIGHT) if count else 1.0]
    ]
    return picture(len(heights) * _STEP, _HEIGHT, f"{sum(heights)} {unit}", *bars, class_="sparkline")
