"""A slice of the graph: the cards that signals are about, and how they bear on each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache

from hivemind.boundary import Unreadable, boundary
from hivemind.coordination import Event, Receipt
from hivemind.reasoning import FLUSHED, NodeKind, ReasoningGraph, ReasoningNode, Trace

__all__ = ["Slice", "is_open", "is_pinned", "moment"]

_GONE = ("rejected", "withdrawn")


def is_open(card: ReasoningNode) -> bool:
    return card.status == "open" and card.active is True


def is_pinned(card: ReasoningNode) -> bool:
    return card.pinned or "pinned" in card.tags


@lru_cache(maxsize=8192)  # many cards come with one change and carry one time
def moment(text: str | None) -> datetime | None:
    """The time that a record carries, in UTC, or None where it carries none that can be read."""
    if not text:
        return None
    with suppress(Unreadable), boundary("time"):
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return None


class Slice:
    """`cards` are what is looked at, newest first; what supports or blocks them may lie outside, if it is visible.

    `now` is the newest time in the slice, never the clock. `receipts` are those of the steps, by step id.
    """

    __slots__ = ("_visible", "agent_id", "cards", "events", "graph", "now", "receipts", "traces")

    def __init__(
        self,
        graph: ReasoningGraph,
        cards: Iterable[ReasoningNode],
        *,
        visible: frozenset[int],
        agent_id: str | None = None,
        traces: Sequence[Trace] = (),
        events: Sequence[Event] = (),
        receipts: dict[str, tuple[Receipt, ...]] | None = None,
    ) -> None:
        self.graph = graph
        self.cards = sorted(
            (card for card in cards if card.active is True and card.kind is not NodeKind.TASK),
            key=lambda card: (-card.created_seq, -card.node_id),
        )
        self.agent_id = agent_id
        self.traces = tuple(traces)
        self.events = tuple(events)
        self.receipts = receipts or {}
        self._visible = visible
        times = [moment(card.created_at) for card in self.cards] + [moment(trace.at) for trace in self.traces]
        self.now = max((time for time in times if time is not None), default=None)

    def of(self, *kinds: NodeKind) -> list[ReasoningNode]:
        """The cards of these kinds, newest first."""
        return [card for card in self.cards if card.kind in kinds]

    def supporters(self, number: int) -> list[ReasoningNode]:
        """What supports a card: links, and its evidence children (spec 4, *Two kinds of relation*). By id."""
        found = {link.src for link in self.graph.links_to(number, "supports")}
        found.update(child.node_id for child in self.graph.children(number) if child.kind is NodeKind.EVIDENCE)
        return self._counting(found)

    def blockers(self, number: int) -> list[ReasoningNode]:
        """What blocks a card, by id."""
        return self._counting({link.src for link in self.graph.links_to(number, "blocks")})

    def supported(self, number: int) -> list[ReasoningNode]:
        """What a card supports, by id."""
        found = {link.dst for link in self.graph.links_from(number, "supports")}
        if self.graph.nodes[number].kind is NodeKind.EVIDENCE:
            found.update(parent.node_id for parent in self.graph.parents(number))
        return [self.graph.nodes[one] for one in sorted(found & self._visible)]

    def evidence_for(self, number: int) -> list[ReasoningNode]:
        """The evidence that supports a card itself."""
        return [card for card in self.supporters(number) if card.kind is NodeKind.EVIDENCE]

    def _counting(self, numbers: set[int]) -> list[ReasoningNode]:
        nodes = [self.graph.nodes[number] for number in sorted(numbers & self._visible)]
        return [node for node in nodes if node.active != FLUSHED and node.status not in _GONE]
