"""A reservation of paths (spec 7, *Files*)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Reservation"]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Paths within the hive that `agent_id` works on, as globs. Ends with its holder; `id` is the seq of its event."""

    id: int
    agent_id: str
    patterns: tuple[str, ...]
    shared: bool = False
    reason: str | None = None
