"""The views that the command line, MCP and agents use. A view never writes."""

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
from hivemind.views.answer import Capsule, CapsuleLocation, SignalFound, ViewResult, check_budget, fit
from hivemind.views.scope import Readable, Scope, scope_of
from hivemind.views.signal import STALE_AFTER, Signal, analyse_scope, best_action, is_open, is_pinned
from hivemind.words import truncate

_MOST_REASONS = 3
_LONGEST = 120
View = Literal["focus_only", "smart", "explore", "audit", "full"]
VIEWS: tuple[str, ...] = get_args(View)
_BUDGETS = (2_000, 6_000, 12_000)
_CARD_LIMITS = {"smart": (18, 26, 40, 60), "explore": (26, 40, 70, 100)}
_SIGNALS = (3, 6, 10, 20)
_FOCUS_OPEN = 12
_CardTest = Callable[[ReasoningNode], bool]
_Shares = list[tuple[_CardTest, int | None]]
"""The shares of a view in order, each as a test for cards and the maximum number of cards (None: unlimited)."""
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
) -> ViewResult:
    """Return everything that an agent needs to continue its work, within `context_budget` bytes of compact JSON (None: no limit).

    `task` and `step` default to the step that the agent leased last. `view` is focus_only, smart, explore, audit or full; `limit`
    is the maximum number of cards. With `all_lanes` the drafts of all agents are shown. Raises UnknownStep, or CoordinationError
    if arguments are invalid or exclude each other.
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
) -> ViewResult:
    """Return a short form of `resume`, with the same arguments: location, step, signals and up to eight cards, without notes,
    trace and events."""
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
) -> ViewResult:
    """Return the journal's events after `since_seq`, and the cards, notes and actions after `since_card_seq`. The other arguments
    are those of `resume`.

    Pass `seq` and `card_seq` of an answer to the next call. Without `since_card_seq` the answer has no cards.
    """
    if not isinstance(since_seq, int) or isinstance(since_seq, bool) or since_seq < 0:
        raise _invalid_view(
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


def capsule(hive: Readable, agent_id: str | None, task: str | None, step: str | None = None) -> Capsule:
    """Return only the capsule of a view, the short part: `where` the caller is, `why` (signals), `next {primary, backup}` (calls
    to make)."""
    scope = scope_of(hive, agent_id, task, step, all_lanes=False)
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
    """Return the signals of a task as `{code, severity, message, refs, action}`, most important first, at most `limit`. The other
    arguments are those of `resume`. Evidence is stale once it is older than `stale_after`."""
    scope = _scope(hive, agent_id, task, step, "smart", None, all_lanes, limit)
    return [signal.as_dict() for signal in analyse_scope(scope, stale_after)[:limit]]


def _scope(
    hive: Readable, agent_id: str | None, task: str | None, step: str | None, view: str, budget: int | None,
    all_lanes: bool, limit: int | None, since: int | None = None,
) -> Scope:  # fmt: skip
    """Check the arguments of a view and return its scope. Raises CoordinationError for arguments that are invalid or exclude each
    other."""
    if view not in VIEWS:
        raise _invalid_view(f"unknown view: {view!r}", f"views: {', '.join(VIEWS)}")
    if view == "focus_only" and all_lanes:
        raise _invalid_view("focus_only and all_lanes exclude each other", "use view='audit' to see every lane")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise _invalid_view(f"limit must be an integer ≥ 1, not {limit!r}", "the limit counts cards")
    check_budget(budget)
    return scope_of(hive, agent_id, task, step, all_lanes=all_lanes or view == "audit", since=since)


def _invalid_view(message: str, remedy: str) -> CoordinationError:
    view_calls = [
        {"tool": "resume", "arguments": {"view": view}, "call": f"resume(hive, view={view!r})"}
        for view in ("smart", "audit")
    ]
    return CoordinationError(message, code="INVALID_VIEW", remedy=remedy, suggestions=view_calls)


def _head(view: str, scope: Scope, budget: int | None) -> tuple[ViewResult, set[int]]:
    """Return the part that all answers share, and the ids of the cards that the signals refer to."""
    found_signals = analyse_scope(scope)
    answer: ViewResult = {"view": view, "seq": scope.seq, "card_seq": scope.card_seq}
    answer["capsule"] = _capsule(scope, found_signals)
    if scope.coordinates.task is not None:
        answer["task"] = {"id": scope.coordinates.task, "title": scope.title, "over": scope.is_over}
    if scope.step is not None:
        answer["step"] = _step(scope, scope.step)
    if len(scope.steps) > 1:  # a plan may be long: show the steps around the focused step
        focus_index = next((index for index, step in enumerate(scope.steps) if step.id == scope.coordinates.step), 0)
        start = max(0, min(focus_index - _STEPS // 3, len(scope.steps) - _STEPS))
        answer["steps"] = [_brief(step) for step in scope.steps[start : start + _STEPS]]
    answer["signals"] = [signal.as_dict() for signal in found_signals[: _SIGNALS[_size_of(budget)]]]
    return answer, {node_id for signal in found_signals for node_id in signal.refs}


def _brief(step: Step) -> dict[str, str]:
    return {"id": step.id, "path": step.path, "title": step.title, "status": step.status}


def _step(scope: Scope, step: Step) -> _Record:
    fields: _Record = {
        **_brief(step),
        "success_criteria": list(step.success_criteria),
        "tests": list(step.tests),
        "checkpoints": step.checkpoints,
        "proof": step.proof,
        "revision": step.revision,
        "lacks": list(step.missing_checkpoints()),
    }
    if step.evidence:
        fields["evidence"] = [receipt.as_dict() for receipt in step.evidence[-_EVENTS:]]
    if step.id in scope.leases:
        fields["lease"] = _lease(scope.leases[step.id])
    return fields


def _cards(scope: Scope, view: str, budget: int | None, limit: int | None, referred: Collection[int]) -> list[_Record]:
    focus = scope.coordinates.step
    cards = [card for card in scope.cards() if not scope.explicit_step or card.step == focus]
    limits = [] if limit is None else [limit]
    if view not in ("full", "focus_only"):
        limits.append(_CARD_LIMITS.get(view, _CARD_LIMITS["smart"])[_size_of(budget)])
    max_cards = min(limits, default=None)
    return [_card(card) for card in select(cards, view, focus, max_cards, referred)]


def _card(card: ReasoningNode) -> _Record:
    fields: _Record = {"id": card.node_id, "kind": card.kind.value, "title": card.title, "text": card.text}
    fields |= {"status": card.status, "lane": card.lane, "seq": card.created_seq}
    fields |= {} if card.active is True else {"active": card.active}
    optional_fields = {"step": card.step, "tags": list(card.tags), "pinned": card.pinned}
    return fields | {name: value for name, value in optional_fields.items() if value}


def _events(scope: Scope, view: str) -> list[_Record]:
    """Return the task's events; in a view of one step, only the events of the focused step."""
    focus = scope.coordinates.step if scope.explicit_step or view == "focus_only" else None
    return [event.as_dict() for event in scope.events if focus is None or event.payload.get("step_id") == focus]


def _stats(scope: Scope) -> _Record:
    cards = scope.cards()
    return {
        "cards": dict(sorted(Counter(card.kind.value for card in cards).items())),
        "open": sum(card.status == "open" and card.active is True for card in cards),
        "steps": dict(sorted(Counter(step.status for step in scope.steps).items())),
    }


def _lanes(scope: Scope) -> list[_Record]:
    """Return each lane with the number of its cards, of its open cards and of its pinned cards."""
    counts_by_lane: dict[str, Counter[str]] = {}
    for card in scope.cards():
        counts = counts_by_lane.setdefault(card.lane, Counter(cards=0, open=0, pinned=0))
        counts.update(cards=1, open=card.status == "open", pinned=card.pinned)
    return [{"lane": lane, **counts} for lane, counts in sorted(counts_by_lane.items())]


# -- the cards of a view and their order ---------------------------------------------------------------------------


def _size_of(budget: int | None) -> int:
    return len(_BUDGETS) if budget is None else sum(budget > bound for bound in _BUDGETS)


def select(
    cards: Iterable[ReasoningNode], view: str, focus: str | None, max_cards: int | None, referred: Collection[int] = ()
) -> list[ReasoningNode]:
    """Return the cards of a view in order, each once, at most `max_cards` (None: no limit). `focus` is the id of the step in
    focus, `referred` contains the ids of the cards that signals refer to."""
    newest = sorted(
        (card for card in cards if card.kind is not NodeKind.TASK and (view == "full" or card.active is True)),
        key=lambda card: (-card.created_seq, -card.node_id),
    )
    shares = _SHARES.get(view, _smart)(focus, referred)
    picked: dict[int, ReasoningNode] = {}
    for is_in_share, limit in shares:
        fitting = (card for card in newest if card.node_id not in picked and is_in_share(card))
        picked |= {card.node_id: card for card in islice(fitting, limit)}
    return list(picked.values())[:max_cards]


def _of_step(focus: str | None) -> _CardTest:
    return lambda card: focus is not None and card.step == focus


def _open(kind: NodeKind) -> _CardTest:
    return lambda card: card.kind is kind and is_open(card)


def _focus_only(focus: str | None, referred: Collection[int]) -> _Shares:
    open_kinds = (NodeKind.HYPOTHESIS, NodeKind.QUESTION, NodeKind.TEST)
    return [
        (is_pinned, None),
        (_of_step(focus), None),
        (lambda card: card.kind in open_kinds and is_open(card), _FOCUS_OPEN),
        (lambda card: card.node_id in referred, None),
    ]


def _smart(focus: str | None, _: Collection[int], fill: _CardTest = is_open) -> _Shares:
    of_step = _of_step(focus)

    def is_subgoal(card: ReasoningNode) -> bool:
        return is_open(card) and ("subgoal" in card.tags or (card.kind is NodeKind.SUBTASK and card.step is None))

    return [
        (is_pinned, 8),
        (lambda card: of_step(card) and is_open(card), 6),
        (of_step, 4),
        (_open(NodeKind.HYPOTHESIS), 6),
        (_open(NodeKind.QUESTION), 6),
        (is_subgoal, 4),
        (_open(NodeKind.TEST), 6),
        (fill, None),
    ]


_SHARES: dict[str, Callable[[str | None, Collection[int]], _Shares]] = {
    "full": lambda *_: [(lambda _: True, None)],
    "focus_only": _focus_only,
    "explore": partial(_smart, fill=lambda _: True),
}


# -- the capsule: where, why and what next, small and stable under any budget --------------------------------------


def _capsule(scope: Scope, signals: list[Signal]) -> Capsule:
    """Return the capsule: `where`, `why` (up to three signals) and `next {primary, backup}` (calls with all arguments)."""
    primary, backup = _next(scope)
    suggested_action = best_action(signals)
    return {
        "where": _location(scope, signals),
        "why": [
            {"code": signal.code, "severity": signal.severity, "message": _short(signal.message)}
            for signal in signals[:_MOST_REASONS]
        ],
        "next": {"primary": primary, "backup": backup if suggested_action is None else suggested_action.as_dict()},
    }


def _lease(lease: StepLease) -> dict[str, Any]:
    """Return the fields of a lease that views show."""
    return {"agent_id": lease.holder_agent_id, "expires_seq": lease.expires_seq, "generation": lease.generation}


_short = partial(truncate, max_chars=_LONGEST)


def _location(scope: Scope, signals: list[Signal]) -> CapsuleLocation:
    place, step = scope.coordinates, scope.step
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
    """Return the primary and the backup call that the first fitting rule proposes.

    No task: start one. Finished task: no call. Question to a person: answer it. No steps: plan. Otherwise look at
    another agent's lease, finish the next step, or finish the task.
    """
    task = scope.coordinates.task
    if task is None:
        list_inbox = call("list_files", {"path": "tasks/inbox"}, "tasks.list")
        return list_inbox, call("check_mailbox", {}, "mail.list", scope.agent_id or "human")
    if scope.is_over:
        return None, None
    if scope.question is not None and scope.agent_id in (None, HUMAN):
        reply = {"id": scope.question, "body": "your answer"}
        read_question = call("check_mailbox", {}, "mail.read", HUMAN, scope.question)
        return call("reply_mail", reply, "mail.reply", HUMAN, *reply.values()), read_question
    if not scope.steps:
        steps = [{"title": scope.title or task}]
        plan = call("plan_steps", {"steps": steps}, "steps.plan", task, steps, **_by(scope))
        return plan, call(
            "fail_task", {"reason": "the task cannot be planned"}, "steps.end_task", task, "failed", **_by(scope)
        )
    step = next((candidate for candidate in scope.steps if candidate.status == "open"), None)
    if step is None:
        blocked = next((candidate for candidate in scope.steps if candidate.status == "blocked"), None)
        if blocked is None:
            return call("finish_task", {}, "steps.end_task", task, **_by(scope)), None
        look = call("resume", {"step": blocked.id}, "steps.get", blocked.id)
        return call("check_mailbox", {}, "mail.list", scope.agent_id or HUMAN), look  # an answer may unblock it
    lease = scope.leases.get(step.id)
    if lease is not None and lease.holder_agent_id != scope.agent_id:
        return look_call(step.id), claim_call(step.id, scope.agent_id, lease.holder_agent_id)
    block = {"step": step.id, "reason": "what is in the way"}
    return _finish(scope, step), call("block_step", block, "steps.block", *block.values(), **_by(scope))


def _by(scope: Scope) -> dict[str, str]:
    return {} if scope.agent_id is None else {"agent_id": scope.agent_id}


def _finish(scope: Scope, step: Step) -> Call:
    """Return the call that finishes the step. Its `lacks` names the missing checkpoints, and `proof` if the step has no proof
    yet."""
    missing_checkpoints = step.missing_checkpoints()
    confirmed = {"confirm": missing_checkpoints} if missing_checkpoints else {}  # the tool confirms them itself
    finish_call = call("finish_step", {"step": step.id}, "steps.done", step.id, **confirmed, **_by(scope))
    proof = [] if step.proof == "off" or any(receipt.is_proof for receipt in step.evidence) else ["proof"]
    missing_items = [*missing_checkpoints, *proof]
    return {**finish_call, "lacks": missing_items} if missing_items else finish_call
