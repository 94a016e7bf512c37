"""What stands in a task's log beside its graph: notes, the trace, branches (spec 3, *Views*, *Lanes, publish, branches*)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MAIN", "Branch", "Note", "Trace"]

MAIN = "main"


@dataclass(frozen=True, slots=True)
class Note:
    """What an agent wrote down in plain text. `at` is an ISO time in UTC."""

    seq: int
    at: str
    agent: str | None
    lane: str
    step: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Trace:
    """One action: who did what (`kind`), in which step, and how it went."""

    seq: int
    at: str
    agent: str | None
    lane: str
    step: str | None
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Branch:
    """An alternative within one task's graph: it sees its own entries, and its base's up to `base_seq`."""

    name: str
    base: str | None
    base_seq: int
