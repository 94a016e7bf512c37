"""One score from two: how well texts match by their words, and how near they are in meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["fused"]

_K = TypeVar("_K")


def fused(texts: Mapping[_K, float], alike: Mapping[_K, float]) -> dict[_K, float]:
    """One score from two: without vectors the text's own; else each brought to 0..1, meaning counting twice."""
    if not alike:
        return dict(texts)
    scores: dict[_K, float] = dict.fromkeys([*texts, *alike], 0.0)
    for part, weight in ((texts, 1.0), (alike, 2.0)):
        if part:
            least, most = min(part.values()), max(part.values())
            for key, value in part.items():
                scores[key] += weight * ((value - least) / (most - least) if most > least else 1.0)
    return scores
