"""One card of a reasoning graph on one line."""

from __future__ import annotations

from collections.abc import Iterable

from hivemind.cli.text import one_line

__all__ = ["card_line"]


def card_line(number: object, kind: str, marks: Iterable[str], title: str, text: str) -> str:
    """`7 [evidence, closed, agent/a] Title: text`; what is said twice is shown once."""
    title, text = one_line(title), one_line(text)
    told = ": ".join(part for part in (title, text if text != title else "") if part)
    return f"{number} [{', '.join(one_line(word) for word in (kind, *marks))}] {told}".rstrip()
