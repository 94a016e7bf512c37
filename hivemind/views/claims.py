"""Signals about claims and what bears on them: contradictions, confidence, tests, assumptions, counter-arguments."""

from __future__ import annotations

from collections.abc import Iterator

from hivemind.coordination import Call, tool_call
from hivemind.reasoning import NodeKind, ReasoningNode
from hivemind.views.evidence import confidence
from hivemind.views.signal import Action, Signal
from hivemind.views.slice import Slice, is_open, is_pinned

__all__ = ["card_call", "changed_assumptions", "contradictions", "counter_arguments", "low_confidence", "untested"]

_UNSURE_DECISION = 0.55
_UNSURE_HYPOTHESIS = 0.45


def card_call(kind: str, text: str, step: str | None) -> Call:
    """The call that adds a card; it goes under the step of the card that it is about."""
    arguments: dict[str, object] = {"kind": kind, "text": text}
    if step is not None:
        arguments["step"] = step
    return tool_call("add_card", arguments)


def _name(card: ReasoningNode) -> str:
    heading = card.heading
    return f"{card.kind.value} {card.node_id} ({heading if len(heading) <= 80 else heading[:79] + '…'})"


def contradictions(part: Slice) -> Iterator[Signal]:
    """BM1: an open hypothesis, test or decision with both supports and blocks."""
    for card in part.of(NodeKind.HYPOTHESIS, NodeKind.TEST, NodeKind.DECISION):
        if not is_open(card):
            continue
        supports, blocks = part.supporters(card.node_id), part.blockers(card.node_id)
        if supports and blocks:
            newest = max(one.created_seq for one in (card, *supports, *blocks))
            text = f"Which holds, what supports {_name(card)} or what blocks it?"
            ask = card_call("question", text, card.step)
            action = Action("resolve", "high", f"resolve what contradicts itself in {card.node_id}", ask)
            message = f"{_name(card)} has {len(supports)} for it and {len(blocks)} against it"
            refs = (card.node_id, *(one.node_id for one in (*supports, *blocks)))
            yield Signal("BM1_CONTRADICTION", "high", message, refs, newest, action)


def low_confidence(part: Slice) -> Iterator[Signal]:
    """BM3: the least sure pinned decision, or with none of those the least sure open hypothesis."""
    pinned = [card for card in part.of(NodeKind.DECISION) if is_pinned(card)]
    candidates = pinned or [card for card in part.of(NodeKind.HYPOTHESIS) if is_open(card)]
    if not candidates:
        return
    sure, _, card = min(((confidence(part, one), -one.created_seq, one) for one in candidates), key=lambda one: one[:2])
    if sure > (_UNSURE_DECISION if pinned else _UNSURE_HYPOTHESIS):
        return
    text = f"An experiment that would show whether {_name(card)} holds"
    action = Action("experiment", "medium", f"try out {card.node_id}", card_call("test", text, card.step))
    severity, what = ("warning", "pinned") if pinned else ("info", "open")
    message = f"{what} {_name(card)} stands at confidence {sure:.2f}"
    yield Signal("BM3_LOW_CONFIDENCE", severity, message, (card.node_id,), card.created_seq, action)  # type: ignore[arg-type]


def untested(part: Slice) -> Iterator[Signal]:
    """BM4: an open hypothesis without a supporting test, or with a test and no evidence."""
    for card in part.of(NodeKind.HYPOTHESIS):
        if not is_open(card):
            continue
        tests = [one for one in part.supporters(card.node_id) if one.kind is NodeKind.TEST]
        text = f"How would it show if {_name(card)} were wrong?"
        action = Action("add_test", "high", f"add a test for {card.node_id}", card_call("test", text, card.step))
        if not tests:
            message = f"{_name(card)} has no test"
            yield Signal("BM4_HYPOTHESIS_NO_TEST", "high", message, (card.node_id,), card.created_seq, action)
        elif not any(part.evidence_for(one.node_id) for one in (card, *tests)):
            message, refs = f"{_name(card)} has a test and no evidence", (card.node_id, *(one.node_id for one in tests))
            yield Signal("BM4_HYPOTHESIS_NO_EVIDENCE", "warning", message, refs, card.created_seq, action)


def changed_assumptions(part: Slice) -> Iterator[Signal]:
    """BM6: an assumption that is no longer open and supports something open or pinned."""
    for card in part.cards:
        if "assumption" not in card.tags or card.status == "open":
            continue
        resting = [one for one in part.supported(card.node_id) if is_open(one) or is_pinned(one)]
        if resting:
            names = ", ".join(str(one.node_id) for one in resting)
            text = f"Do {names} still hold, now that {_name(card)} is {card.status}?"
            action = Action(
                "recheck", "medium", f"check again what rests on {card.node_id}", card_call("question", text, card.step)
            )
            message = f"the assumption {_name(card)} is {card.status}; on it rest {names}"
            refs = (card.node_id, *(one.node_id for one in resting))
            yield Signal("BM6_ASSUMPTION_CHANGED", "warning", message, refs, card.created_seq, action)


def counter_arguments(part: Slice) -> Iterator[Signal]:
    """BM7: the best-supported open hypothesis or decision has nothing against it."""
    supported = [
        card
        for card in part.of(NodeKind.HYPOTHESIS, NodeKind.DECISION)
        if is_open(card) and part.supporters(card.node_id)
    ]
    if not supported:
        return
    card = max(supported, key=lambda one: (round(confidence(part, one), 9), one.created_seq, one.node_id))
    if part.blockers(card.node_id):
        return
    text = f"The strongest case against {_name(card)}, and a test that would prove it wrong"
    action = Action("steelman", "medium", f"argue against {card.node_id}", card_call("test", text, card.step))
    message = f"nothing speaks against {_name(card)} yet"
    yield Signal("BM7_NO_COUNTER_ARGUMENT", "info", message, (card.node_id,), card.created_seq, action)
