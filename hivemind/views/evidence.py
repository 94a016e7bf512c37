"""How strong a piece of evidence is, and how sure that makes what it supports (spec 3, *Signals*; seed 002, BM2, BM3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hivemind.coordination import CoordinationError, Receipt, receipts_of
from hivemind.reasoning import NodeKind, ReasoningNode
from hivemind.views.slice import Slice

__all__ = ["command_of", "confidence", "evidence_score", "receipts_on"]

_DEPTH = 3
_IN_A_CYCLE = 0.5
_LEAF = 0.5
_WEIGHTS = {NodeKind.EVIDENCE: 4.0, NodeKind.TEST: 1.5, NodeKind.DECISION: 0.75, NodeKind.HYPOTHESIS: 0.75}
_OTHER_WEIGHT = 0.25
_CLAIMS = (NodeKind.HYPOTHESIS, NodeKind.DECISION)


def command_of(card: ReasoningNode) -> str | None:
    """The command that a card says can be run, if it is one: `run` or `command` in its meta, a text or a list."""
    for name in ("run", "command"):
        told = card.meta.get(name)
        if isinstance(told, list) and told and all(isinstance(word, str) for word in told):
            told = " ".join(told)
        if isinstance(told, str) and Receipt("CMD", told).counts:
            return told
    return None


def receipts_on(card: ReasoningNode) -> list[Receipt]:
    """The receipts that a card itself carries.

    `receipts` in its meta; a `run` or `command` with its `exit_status`; an `artifact`, `citation`, `link` or `url`; and
    lines of its text that begin with `CMD:` or `LINK:`.
    """
    found: list[Receipt] = []
    told = card.meta.get("receipts")
    for one in told if isinstance(told, list) else []:
        try:
            found += receipts_of(one)
        except (CoordinationError, TypeError):
            continue  # what is no receipt proves nothing
    command = command_of(card)
    if command is not None:
        status = card.meta.get("exit_status")
        found.append(Receipt("CMD", command, status if type(status) is int else None, ci=card.meta.get("ci") is True))
    found += [
        Receipt("LINK", link) for name in ("artifact", "citation", "link", "url") if (link := _link(card.meta, name))
    ]
    for line in card.text.splitlines():
        kind, colon, rest = line.strip().partition(":")
        if colon and kind in ("CMD", "LINK"):
            found.append(Receipt("CMD" if kind == "CMD" else "LINK", rest.strip()))
    return found


def _link(meta: Mapping[str, Any], name: str) -> str | None:
    told = meta.get(name)
    if isinstance(told, Mapping):
        told = told.get("path")
    return told if isinstance(told, str) and told else None


def evidence_score(part: Slice, card: ReasoningNode) -> int:
    """0 to 100: CMD 25, LINK 25, CI 20 or local 10, linked test 20 or linked hypothesis or decision 10."""
    counting = [receipt for receipt in receipts_on(card) if receipt.counts]
    commands = [receipt for receipt in counting if receipt.kind == "CMD"]
    score = 25 * bool(commands) + 25 * any(receipt.kind == "LINK" for receipt in counting)
    if counting:
        score += 20 if "ci" in card.tags or any(receipt.ci for receipt in counting) else 10 * bool(commands)
    kinds = {one.kind for one in part.supported(card.node_id)}
    score += 20 if NodeKind.TEST in kinds else 10 if kinds & set(_CLAIMS) else 0
    return min(100, score)


def confidence(part: Slice, card: ReasoningNode) -> float:
    """0 to 1: how much speaks for a card, (1 + Σ w·c of what supports it) / (2 + Σ w·c of that and of what blocks it)."""
    return _confidence(part, card, _DEPTH, frozenset())


def _confidence(part: Slice, card: ReasoningNode, depth: int, above: frozenset[int]) -> float:
    if card.kind is NodeKind.EVIDENCE:
        return evidence_score(part, card) / 100
    if card.node_id in above:
        return _IN_A_CYCLE
    if depth == 0:
        return _LEAF
    path = above | {card.node_id}

    def weight(nodes: list[ReasoningNode]) -> float:
        return sum(_WEIGHTS.get(node.kind, _OTHER_WEIGHT) * _confidence(part, node, depth - 1, path) for node in nodes)

    supports, blocks = weight(part.supporters(card.node_id)), weight(part.blockers(card.node_id))
    return (1 + supports) / (2 + supports + blocks)
