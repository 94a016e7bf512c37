"""What fills a context: a bar of its token budget by kind of block."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from hivemind.web.drawing.svg import element, fitted, picture, text_width

__all__ = ["draw_budget"]

_WIDTH, _BAR, _LINE = 960, 30, 20
_KINDS = 8


def draw_budget(parts: Sequence[tuple[str, int]], budget: int, *, alone: bool = False) -> Markup:
    """The bar: (what, tokens) from left to right, then what is free; a legend below it."""
    used = sum(tokens for _, tokens in parts)
    scale = _WIDTH / max(budget, used, 1)
    x, shapes, legend = 0.0, [], []
    column, row = 0.0, 0
    for at, (name, tokens) in enumerate([*parts, ("free", max(0, budget - used))]):
        kind = "free" if at == len(parts) else f"part-{at % _KINDS}"
        title = element("title", escape(f"{name}: {tokens:,} tokens"))
        shapes.append(element("rect", title, class_=kind, x=x, y=0, width=max(0.0, tokens * scale - 1), height=_BAR))
        x += tokens * scale
        label = fitted(f"{name} {tokens:,}", 300, 12)
        wide = text_width(label, 12) + 34
        if column + wide > _WIDTH:
            column, row = 0.0, row + 1
        y = _BAR + 10 + row * _LINE
        legend.append(element("rect", class_=kind, x=column, y=y, width=10, height=10, rx=2))
        legend.append(element("text", escape(label), class_="label", x=column + 15, y=y + 9.5))
        column += wide
    height = _BAR + 16 + (row + 1) * _LINE
    return picture(
        _WIDTH, height, f"{used:,} of {budget:,} tokens", *shapes, *legend, alone=alone, class_="drawing budget"
    )
