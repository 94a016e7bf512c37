"""A slice of the graph: the cards that signals are about, how they bear on each other, and how sure that makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.coordination import CoordinationError, Event, Receipt, receipts_of
from hivemind.reasoning import FLUSHED, NodeKind, ReasoningGraph, ReasoningNode, Trace

__all__ = ["Slice", "command_of", "is_open", "is_pinned", "moment"]

_GONE = ("rejected", "withdrawn")
_DEPTH = 3
_IN_A_CYCLE = _LEAF = 0.5
_WEIGHTS = {NodeKind.EVIDENCE: 4.0, NodeKind.TEST: 1.5, NodeKind.DECISION: 0.75, NodeKind.HYPOTHESIS: 0.75}
_OTHER_WEIGHT = 0.25


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

    def __init__(
        self,
        graph: ReasoningGraph,
        cards: Iterable[ReasoningNode],
        *,
        visible: frozenset[int],
        traces: Sequence[Trace] = (),
        events: Sequence[Event] = (),
        receipts: Mapping[str, Sequence[Receipt]] | None = None,
    ) -> None:
        self.graph = graph
        self.cards = sorted(
            (card for card in cards if card.active is True and card.kind is not NodeKind.TASK),
            key=lambda card: (-card.created_seq, -card.node_id),
        )
        self.traces = tuple(traces)
        self.events = tuple(events)
        self.receipts = receipts or {}
        self._visible = visible
        times = map(moment, [*(card.created_at for card in self.cards), *(trace.at for trace in self.traces)])
        self.now = max((time for time in times if time is not None), default=None)

    def of(self, *kinds: NodeKind) -> list[ReasoningNode]:
        """The cards of these kinds, newest first."""
        return [card for card in self.cards if card.kind in kinds]

    def supporters(self, number: int) -> list[ReasoningNode]:
        """What supports a card: links, and its evidence children (spec 4, *Two kinds of relation*). By id."""
        children = {child.node_id for child in self.graph.children(number) if child.kind is NodeKind.EVIDENCE}
        return self._counting(children | {link.src for link in self.graph.links_to(number, "supports")})

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

    def evidence_score(self, card: ReasoningNode) -> int:
        """0 to 100: CMD 25, LINK 25, CI 20 or local 10, linked test 20 or linked hypothesis or decision 10."""
        counting = [receipt for receipt in _receipts_on(card) if receipt.counts]
        has_command = any(receipt.kind == "CMD" for receipt in counting)
        score = 25 * has_command + 25 * any(receipt.kind == "LINK" for receipt in counting)
        if counting:
            score += 20 if "ci" in card.tags or any(receipt.ci for receipt in counting) else 10 * has_command
        kinds = {one.kind for one in self.supported(card.node_id)}
        score += 20 if NodeKind.TEST in kinds else 10 if kinds & {NodeKind.HYPOTHESIS, NodeKind.DECISION} else 0
        return min(100, score)

    def confidence(self, card: ReasoningNode, depth: int = _DEPTH, above: frozenset[int] = frozenset()) -> float:
        """0 to 1: (1 + Σ w·c of what supports a card) / (2 + Σ w·c of that and of what blocks it), to a depth of three."""
        if card.kind is NodeKind.EVIDENCE:
            return self.evidence_score(card) / 100
        if card.node_id in above:
            return _IN_A_CYCLE
        if depth == 0:
            return _LEAF
        path = above | {card.node_id}
        supports, blocks = (
            sum(_WEIGHTS.get(node.kind, _OTHER_WEIGHT) * self.confidence(node, depth - 1, path) for node in nodes)
            for nodes in (self.supporters(card.node_id), self.blockers(card.node_id))
        )
        return (1 + supports) / (2 + supports + blocks)


def command_of(card: ReasoningNode) -> str | None:
    """The command that a card says can be run, if it is one: `run` or `command` in its meta, a text or a list."""
    for name in ("run", "command"):
        said = card.meta.get(name)
        if isinstance(said, list) and said and all(isinstance(word, str) for word in said):
            said = " ".join(said)
        if isinstance(said, str) and Receipt("CMD", said).counts:
            return said
    return None


def _receipts_on(card: ReasoningNode) -> list[Receipt]:
    """The receipts that a card itself carries.

    `receipts` in its meta; a `run` or `command` with its `exit_status`; an `artifact`, `citation`, `link` or `url`; and
    lines of its text that begin with `CMD:` or `LINK:`.
    """
    found: list[Receipt] = []
    said: Any = card.meta.get("receipts")
    for one in said if isinstance(said, list) else []:
        with suppress(CoordinationError, TypeError):  # what is not a receipt proves nothing
            found += receipts_of(one)
    command = command_of(card)
    if command is not None:
        status = card.meta.get("exit_status")
        found.append(Receipt("CMD", command, status if type(status) is int else None, ci=card.meta.get("ci") is True))
    for name in ("artifact", "citation", "link", "url"):
        said = card.meta.get(name)
        link = said.get("path") if isinstance(said, Mapping) else said
        if isinstance(link, str) and link:
            found.append(Receipt("LINK", link))
    for line in card.text.splitlines():
        kind, colon, rest = line.strip().partition(":")
        if colon and kind in ("CMD", "LINK"):
            found.append(Receipt("CMD" if kind == "CMD" else "LINK", rest.strip()))
    return found
