"""Signals about how the work goes: drafts left in a lane, patterns of reasoning, going in circles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from hivemind.coordination import SHARED, tool_call
from hivemind.reasoning import NodeKind, ReasoningNode
from hivemind.views.claims import card_call
from hivemind.views.signal import Action, Signal
from hivemind.views.slice import Slice, is_open, is_pinned, moment

__all__ = ["patterns", "stuck", "unpublished"]

_FRESH = timedelta(days=14)
_MOST_DRAFTS = 8
_LAST_TRACES = 12
_MANY_CARDS = 6
_WINDOW = 20
_ALTERNATIVES = re.compile(
    r"\b(?:vs\b|versus\b|trade-?offs?\b)|(?<![\w/])[A-Za-z]\w*/[A-Za-z]\w*(?![\w/.])", re.IGNORECASE
)
_REGRESSION = re.compile(r"\bregress", re.IGNORECASE)
_GOOD_AND_BAD = (re.compile(r"\bgood\b|\bworked\b", re.IGNORECASE), re.compile(r"\bbad\b|\bbroken\b", re.IGNORECASE))
_TO_TRY = re.compile(r"\b(?:try|experiment|see if|check whether|test whether)\b", re.IGNORECASE)


def unpublished(part: Slice) -> Iterator[Signal]:
    """LANE_DECISION_NOT_PUBLISHED: a decision in an agent's lane, pinned or under 14 days old, not published; at most 8."""
    told = 0
    for card in part.of(NodeKind.DECISION):
        if card.lane == SHARED or part.graph.published_copy(card.node_id) is not None:
            continue
        time = moment(card.created_at)
        fresh = time is None or part.now is None or part.now - time < _FRESH
        if (is_pinned(card) or fresh) and told < _MOST_DRAFTS:
            told += 1
            call = tool_call("publish", {"card": card.node_id})
            action = Action("publish", "medium", f"publish {card.node_id}", call)
            message = f"decision {card.node_id} is in {card.lane} only"
            yield Signal("LANE_DECISION_NOT_PUBLISHED", "warning", message, (card.node_id,), card.created_seq, action)


def patterns(part: Slice) -> Iterator[Signal]:
    """BM9: the newest open card that weighs alternatives, tells of a regression, or makes a claim to try."""
    shapes = (
        ("weighs alternatives", "criteria matrix", (NodeKind.QUESTION, NodeKind.DECISION), _weighs),
        ("tells of a regression between a good and a bad point", "bisect", None, _regresses),
        ("makes a claim to try", "experiment", (NodeKind.HYPOTHESIS,), lambda text: _TO_TRY.search(text) is not None),
    )
    for what, name, kinds, fits in shapes:
        for card in part.cards:
            if is_open(card) and (kinds is None or card.kind in kinds) and fits(_told(card)):
                text = f"{name.capitalize()} for {card.kind.value} {card.node_id}"
                call = card_call("test", text, card.step)
                action = Action(name.replace(" ", "_"), "low", f"{name} for {card.node_id}", call)
                message = f"{card.kind.value} {card.node_id} {what}: {name}"
                yield Signal("BM9_PATTERN", "info", message, (card.node_id,), card.created_seq, action)
                break


def _told(card: ReasoningNode) -> str:
    return f"{card.title}\n{card.text}"


def _weighs(text: str) -> bool:
    return _ALTERNATIVES.search(text) is not None


def _regresses(text: str) -> bool:
    return _REGRESSION.search(text) is not None and all(sign.search(text) for sign in _GOOD_AND_BAD)


def stuck(part: Slice) -> Iterator[Signal]:
    """BM10: many cards and no evidence, steps added faster than closed, no new evidence for long."""
    cards, evidence = _since(part, _LAST_TRACES)
    if len(part.traces) >= _LAST_TRACES and cards >= _MANY_CARDS and not evidence:
        yield _habit("BM10_STUCK", f"{cards} cards and no evidence in the last {_LAST_TRACES} actions", part)
    if len(part.events) >= _WINDOW:
        added, closed = _steps(part)
        if added > closed:
            yield _habit(
                "BM10_SCOPE_CREEP", f"{added} steps added and {closed} closed in the last {_WINDOW} events", part
            )
    if len(part.traces) >= _WINDOW and not _since(part, _WINDOW)[1]:
        yield _habit("BM10_NO_NEW_EVIDENCE", f"no new evidence in the last {_WINDOW} actions", part)


def _since(part: Slice, last: int) -> tuple[int, int]:
    """(cards, evidence) that came with the last actions, by what they say they did and by what is in the graph."""
    recent = part.traces[-last:]
    if not recent:
        return 0, 0
    made = [card for card in part.cards if card.created_seq >= recent[0].seq]
    proofs = sum(card.kind is NodeKind.EVIDENCE for card in made)
    told_cards = sum("card" in trace.kind for trace in recent)
    told_proofs = sum("evidence" in trace.kind for trace in recent)
    return max(len(made) - proofs, told_cards), max(proofs, told_proofs)


def _steps(part: Slice) -> tuple[int, int]:
    recent = part.events[-_WINDOW:]
    added = sum(len(event.payload.get("steps", (1,))) for event in recent if event.kind == "step.added")
    return added, sum(event.kind == "step.done" for event in recent)


def _habit(code: str, message: str, part: Slice) -> Signal:
    text = "What was expected, what happened, what is the smallest thing that shows the difference?"
    step = part.traces[-1].step if part.traces else None
    newest = part.traces[-1].seq if part.traces else 0
    action = Action("debug_playbook", "medium", "step back and debug", card_call("question", text, step))
    return Signal(code, "warning", message, (), newest, action)
