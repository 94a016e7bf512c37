"""A text within a number of tokens: its beginning and its end, and where the whole of it is."""

from __future__ import annotations

from collections.abc import Callable

from hivemind.tools.excerpt import shortened

__all__ = ["within"]

_CHARS_A_TOKEN = 4


def within(text: str, tokens: int, count: Callable[[str], int], where: str) -> str:
    """The text, whole if it has at most `tokens` tokens, else shortened to that."""
    chars = max(200, tokens * _CHARS_A_TOKEN)
    while count(text) > tokens and chars >= 200:
        cut = shortened(text, chars, f"read_file(path={where!r})")
        if count(cut) <= tokens or chars == 200:
            return cut
        chars = max(200, chars * 3 // 4)
    return text
