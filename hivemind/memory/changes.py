"""What changed between two contexts (spec 2, *Lifecycle*; seed 004, *Differential Memory*)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Changes", "diff"]


@dataclass(frozen=True, slots=True)
class Changes:
    """Ids, each list in the order of the context that it is from (`left`: the earlier one's)."""

    entered: list[str]
    left: list[str]
    changed: list[str]

    def __bool__(self) -> bool:
        return bool(self.entered or self.left or self.changed)


def diff(previous: Iterable[Mapping[str, Any]], current: Iterable[Mapping[str, Any]]) -> Changes:
    """What entered, left and changed from one context (a list of entries) to another."""
    before = {entry["id"]: entry for entry in previous}
    now = {entry["id"]: entry for entry in current}
    return Changes(
        entered=[name for name in now if name not in before],
        left=[name for name in before if name not in now],
        changed=[name for name, entry in now.items() if name in before and entry != before[name]],
    )
