"""The views: one contract for the command line, MCP and the agent's own scope step. They read and never write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Literal, get_args

from hivemind.coordination import Call, CoordinationError, Step, StepLease, call, claim_call, look_call
from hivemind.layout import HUMAN
from hivemind.reasoning import NodeKind, ReasoningNode
from hivemind.views.answer import Answer, Capsule, SignalFound, Where, check_budget, fit
from hivemind.views.scope import Readable, Scope, scope_of
from hivemind.views.signal import STALE_AFTER, Signal, analyse_scope, best_action, is_open, is_pinned

_MOST_REASONS = 3
_LONGEST = 120
View = Literal["focus_only", "smart", "explore", "audit", "full"]
VIEWS: tuple[str, ...] = get_args(View)
_BUDGETS = (2_000, 6_000, 12_000)
_MOST = {"smart": (18, 26, 40, 60), "explore": (26, 40, 70, 100)}
_SIGNALS = (3, 6, 10, 20)
_FOCUS_OPEN = 12
_Wanted = Callable[[ReasoningNode], bool]
_Record = dict[str, Any]
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
) -> Answer:
    """Everything that an agent needs to go on where it is, within `context_budget` bytes of compact JSON.

    `view` is focus_only, smart, explore, audit or full; `limit` is the most cards. Raises
    CoordinationError for arguments that make no sense or exclude each other, UnknownStep.
    """
    scope = _scope(hive, agent_id, task, step, view, context_budget, all_lanes, limit)
    answer, referred = _head(view, scope, context_budget)
    answer["cards"] = _cards(scope, view, context_budget, limit, referred)
    if view != "focus_only":
        answer["notes"] = [asdict(note) for note in (scope.notes if view == "full" else scope.notes[-_NOTES:])]
        traces = scope.traces if view in ("explore", "full") else scope.traces[-_TRACE:]
        answer["trace"] = [asdict(trace) for trace in traces]
    answer["events"] = _events(scope, view)[0 if view == "full" else -_EVENTS :]
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
) -> Answer:
    """The same at a glance: where, the step, the signals and the anchors; no notes, no trace, no events."""
    scope = _scope(hive, agent_id, task, step, view, context_budget, all_lanes, limit)
    answer, referred = _head(view, scope, context_budget)
    answer["cards"] = _cards(scope, view, context_budget, min(limit or _ANCHORS, _ANCHORS), referred)
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
) -> Answer:
    """What came since: the journal's events after `since_seq`, and the cards, notes and actions after `since_card_seq`.

    Pass `seq` and `card_seq` of one answer to the next call. Without `since_card_seq` no cards are shown.
    """
    if not isinstance(since_seq, int) or isinstance(since_seq, bool) or since_seq < 0:
        raise _refused(
            f"since_seq must be an integer ≥ 0, not {since_seq!r}",
            "pass the seq of an earlier answer, or 0 for everything",
        )
    scope = _scope(hive, agent_id, task, step, view, context_budget, all_lanes, limit, since_seq)
    answer, _ = _head(view, scope, context_budget)
    answer["since"] = {"seq": since_seq, "card_seq": since_card_seq}
    after = scope.card_seq if since_card_seq is None else since_card_seq
    answer["cards"] = [card for card in _cards(scope, "full", None, None, ()) if card["seq"] > after][:limit]
    if view != "focus_only":
        answer["notes"] = [asdict(note) for note in scope.notes if note.seq > after]
        answer["trace"] = [asdict(trace) for trace in scope.traces if trace.seq > after]
    answer["events"] = _events(scope, view)
    return fit(answer, context_budget)


def capsule(
    hive: Readable,
    agent_id: str | None = None,
    task: str | None = None,
    step: str | None = None,
    all_lanes: bool = False,
) -> Capsule:
    """The capsule alone, for a context or a status: `where`, `why`, `next {primary, backup}`."""
    scope = scope_of(hive, agent_id, task, step, all_lanes=all_lanes)
    return _capsule(scope, analyse_scope(scope))


def signals(
    hive: Readable,
    agent_id: str | None = None,
    task: str | None = None,
    step: str | None = None,
    all_lanes: bool = False,
    limit: int | None = None,
    *,
    stale_after: timedelta = STALE_AFTER,
) -> list[SignalFound]:
    """What is worth knowing, best first: `{code, severity, message, refs, action}`. `action` is a call as it stands."""
    scope = _scope(hive, agent_id, task, step, "smart", None, all_lanes, limit)
    return [one.as_dict() for one in analyse_scope(scope, stale_after)[:limit]]


def _scope(
    hive: Readable, agent_id: str | None, task: str | None, step: str | None, view: str, budget: int | None,
    all_lanes: bool, limit: int | None, since: int | None = None,
) -> Scope:  # fmt: skip
    """What is in view for the caller. Raises CoordinationError for arguments that make no sense or exclude each other."""
    if view not in VIEWS:
        raise _refused(f"unknown view: {view!r}", f"views: {', '.join(VIEWS)}")
    if view == "focus_only" and all_lanes:
        raise _refused("focus_only and all_lanes exclude each other", "take view='audit' to see every lane")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise _refused(f"limit must be an integer ≥ 1, not {limit!r}", "it counts cards")
    check_budget(budget)
    return scope_of(hive, agent_id, task, step, all_lanes=all_lanes or view == "audit", since=since)


def _refused(what: str, mend: str) -> CoordinationError:
    looks = [
        {"tool": "resume", "arguments": {"view": view}, "call": f"resume(hive, view={view!r})"}
        for view in ("smart", "audit")
    ]
    return CoordinationError(what, code="INVALID_VIEW", mend=mend, suggestions=looks)


def _head(view: str, scope: Scope, budget: int | None) -> tuple[Answer, set[int]]:
    """What every answer begins with, and the cards that its signals refer to."""
    found = analyse_scope(scope)
    answer: Answer = {"view": view, "seq": scope.seq, "card_seq": scope.card_seq}
    answer["capsule"] = _capsule(scope, found)
    if scope.place.task is not None:
        answer["task"] = {"id": scope.place.task, "title": scope.title, "over": scope.over}
    if scope.step is not None:
        answer["step"] = _step(scope, scope.step)
    if len(scope.steps) > 1:  # from just before the focus on: a plan may be long
        at = next((number for number, one in enumerate(scope.steps) if one.id == scope.place.step), 0)
        start = max(0, min(at - _STEPS // 3, len(scope.steps) - _STEPS))
        answer["steps"] = [_brief(one) for one in scope.steps[start : start + _STEPS]]
    answer["signals"] = [one.as_dict() for one in found[: _SIGNALS[_size_of(budget)]]]
    return answer, {number for one in found for number in one.refs}


def _brief(step: Step) -> dict[str, str]:
    return {"id": step.id, "path": step.path, "title": step.title, "status": step.status}


def _step(scope: Scope, step: Step) -> _Record:
    found: _Record = {
        **_brief(step),
        "success_criteria": list(step.success_criteria),
        "tests": list(step.tests),
        "checkpoints": step.checkpoints,
        "proof": step.proof,
        "revision": step.revision,
        "lacks": list(step.lacking()),
    }
    if step.evidence:
        found["evidence"] = [receipt.as_dict() for receipt in step.evidence[-_EVENTS:]]
    if step.id in scope.leases:
        found["lease"] = _lease(scope.leases[step.id])
    return found


def _cards(scope: Scope, view: str, budget: int | None, limit: int | None, referred: Collection[int]) -> list[_Record]:
    focus = scope.place.step
    cards = [card for card in scope.cards() if not scope.explicit_step or card.step == focus]
    bounded = (
        [] if view in ("full", "focus_only") else [_MOST["explore" if view == "explore" else "smart"][_size_of(budget)]]
    )
    most = min([*bounded, *([] if limit is None else [limit])], default=None)
    return [_card(card) for card in select(cards, view, focus, most, referred)]


def _card(card: ReasoningNode) -> _Record:
    found: _Record = {"id": card.node_id, "kind": card.kind.value, "title": card.title, "text": card.text}
    found |= {"status": card.status, "lane": card.lane, "seq": card.created_seq}
    found |= {} if card.active is True else {"active": card.active}
    rest = {"step": card.step, "tags": list(card.tags), "pinned": card.pinned}
    return found | {name: value for name, value in rest.items() if value}


def _events(scope: Scope, view: str) -> list[_Record]:
    """The events of the task; only those of the step where that is all that is looked at."""
    focus = scope.place.step if scope.explicit_step or view == "focus_only" else None
    return [event.as_dict() for event in scope.events if focus is None or event.payload.get("step_id") == focus]


def _stats(scope: Scope) -> _Record:
    cards = scope.cards()
    return {
        "cards": dict(sorted(Counter(card.kind.value for card in cards).items())),
        "open": sum(card.status == "open" and card.active is True for card in cards),
        "steps": dict(sorted(Counter(step.status for step in scope.steps).items())),
    }


def _lanes(scope: Scope) -> list[_Record]:
    """What lies in each lane."""
    told: dict[str, Counter[str]] = {}
    for card in scope.cards():
        counts = told.setdefault(card.lane, Counter(cards=0, open=0, pinned=0))
        counts.update(cards=1, open=card.status == "open", pinned=card.pinned)
    return [{"lane": lane, **counts} for lane, counts in sorted(told.items())]


# -- which cards a view shows, and in which order (spec 3, *Views*) ------------------------------------------------


def _size_of(budget: int | None) -> int:
    return len(_BUDGETS) if budget is None else sum(budget > bound for bound in _BUDGETS)


def select(
    cards: Iterable[ReasoningNode], view: str, focus: str | None, most: int | None, referred: Collection[int] = ()
) -> list[ReasoningNode]:
    """The cards of a view in its order, without repeats. `cards` are the visible ones; `referred` those of signals."""
    newest = sorted(
        (card for card in cards if card.kind is not NodeKind.TASK and (view == "full" or card.active is True)),
        key=lambda card: (-card.created_seq, -card.node_id),
    )
    shares = _SHARES.get(view, _smart)(focus, referred)
    picked: dict[int, ReasoningNode] = {}
    for wanted, limit in shares:
        fitting = (card for card in newest if card.node_id not in picked and wanted(card))
        picked |= {card.node_id: card for card in islice(fitting, limit)}
    return list(picked.values())[:most]


def _any(_: ReasoningNode) -> bool:
    return True


def _of_step(focus: str | None) -> _Wanted:
    return lambda card: focus is not None and card.step == focus


def _open(kind: NodeKind) -> _Wanted:
    return lambda card: card.kind is kind and is_open(card)


def _subgoal(card: ReasoningNode) -> bool:
    return is_open(card) and ("subgoal" in card.tags or (card.kind is NodeKind.SUBTASK and card.step is None))


def _focus_only(focus: str | None, referred: Collection[int]) -> list[tuple[_Wanted, int | None]]:
    asked = (NodeKind.HYPOTHESIS, NodeKind.QUESTION, NodeKind.TEST)
    return [
        (is_pinned, None),
        (_of_step(focus), None),
        (lambda card: card.kind in asked and is_open(card), _FOCUS_OPEN),
        (lambda card: card.node_id in referred, None),
    ]


def _smart(focus: str | None, _: Collection[int], fill: _Wanted = is_open) -> list[tuple[_Wanted, int | None]]:
    of_step = _of_step(focus)
    return [
        (is_pinned, 8),
        (lambda card: of_step(card) and is_open(card), 6),
        (of_step, 4),
        (_open(NodeKind.HYPOTHESIS), 6),
        (_open(NodeKind.QUESTION), 6),
        (_subgoal, 4),
        (_open(NodeKind.TEST), 6),
        (fill, None),
    ]


_SHARES: dict[str, Callable[[str | None, Collection[int]], list[tuple[_Wanted, int | None]]]] = {
    "full": lambda *_: [(_any, None)],
    "focus_only": _focus_only,
    "explore": partial(_smart, fill=_any),
}


# -- the capsule: where, why and what next, small and stable under any budget (seed 002, *capsule as HUD*) ---------------


def _capsule(scope: Scope, signals: list[Signal]) -> Capsule:
    """`where`, `why` (at most three signals) and `next {primary, backup}` (calls that can be made as they stand)."""
    primary, backup = _next(scope)
    proposed = best_action(signals)
    return {
        "where": _where(scope, signals),
        "why": [
            {"code": one.code, "severity": one.severity, "message": _short(one.message)}
            for one in signals[:_MOST_REASONS]
        ],
        "next": {"primary": primary, "backup": backup if proposed is None else proposed.as_dict()},
    }


def _lease(lease: StepLease) -> dict[str, Any]:
    """A lease as views show it."""
    return {
        "agent_id": lease.holder_agent_id,
        "expires_seq": lease.expires_seq,
        "generation": lease.generation,
    }


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _where(scope: Scope, signals: list[Signal]) -> Where:
    place, step = scope.place, scope.step
    target: dict[str, Any] | None = None
    focus: dict[str, Any] | None = None
    if place.task is not None:
        target = {"kind": "task", "id": place.task, "title": _short(scope.title or place.task)}
    if step is not None:
        focus = {"id": step.id, "path": step.path, "title": _short(step.title)}
        focus |= {"lease": _lease(scope.leases[step.id])} if step.id in scope.leases else {}
    return {
        "workspace": place.workspace,
        "target": target,
        "docs": {"notes": len(scope.notes), "trace": len(scope.traces), "radar": len(signals)},
        "step_focus": focus,
        "lane": place.lane,
        "branch": "main" if scope.graph is None else scope.graph.branch,
    }


def _next(scope: Scope) -> tuple[Call | None, Call | None]:
    """What comes next by rule: start, nothing, answer what a person is asked, plan, look at the lease, finish the step,
    finish the task."""
    task = scope.place.task
    if task is None:
        waiting = call("list_files", {"path": "tasks/inbox"}, "tasks.list")
        return waiting, call("check_mailbox", {}, "mail.list", scope.agent_id or "human")
    if scope.over:
        return None, None
    if scope.question is not None and scope.agent_id in (None, HUMAN):
        told, reply = {"id": scope.question, "body": "your answer"}, (HUMAN, scope.question, "your answer")
        return call("reply_mail", told, "mail.reply", *reply), call("check_mailbox", {}, "mail.read", *reply[:2])
    if not scope.steps:
        steps = [{"title": scope.title or task}]
        plan = call("plan_steps", {"steps": steps}, "steps.plan", task, steps, **_by(scope))
        return plan, call(
            "fail_task", {"reason": "it cannot be planned"}, "steps.end_task", task, "failed", **_by(scope)
        )
    step = next((one for one in scope.steps if one.status == "open"), None)
    if step is None:
        blocked = next((one for one in scope.steps if one.status == "blocked"), None)
        if blocked is None:
            return call("finish_task", {}, "steps.end_task", task, **_by(scope)), None
        look = call("resume", {"step": blocked.id}, "steps.get", blocked.id)
        return call("check_mailbox", {}, "mail.list", scope.agent_id or HUMAN), look  # an answer lets it go on
    lease = scope.leases.get(step.id)
    if lease is not None and lease.holder_agent_id != scope.agent_id:
        return look_call(step.id), claim_call(step.id, scope.agent_id, lease.holder_agent_id)
    block = {"step": step.id, "reason": "what is in the way"}
    return _finish(scope, step), call("block_step", block, "steps.block", *block.values(), **_by(scope))


def _by(scope: Scope) -> dict[str, str]:
    return {} if scope.agent_id is None else {"agent_id": scope.agent_id}


def _finish(scope: Scope, step: Step) -> Call:
    """Finish the step with what it still lacks."""
    lacking = step.lacking()
    confirmed = {"confirm": lacking} if lacking else {}  # which the tool does by itself
    found = call("finish_step", {"step": step.id}, "steps.done", step.id, **confirmed, **_by(scope))
    proof = [] if step.proof == "off" or any(one.counts for one in step.evidence) else ["proof"]
    missing = [*lacking, *proof]
    return {**found, "lacks": missing} if missing else found
