"""Head and tail of a text, with a mark of what was cut."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["excerpt"]


def excerpt(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """The beginning (two thirds) and the end (one third) of a text in at most `max_tokens`, cut at line ends where it can.

    The mark between them says how many characters and lines are missing. If not even the mark fits: as much of the beginning
    as does.
    """
    low, high = 0, min(len(text), 16 * max_tokens)  # characters kept: low is known to fit
    best = ""
    while low < high:
        keep = (low + high + 1) // 2
        cut = _cut(text, keep)
        if count(cut) <= max_tokens:
            low, best = keep, cut
        else:
            high = keep - 1
        if high - low <= max(8, low // 50):  # near enough: each look costs a count
            break
    return best or _beginning(text, max_tokens, count)


def _cut(text: str, keep: int) -> str:
    head, tail = text[: keep * 2 // 3], text[len(text) - keep // 3 :]
    at = head.rfind("\n")
    if at > len(head) // 2:
        head = head[: at + 1]
    at = tail.find("\n")
    if 0 <= at < len(tail) // 2:
        tail = tail[at + 1 :]
    missing = text[len(head) : len(text) - len(tail)]
    lines = missing.count("\n")
    mark = f"[… {len(missing)} characters, {lines} lines cut …]"
    return "\n".join(part for part in (head.removesuffix("\n"), mark, tail) if part)


def _beginning(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    for length in range(min(len(text), 16 * max_tokens), 0, -1):
        if count(text[:length]) <= max_tokens:
            return text[:length]
    return ""
