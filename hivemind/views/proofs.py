"""Signals about evidence: weak, stale, or a test that only needs to be run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from hivemind.coordination import tool_call
from hivemind.reasoning import NodeKind, ReasoningNode
from hivemind.views.evidence import command_of, evidence_score
from hivemind.views.signal import Action, Signal
from hivemind.views.slice import Slice, is_open, is_pinned, moment

__all__ = ["STALE_AFTER", "runnable_tests", "stale_evidence", "weak_evidence"]

STALE_AFTER = timedelta(days=30)
_STRONG = 60
_WORST = 2


def _run(card: ReasoningNode, title: str) -> Action:
    command = command_of(card)
    arguments: dict[str, object] = {} if card.step is None else {"step": card.step}
    if command is not None:
        arguments["command"] = command.split()
    return Action("run_test", "high", title, tool_call("run_command", arguments))


def weak_evidence(part: Slice) -> Iterator[Signal]:
    """BM2: evidence under 60 of 100 that is pinned or that a pinned decision rests on; the worst two."""
    weak = []
    for card in part.of(NodeKind.EVIDENCE):
        rests = any(one.kind is NodeKind.DECISION and is_pinned(one) for one in part.supported(card.node_id))
        score = evidence_score(part, card)
        if score < _STRONG and (is_pinned(card) or rests):
            weak.append((score, -card.created_seq, card))
    for score, _, card in sorted(weak, key=lambda one: one[:2])[:_WORST]:
        message = f"evidence {card.node_id} scores {score} of 100; a command, a link and a linked test make it stronger"
        yield Signal("BM2_EVIDENCE_WEAK", "warning", message, (card.node_id,), card.created_seq)


def runnable_tests(part: Slice) -> Iterator[Signal]:
    """BM5: an open test with a command and no evidence."""
    for card in part.of(NodeKind.TEST):
        if is_open(card) and command_of(card) is not None and not _was_run(part, card):
            message = f"test {card.node_id} can be run: {command_of(card)}"
            action = _run(card, f"run test {card.node_id} and keep its output as evidence")
            yield Signal("BM5_RUNNABLE_TEST", "info", message, (card.node_id,), card.created_seq, action)


def _was_run(part: Slice, card: ReasoningNode) -> bool:
    receipts = part.receipts.get(card.step or "", ())
    return bool(part.evidence_for(card.node_id)) or any(receipt.text == command_of(card) for receipt in receipts)


def stale_evidence(part: Slice, stale_after: timedelta = STALE_AFTER) -> Iterator[Signal]:
    """BM8: the newest evidence is older than `stale_after`, counted back from the newest time in the slice."""
    dated = [(time, card) for card in part.of(NodeKind.EVIDENCE) if (time := moment(card.created_at)) is not None]
    if not dated or part.now is None:
        return
    time, card = max(dated, key=lambda one: (one[0], one[1].created_seq))
    if part.now - time <= stale_after:
        return
    tests = [one for one in part.supported(card.node_id) if one.kind is NodeKind.TEST and command_of(one) is not None]
    action = _run(tests[0] if tests else card, f"run the test behind evidence {card.node_id} again")
    action = Action("rerun_test", "medium", action.title, action.call)
    message = f"the newest evidence, {card.node_id}, is {(part.now - time).days} days old"
    yield Signal("BM8_EVIDENCE_STALE", "warning", message, (card.node_id,), card.created_seq, action)
