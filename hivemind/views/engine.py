"""The signal engine: read-only, deterministic, over the step's slice first and then over all (seed 002)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from hivemind.reasoning import FLUSHED, ReasoningGraph
from hivemind.views.claims import changed_assumptions, contradictions, counter_arguments, low_confidence, untested
from hivemind.views.habits import patterns, stuck, unpublished
from hivemind.views.parts import Scope
from hivemind.views.proofs import STALE_AFTER, runnable_tests, stale_evidence, weak_evidence
from hivemind.views.signal import Signal, rank
from hivemind.views.slice import Slice

__all__ = ["analyse", "analyse_scope"]

_ORDER = (unpublished, weak_evidence, untested, runnable_tests, contradictions, low_confidence, changed_assumptions,
          patterns, counter_arguments, stuck)  # fmt: skip


def analyse(part: Slice, stale_after: timedelta = STALE_AFTER) -> list[Signal]:
    """Every signal of one slice, ranked."""
    return rank(_all(part, stale_after))


def _all(part: Slice, stale_after: timedelta) -> Iterator[Signal]:
    for detect in _ORDER:
        yield from detect(part)
    yield from stale_evidence(part, stale_after)


def analyse_scope(scope: Scope, stale_after: timedelta = STALE_AFTER) -> list[Signal]:
    """The signals of a scope: those of the step in focus first, then those of everything; none twice."""
    graph = ReasoningGraph() if scope.graph is None else scope.graph.graph
    nodes = scope.cards()
    visible = frozenset(node.node_id for node in nodes if node.active != FLUSHED)
    receipts = {step.id: step.evidence for step in scope.steps}
    found: list[Signal] = []
    focus = scope.place.step
    for cards, traces in (
        ((node for node in nodes if node.step == focus), [one for one in scope.traces if one.step == focus]),
        (nodes, list(scope.traces)),
    ):
        if focus is None and cards is not nodes:
            continue
        part = Slice(
            graph,
            cards,
            visible=visible,
            agent_id=scope.agent_id,
            traces=traces,
            events=scope.events,
            receipts=receipts,
        )
        known = {(one.code, one.refs, one.message) for one in found}
        found += [one for one in analyse(part, stale_after) if (one.code, one.refs, one.message) not in known]
    return found
