"""What a mind wrote as JSON, looked at before anything else is done with it: some of what JSON allows no log can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["DEEPEST", "fault_of", "whole_text"]

DEEPEST = 64
"""How many lists and objects may stand in each other: no tool asks for more than a few, and what walks them recurses."""


def fault_of(value: Any) -> str | None:
    """Why a JSON value can't be used, in words for the mind that wrote it, or None: nested too deeply, half a character,
    a number that is none."""
    level, depth = [value], 0
    while level:
        below: list[Any] = []
        for one in level:
            if isinstance(one, str):
                if whole_text(one) != one:
                    return "a text in it has half a character (a lone surrogate)"
            elif isinstance(one, float):
                if not math.isfinite(one):  # Python writes it, and no other program can read the log then
                    return "a number in it is none that JSON has (NaN, Infinity, or too large)"
            elif isinstance(one, Mapping):
                below += [*one, *one.values()]
            elif isinstance(one, list):
                below += one
        level, depth = below, depth + 1
        if level and depth > DEEPEST:
            return f"it is nested more than {DEEPEST} deep"
    return None


def whole_text(text: str) -> str:
    """The text with `?` for what no file can hold: halves of characters, which JSON can write."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
