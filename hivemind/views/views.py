"""The views: one contract for the command line, MCP and the agent's own scope step. They read and never write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from hivemind.coordination import CoordinationError, Event, Step
from hivemind.reasoning import ReasoningNode, TaskGraph
from hivemind.views.budget import check_budget, fit
from hivemind.views.capsule import build_capsule, lease_of
from hivemind.views.engine import analyse_scope
from hivemind.views.parts import Readable, Scope, scope_of
from hivemind.views.proofs import STALE_AFTER
from hivemind.views.selection import VIEWS, most_cards, most_signals, select
from hivemind.views.signal import Signal

__all__ = ["capsule", "resume", "signals", "snapshot", "watch"]

Answer = dict[str, Any]
_NOTES, _TRACE, _EVENTS, _STEPS = 10, 20, 20, 30
_ANCHORS = 8


def resume(
    hive: Readable,
    agent_id: str | None = None,
    task: str | None = None,
    step: str | None = None,
    view: str = "smart",
    context_budget: int | None = None,
    all_lanes: bool = False,
    limit: int | None = None,
    *,
    graph: TaskGraph | None = None,
    stale_after: timedelta = STALE_AFTER,
) -> Answer:
    """Everything that an agent needs to go on where it is, within `context_budget` bytes of compact JSON.

    `view` is focus_only, smart, explore, audit or full; `limit` is the most cards; `graph` the task's graph if it is open
    already. Raises CoordinationError for arguments that make no sense or exclude each other, UnknownStep.
    """
    _check(view, context_budget, limit, all_lanes)
    scope = scope_of(hive, agent_id, task, step, all_lanes=all_lanes or view == "audit", graph=graph)
    found = analyse_scope(scope, stale_after)
    answer = _head(view, scope, found, context_budget)
    answer["cards"] = [_card(card) for card in _cards(scope, view, context_budget, limit, found)]
    if view != "focus_only":
        answer["notes"] = [_entry(note) for note in (scope.notes if view == "full" else scope.notes[-_NOTES:])]
        answer["trace"] = [
            _entry(one) for one in (scope.traces if view in ("explore", "full") else scope.traces[-_TRACE:])
        ]
    events = _of_focus(scope, view)
    answer["events"] = [event.as_dict() for event in (events if view == "full" else events[-_EVENTS:])]
    answer["stats"] = _stats(scope)
    if view == "audit":
        answer["lanes"] = _lanes(scope)
    return fit(answer, context_budget)


def snapshot(
    hive: Readable,
    agent_id: str | None = None,
    task: str | None = None,
    step: str | None = None,
    view: str = "smart",
    context_budget: int | None = None,
    all_lanes: bool = False,
    limit: int | None = None,
    *,
    graph: TaskGraph | None = None,
    stale_after: timedelta = STALE_AFTER,
) -> Answer:
    """The same at a glance: where, the step, the signals and the anchors; no notes, no trace, no events."""
    _check(view, context_budget, limit, all_lanes)
    scope = scope_of(hive, agent_id, task, step, all_lanes=all_lanes or view == "audit", graph=graph)
    found = analyse_scope(scope, stale_after)
    answer = _head(view, scope, found, context_budget)
    answer["cards"] = [
        _card(card) for card in _cards(scope, view, context_budget, min(limit or _ANCHORS, _ANCHORS), found)
    ]
    answer["stats"] = _stats(scope)
    return fit(answer, context_budget)


def watch(
    hive: Readable,
    since_seq: int,
    agent_id: str | None = None,
    task: str | None = None,
    step: str | None = None,
    view: str = "smart",
    context_budget: int | None = None,
    all_lanes: bool = False,
    limit: int | None = None,
    *,
    since_card_seq: int | None = None,
    graph: TaskGraph | None = None,
    stale_after: timedelta = STALE_AFTER,
) -> Answer:
    """What came since: the journal's events after `since_seq`, and the cards, notes and actions after `since_card_seq`.

    `seq` and `card_seq` of an answer are what the next call gives. Without `since_card_seq` no cards are shown.
    """
    _check(view, context_budget, limit, all_lanes)
    if not isinstance(since_seq, int) or isinstance(since_seq, bool) or since_seq < 0:
        raise _refused(f"since_seq is {since_seq!r}", "give the seq of an earlier answer, 0 for everything")
    every_lane = all_lanes or view == "audit"
    scope = scope_of(hive, agent_id, task, step, all_lanes=every_lane, graph=graph, since=since_seq)
    found = analyse_scope(scope, stale_after)
    answer = _head(view, scope, found, context_budget)
    answer["since"] = {"seq": since_seq, "card_seq": since_card_seq}
    after = scope.card_seq if since_card_seq is None else since_card_seq
    new = [card for card in _cards(scope, "full", None, None, found) if card.created_seq > after]
    answer["cards"] = [_card(card) for card in (new if limit is None else new[:limit])]
    if view != "focus_only":
        answer["notes"] = [_entry(note) for note in scope.notes if note.seq > after]
        answer["trace"] = [_entry(trace) for trace in scope.traces if trace.seq > after]
    answer["events"] = [event.as_dict() for event in _of_focus(scope, view)]
    return fit(answer, context_budget)


def capsule(
    hive: Readable,
    agent_id: str | None = None,
    task: str | None = None,
    step: str | None = None,
    all_lanes: bool = False,
    *,
    graph: TaskGraph | None = None,
) -> Answer:
    """The capsule alone, for a context or a status: `where`, `why`, `next {primary, backup}`."""
    scope = scope_of(hive, agent_id, task, step, all_lanes=all_lanes, graph=graph)
    return build_capsule(scope, analyse_scope(scope))


def signals(
    hive: Readable,
    agent_id: str | None = None,
    task: str | None = None,
    step: str | None = None,
    all_lanes: bool = False,
    limit: int | None = None,
    *,
    graph: TaskGraph | None = None,
    stale_after: timedelta = STALE_AFTER,
) -> list[Answer]:
    """What is worth knowing, best first: `{code, severity, message, refs, action}`. `action` is a call as it stands."""
    _check("smart", None, limit, all_lanes)
    scope = scope_of(hive, agent_id, task, step, all_lanes=all_lanes, graph=graph)
    return [one.as_dict() for one in analyse_scope(scope, stale_after)[:limit]]


def _check(view: str, budget: int | None, limit: int | None, all_lanes: bool) -> None:
    if view not in VIEWS:
        raise _refused(f"{view!r} is no view", f"there are: {', '.join(VIEWS)}")
    if view == "focus_only" and all_lanes:
        raise _refused("focus_only and all_lanes exclude each other", "take view='audit' to see every lane")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise _refused(f"limit is {limit!r}", "it counts cards: 1 or more")
    check_budget(budget)


def _refused(what: str, mend: str) -> CoordinationError:
    looks = [
        {"tool": "resume", "arguments": {"view": view}, "call": f"resume(hive, view={view!r})"}
        for view in ("smart", "audit")
    ]
    return CoordinationError(what, code="INVALID_VIEW", mend=mend, suggestions=looks)


def _head(view: str, scope: Scope, found: list[Signal], budget: int | None) -> Answer:
    answer: Answer = {"view": view, "seq": scope.seq, "card_seq": scope.card_seq}
    answer["capsule"] = build_capsule(scope, found)
    if scope.place.task is not None:
        answer["task"] = {"id": scope.place.task, "title": scope.title, "over": scope.over}
    if scope.step is not None:
        answer["step"] = _step(scope, scope.step)
    if len(scope.steps) > 1:
        answer["steps"] = [_brief(one) for one in _around(scope)]
    answer["signals"] = [one.as_dict() for one in found[: most_signals(budget)]]
    return answer


def _around(scope: Scope) -> list[Step]:
    """The steps from just before the focus on: a plan may be long."""
    at = next((number for number, one in enumerate(scope.steps) if one.id == scope.place.step), 0)
    start = max(0, min(at - _STEPS // 3, len(scope.steps) - _STEPS))
    return list(scope.steps[start : start + _STEPS])


def _brief(step: Step) -> Answer:
    return {"id": step.id, "path": step.path, "title": step.title, "status": step.status}


def _step(scope: Scope, step: Step) -> Answer:
    found = _brief(step)
    found |= {
        "success_criteria": list(step.success_criteria),
        "tests": list(step.tests),
        "checkpoints": step.checkpoints,
    }
    found |= {"proof": step.proof, "revision": step.revision, "lacks": list(step.lacking())}
    if step.evidence:
        found["evidence"] = [receipt.as_dict() for receipt in step.evidence[-_EVENTS:]]
    if step.id in scope.leases:
        found["lease"] = lease_of(scope.leases[step.id])
    return found


def _cards(
    scope: Scope, view: str, budget: int | None, limit: int | None, found: Iterable[Signal]
) -> list[ReasoningNode]:
    focus = scope.place.step
    cards: Iterable[ReasoningNode] = scope.cards()
    if scope.explicit_step:
        cards = [card for card in cards if card.step == focus]
    most = min((one for one in (most_cards(view, budget), limit) if one is not None), default=None)
    return select(cards, view, focus, most, {number for one in found for number in one.refs})


def _card(card: ReasoningNode) -> Answer:
    found: Answer = {"id": card.node_id, "kind": card.kind.value, "title": card.title, "text": card.text}
    found |= {"status": card.status, "lane": card.lane, "seq": card.created_seq}
    if card.active is not True:
        found["active"] = card.active
    if card.step is not None:
        found["step"] = card.step
    if card.tags:
        found["tags"] = list(card.tags)
    if card.pinned:
        found["pinned"] = True
    return found


def _entry(one: Any) -> Answer:
    found: Answer = {"seq": one.seq, "at": one.at, "agent": one.agent, "lane": one.lane, "step": one.step}
    if hasattr(one, "kind"):
        found["kind"] = one.kind
    found["text"] = one.text
    return found


def _of_focus(scope: Scope, view: str) -> list[Event]:
    """The events of the task; only those of the step where that is all that is looked at."""
    focus = scope.place.step
    if focus is None or not (scope.explicit_step or view == "focus_only"):
        return list(scope.events)
    return [event for event in scope.events if event.payload.get("step_id") == focus]


def _stats(scope: Scope) -> Answer:
    cards = scope.cards()
    return {
        "cards": dict(sorted(Counter(card.kind.value for card in cards).items())),
        "open": sum(card.status == "open" and card.active is True for card in cards),
        "steps": dict(sorted(Counter(step.status for step in scope.steps).items())),
    }


def _lanes(scope: Scope) -> list[Answer]:
    """What lies in each lane."""
    lanes: dict[str, Counter[str]] = {}
    for card in scope.cards():
        lanes.setdefault(card.lane, Counter()).update(
            {"cards": 1, "open": card.status == "open", "pinned": card.pinned}
        )
    return [
        {"lane": lane, **{name: int(number) for name, number in counts.items()}}
        for lane, counts in sorted(lanes.items())
    ]
