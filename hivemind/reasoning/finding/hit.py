"""What a search in the graphs gives."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hivemind.search import Confidence

__all__ = ["Found", "NodeHit"]


@dataclass(frozen=True, slots=True)
class NodeHit:
    """A node that answers, and where it stands.

    `place` is the state of its task (inbox, active, done, failed), `state` its own: active, folded, flushed, superseded.
    `path` is the file of its graph, within the hive. `similarity` is the cosine of its meaning (0 to 1; 0 without one),
    `score` orders hits of one search, higher is better; `why` says in words what was found,
    `confidence` how far it can be trusted to answer.
    """

    task: str
    place: str
    node_id: int
    kind: str
    lane: str
    state: str
    title: str
    text: str
    score: float
    similarity: float
    why: str
    path: str
    confidence: Confidence

    def as_dict(self) -> dict[str, Any]:
        """The hit as JSON has it."""
        return {**asdict(self), "confidence": self.confidence.level}


@dataclass(frozen=True, slots=True)
class Found:
    """Hits, best first, and in sentences what a reader should know of the search: graphs that could not be read and were
    passed over, an index that was damaged, what could be looked for by its words only."""

    hits: tuple[NodeHit, ...]
    remarks: tuple[str, ...] = ()
