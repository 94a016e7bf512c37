"""Signals: remarks about a slice of a task's graph (the cards that one view covers), with proposed calls.

Each rule is a function that returns the signals of a slice. Rules do not write, and the same slice has the same signals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from hivemind.boundary import Unreadable, boundary
from hivemind.coordination import Call, CoordinationError, Event, Receipt, receipts_of, tool_call
from hivemind.frozen import frozen
from hivemind.reasoning import FLUSHED, SHARED, NodeKind, ReasoningGraph, ReasoningNode, Trace
from hivemind.views.answer import SignalFound
from hivemind.views.scope import Scope
from hivemind.words import truncate

_REFUSED_STATUSES = ("rejected", "withdrawn")
_DEPTH = 3
_CYCLE_CONFIDENCE = _LEAF_CONFIDENCE = 0.5
_WEIGHTS = {NodeKind.EVIDENCE: 4.0, NodeKind.TEST: 1.5, NodeKind.DECISION: 0.75, NodeKind.HYPOTHESIS: 0.75}
_OTHER_WEIGHT = 0.25


# -- a slice of the graph: cards, their relations and their confidence ---------------------------------------------


def is_open(card: ReasoningNode) -> bool:
    return card.status == "open" and card.active is True


def is_pinned(card: ReasoningNode) -> bool:
    return card.pinned or "pinned" in card.tags


@lru_cache(maxsize=8192)  # many cards of one change have the same time
def parse_time(text: str | None) -> datetime | None:
    """Parse a time and return it in UTC; None if the text is empty or not a time."""
    if not text:
        return None
    with suppress(Unreadable), boundary("time"):
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return None


class SignalInput:
    """A slice of a graph, newest cards first. Visible cards outside the slice can support or block its cards.

    `now` is the newest time in the slice, not the clock's time. `receipts` maps the ids of steps to their receipts.
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
        times = map(parse_time, [*(card.created_at for card in self.cards), *(trace.at for trace in self.traces)])
        self.now = max((time for time in times if time is not None), default=None)

    def cards_of_kinds(self, *kinds: NodeKind) -> list[ReasoningNode]:
        """Return the cards of these kinds, newest first."""
        return [card for card in self.cards if card.kind in kinds]

    def supporters(self, node_id: int) -> list[ReasoningNode]:
        """Return the nodes that support a card, sorted by id: those with a link to it, and its children of kind evidence."""
        children = {child.node_id for child in self.graph.children(node_id) if child.kind is NodeKind.EVIDENCE}
        return self._valid_nodes(children | {link.src for link in self.graph.links_to(node_id, "supports")})

    def blockers(self, node_id: int) -> list[ReasoningNode]:
        """Return the nodes that block a card, sorted by id."""
        return self._valid_nodes({link.src for link in self.graph.links_to(node_id, "blocks")})

    def supported(self, node_id: int) -> list[ReasoningNode]:
        """Return the nodes that a card supports, sorted by id."""
        supported_ids = {link.dst for link in self.graph.links_from(node_id, "supports")}
        if self.graph.nodes[node_id].kind is NodeKind.EVIDENCE:
            supported_ids.update(parent.node_id for parent in self.graph.parents(node_id))
        return [self.graph.nodes[supported_id] for supported_id in sorted(supported_ids & self._visible)]

    def evidence_for(self, node_id: int) -> list[ReasoningNode]:
        """Return the nodes of kind evidence among the card's supporters."""
        return [card for card in self.supporters(node_id) if card.kind is NodeKind.EVIDENCE]

    def _valid_nodes(self, node_ids: set[int]) -> list[ReasoningNode]:
        nodes = [self.graph.nodes[node_id] for node_id in sorted(node_ids & self._visible)]
        return [node for node in nodes if node.active != FLUSHED and node.status not in _REFUSED_STATUSES]

    def evidence_score(self, card: ReasoningNode) -> int:
        """Return the score of an evidence card from 0 to 100, a sum of points.

        25 for a CMD receipt, 25 for a LINK receipt, 20 for CI (10 for a local run), 20 for a linked test (10 for other links).
        """
        proofs = [receipt for receipt in _receipts_on(card) if receipt.is_proof]
        has_command = any(receipt.kind == "CMD" for receipt in proofs)
        score = 25 * has_command + 25 * any(receipt.kind == "LINK" for receipt in proofs)
        if proofs:
            score += 20 if "ci" in card.tags or any(receipt.ci for receipt in proofs) else 10 * has_command
        kinds = {supported_card.kind for supported_card in self.supported(card.node_id)}
        score += 20 if NodeKind.TEST in kinds else 10 if kinds & {NodeKind.HYPOTHESIS, NodeKind.DECISION} else 0
        return min(100, score)

    def confidence(self, card: ReasoningNode, depth: int = _DEPTH, visited: frozenset[int] = frozenset()) -> float:
        """Return a card's confidence from 0 to 1, computed from its supporters and blockers to a depth of three.

        (1 + Σ w·c of the supporters) / (2 + Σ w·c of supporters and blockers), with weight w and confidence c
        """
        if card.kind is NodeKind.EVIDENCE:
            return self.evidence_score(card) / 100
        if card.node_id in visited:
            return _CYCLE_CONFIDENCE
        if depth == 0:
            return _LEAF_CONFIDENCE
        path = visited | {card.node_id}
        supports, blocks = (
            sum(_WEIGHTS.get(node.kind, _OTHER_WEIGHT) * self.confidence(node, depth - 1, path) for node in nodes)
            for nodes in (self.supporters(card.node_id), self.blockers(card.node_id))
        )
        return (1 + supports) / (2 + supports + blocks)


def command_of(card: ReasoningNode) -> str | None:
    """Return the command in a card's meta (`run` or `command`, a text or a list); None without a command."""
    for name in ("run", "command"):
        command = card.meta.get(name)
        if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
            command = " ".join(command)
        if isinstance(command, str) and Receipt("CMD", command).is_proof:
            return command
    return None


def _receipts_on(card: ReasoningNode) -> list[Receipt]:
    """Return the receipts that a card contains.

    Receipts are made from the card's meta (`receipts`; `run` or `command` with `exit_status`; `artifact`, `citation`,
    `link`, `url`), and from lines of its text that begin with `CMD:` or `LINK:`.
    """
    receipts: list[Receipt] = []
    meta_field: Any = card.meta.get("receipts")
    for fields in meta_field if isinstance(meta_field, list) else []:
        with suppress(CoordinationError, TypeError):  # skip invalid receipts
            receipts += receipts_of(fields)
    command = command_of(card)
    if command is not None:
        status = card.meta.get("exit_status")
        receipts.append(
            Receipt("CMD", command, status if type(status) is int else None, ci=card.meta.get("ci") is True)
        )
    for name in ("artifact", "citation", "link", "url"):
        meta_field = card.meta.get(name)
        link = meta_field.get("path") if isinstance(meta_field, Mapping) else meta_field
        if isinstance(link, str) and link:
            receipts.append(Receipt("LINK", link))
    for line in card.text.splitlines():
        kind, colon, text = line.strip().partition(":")
        if colon and kind in ("CMD", "LINK"):
            receipts.append(Receipt("CMD" if kind == "CMD" else "LINK", text.strip()))
    return receipts


STALE_AFTER = timedelta(days=30)
_STRONG_SCORE, _WORST = 60, 2
_UNSURE_DECISION, _UNSURE_HYPOTHESIS = 0.55, 0.45
_FRESH, _MOST_DRAFTS = timedelta(days=14), 8
_LAST_TRACES, _MANY_CARDS, _WINDOW = 12, 6, 20
_ALTERNATIVES = re.compile(
    r"\b(?:vs\b|versus\b|trade-?offs?\b)|(?<![\w/])[A-Za-z]\w*/[A-Za-z]\w*(?![\w/.])", re.IGNORECASE
)
_REGRESSION = [
    re.compile(sign, re.IGNORECASE) for sign in (r"\bregress", r"\bgood\b|\bworked\b", r"\bbad\b|\bbroken\b")
]
_TO_TRY = re.compile(r"\b(?:try|experiment|see if|check whether|test whether)\b", re.IGNORECASE)
_PATTERNS = (
    ("weighs alternatives", "criteria matrix", (NodeKind.QUESTION, NodeKind.DECISION), [_ALTERNATIVES]),
    ("describes a regression between a good and a bad point", "bisect", tuple(NodeKind), _REGRESSION),
    ("makes a claim to try", "experiment", (NodeKind.HYPOTHESIS,), [_TO_TRY]),
)

Severity = Literal["high", "warning", "info"]
Priority = Literal["high", "medium", "low"]
_SEVERITIES = {"high": 0, "warning": 1, "info": 2}
_PRIORITIES = {"high": 0, "medium": 1, "low": 2}


@frozen
class ProposedCall:
    """A call that a signal proposes to its reader, with a kind, a priority and a title."""

    kind: str
    priority: Priority
    title: str
    call: Call

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "priority": self.priority, "title": self.title, **self.call}


@frozen
class Signal:
    """A rule's remark about the cards in `refs`. `newest` is the newest seq among the cards and actions that led to it."""

    code: str
    severity: Severity
    message: str
    refs: tuple[int, ...] = ()
    newest: int = 0
    action: ProposedCall | None = None

    def as_dict(self) -> SignalFound:
        signal: SignalFound = {"code": self.code, "severity": self.severity, "message": self.message}
        if self.refs:
            signal["refs"] = list(self.refs)
        if self.action is not None:
            signal["action"] = self.action.as_dict()
        return signal


def analyse(part: SignalInput, stale_after: timedelta = STALE_AFTER) -> list[Signal]:
    """Return the signals of a slice without duplicates, sorted by severity, `newest`, code and message."""
    signals = [*(signal for rule in _RULES for signal in rule(part)), *_stale_evidence(part, stale_after)]
    signals.sort(
        key=lambda signal: (_SEVERITIES[signal.severity], -signal.newest, signal.code, signal.message, signal.refs)
    )
    return _without_duplicates(signals)


def _without_duplicates(signals: Iterable[Signal]) -> list[Signal]:
    unique_signals: dict[object, Signal] = {}
    for signal in signals:
        unique_signals.setdefault((signal.code, signal.refs, signal.message), signal)
    return list(unique_signals.values())


def analyse_scope(scope: Scope, stale_after: timedelta = STALE_AFTER) -> list[Signal]:
    """Return the signals of a scope without duplicates: first signals about the step in focus, then about all cards."""
    graph = ReasoningGraph() if scope.graph is None else scope.graph.graph
    nodes, focus = scope.cards(), scope.coordinates.step
    visible = frozenset(node.node_id for node in nodes if node.active != FLUSHED)
    receipts = {step.id: step.evidence for step in scope.steps}
    signals = [Signal("OVERLAP", "warning", overlap.text) for overlap in scope.overlaps]
    for step in [None] if focus is None else [focus, None]:
        cards = [node for node in nodes if step in (None, node.step)]
        traces = [trace for trace in scope.traces if step in (None, trace.step)]
        graph_slice = SignalInput(graph, cards, visible=visible, traces=traces, events=scope.events, receipts=receipts)
        signals += analyse(graph_slice, stale_after)
    return _without_duplicates(signals)


def best_action(signals: Iterable[Signal]) -> ProposedCall | None:
    """Return the proposed call of the signals that comes first by priority, `newest`, kind and title. Return None if no signal
    proposes a call."""
    proposed = [
        (_PRIORITIES[action.priority], -signal.newest, action.kind, action.title, action)
        for signal in signals
        if (action := signal.action)
    ]
    return min(proposed, key=lambda candidate: candidate[:4])[4] if proposed else None


# -- the rules -----------------------------------------------------------------------------------------------------


def _card_name(card: ReasoningNode) -> str:
    return f"{card.kind.value} {card.node_id} ({truncate(card.heading, 80)})"


def _signal(
    card: ReasoningNode,
    code: str,
    severity: Severity,
    message: str,
    action: ProposedCall | None = None,
    related: Iterable[ReasoningNode] = (),
) -> Signal:
    return Signal(
        code,
        severity,
        message,
        (card.node_id, *(related_card.node_id for related_card in related)),
        card.created_seq,
        action,
    )


def _add_card(action: str, priority: Priority, title: str, kind: str, text: str, step: str | None) -> ProposedCall:
    """Return a proposed call that adds a card to a step."""
    arguments: dict[str, object] = {"kind": kind, "text": text, **({} if step is None else {"step": step})}
    return ProposedCall(action, priority, title, tool_call("add_card", arguments))


def _run(card: ReasoningNode, action: str, priority: Priority, title: str) -> ProposedCall:
    arguments: dict[str, object] = {} if card.step is None else {"step": card.step}
    if (command := command_of(card)) is not None:
        arguments["command"] = command.split()
    return ProposedCall(action, priority, title, tool_call("run_command", arguments))


def _unpublished(part: SignalInput) -> Iterator[Signal]:
    """Yield the signal LANE_DECISION_NOT_PUBLISHED for up to 8 unpublished decisions of an agent that are pinned or under 14 days
    old."""
    drafts = []
    for card in part.cards_of_kinds(NodeKind.DECISION):
        time = parse_time(card.created_at)
        is_recent = time is None or part.now is None or part.now - time < _FRESH
        if card.lane != SHARED and (is_pinned(card) or is_recent) and part.graph.published_copy(card.node_id) is None:
            drafts.append(card)
    for card in drafts[:_MOST_DRAFTS]:
        call = tool_call("publish", {"card": card.node_id})
        action = ProposedCall("publish", "medium", f"publish {card.node_id}", call)
        message = f"decision {card.node_id} is in {card.lane} only"
        yield _signal(card, "LANE_DECISION_NOT_PUBLISHED", "warning", message, action)


def _contradictions(part: SignalInput) -> Iterator[Signal]:
    """Yield a signal (code BM1) for each open hypothesis, test or decision that some cards support and other cards block."""
    for card in filter(is_open, part.cards_of_kinds(NodeKind.HYPOTHESIS, NodeKind.TEST, NodeKind.DECISION)):
        supports, blocks = part.supporters(card.node_id), part.blockers(card.node_id)
        if supports and blocks:
            text = f"Which is right, what supports {_card_name(card)} or what blocks it?"
            title = f"resolve the contradiction in {card.node_id}"
            message = f"{_card_name(card)} has {len(supports)} for it and {len(blocks)} against it"
            involved = (card, *supports, *blocks)
            yield Signal(
                "BM1_CONTRADICTION", "high", message, tuple(node.node_id for node in involved),
                max(node.created_seq for node in involved), _add_card("resolve", "high", title, "question", text, card.step),
            )  # fmt: skip


def _weak_evidence(part: SignalInput) -> Iterator[Signal]:
    """Yield a signal (code BM2) for each of the two weakest evidence cards with a score under 60 that are pinned or
    support a pinned decision."""
    weak = []
    for card in part.cards_of_kinds(NodeKind.EVIDENCE):
        is_relied_on = any(
            supported_card.kind is NodeKind.DECISION and is_pinned(supported_card)
            for supported_card in part.supported(card.node_id)
        )
        if (score := part.evidence_score(card)) < _STRONG_SCORE and (is_pinned(card) or is_relied_on):
            weak.append((score, -card.created_seq, card))
    for score, _, card in sorted(weak, key=lambda candidate: candidate[:2])[:_WORST]:
        message = f"evidence {card.node_id} scores {score} of 100; a command, a link and a linked test make it stronger"
        yield _signal(card, "BM2_EVIDENCE_WEAK", "warning", message)


def _low_confidence(part: SignalInput) -> Iterator[Signal]:
    """Yield a signal (code BM3) for the least confident pinned decision; without pinned decisions, for the least confident open
    hypothesis."""
    pinned = list(filter(is_pinned, part.cards_of_kinds(NodeKind.DECISION)))
    candidates = [(part.confidence(node), -node.created_seq, node) for node in pinned or part.cards_of_kinds(NodeKind.HYPOTHESIS)
                  if pinned or is_open(node)]  # fmt: skip
    if not candidates:
        return
    confidence, _, card = min(candidates, key=lambda candidate: candidate[:2])
    if confidence <= (_UNSURE_DECISION if pinned else _UNSURE_HYPOTHESIS):
        text = f"An experiment that would show whether {_card_name(card)} holds"
        action = _add_card("experiment", "medium", f"try out {card.node_id}", "test", text, card.step)
        message = f"{'pinned' if pinned else 'open'} {_card_name(card)} has confidence {confidence:.2f}"
        yield _signal(card, "BM3_LOW_CONFIDENCE", "warning" if pinned else "info", message, action)


def _untested(part: SignalInput) -> Iterator[Signal]:
    """Yield a signal (code BM4) for each open hypothesis that no test supports, or that has a test but no evidence."""
    for card in filter(is_open, part.cards_of_kinds(NodeKind.HYPOTHESIS)):
        tests = [supporter for supporter in part.supporters(card.node_id) if supporter.kind is NodeKind.TEST]
        text = f"How would it show if {_card_name(card)} were wrong?"
        action = _add_card("add_test", "high", f"add a test for {card.node_id}", "test", text, card.step)
        if not tests:
            yield _signal(card, "BM4_HYPOTHESIS_NO_TEST", "high", f"{_card_name(card)} has no test", action)
        elif not any(part.evidence_for(hypothesis_or_test.node_id) for hypothesis_or_test in (card, *tests)):
            message = f"{_card_name(card)} has a test and no evidence"
            yield _signal(card, "BM4_HYPOTHESIS_NO_EVIDENCE", "warning", message, action, tests)


def _runnable_tests(part: SignalInput) -> Iterator[Signal]:
    """Yield a signal (code BM5) for each open test that has a command to run but no evidence yet."""
    for card in filter(is_open, part.cards_of_kinds(NodeKind.TEST)):
        command = command_of(card)
        was_run = any(receipt.text == command for receipt in part.receipts.get(card.step or "", ()))
        if command is not None and not was_run and not part.evidence_for(card.node_id):
            action = _run(card, "run_test", "high", f"run test {card.node_id} and keep its output as evidence")
            yield _signal(card, "BM5_RUNNABLE_TEST", "info", f"test {card.node_id} can be run: {command}", action)


def _changed_assumptions(part: SignalInput) -> Iterator[Signal]:
    """Yield a signal (code BM6) for each assumption that is not open any more, but supports an open or pinned card."""
    for card in part.cards:
        if "assumption" not in card.tags or card.status == "open":
            continue
        dependents = [
            supported_card
            for supported_card in part.supported(card.node_id)
            if is_open(supported_card) or is_pinned(supported_card)
        ]
        if dependents:
            names = ", ".join(str(dependent.node_id) for dependent in dependents)
            text = f"Do {names} still hold, now that {_card_name(card)} is {card.status}?"
            title = f"recheck the cards that depend on {card.node_id}"
            action = _add_card("recheck", "medium", title, "question", text, card.step)
            message = f"the assumption {_card_name(card)} is {card.status} and supports {names}"
            yield _signal(card, "BM6_ASSUMPTION_CHANGED", "warning", message, action, dependents)


def _counter_arguments(part: SignalInput) -> Iterator[Signal]:
    """Yield a signal (code BM7) for the supported open hypothesis or decision with the highest confidence, if no card blocks
    it."""
    claims = filter(is_open, part.cards_of_kinds(NodeKind.HYPOTHESIS, NodeKind.DECISION))
    supported = [card for card in claims if part.supporters(card.node_id)]
    confidences = {card.node_id: round(part.confidence(card), 9) for card in supported}
    best = max(
        supported, key=lambda claim: (confidences[claim.node_id], claim.created_seq, claim.node_id), default=None
    )
    if best is not None and not part.blockers(best.node_id):
        text = f"The strongest case against {_card_name(best)}, and a test that would prove it wrong"
        action = _add_card("steelman", "medium", f"argue against {best.node_id}", "test", text, best.step)
        yield _signal(
            best, "BM7_NO_COUNTER_ARGUMENT", "info", f"no counter-argument yet against {_card_name(best)}", action
        )


def _stale_evidence(part: SignalInput, stale_after: timedelta) -> Iterator[Signal]:
    """Yield a signal (code BM8) for the newest evidence if it is older than `stale_after`, measured from the newest time in the
    slice."""
    dated = [
        (time, card)
        for card in part.cards_of_kinds(NodeKind.EVIDENCE)
        if (time := parse_time(card.created_at)) is not None
    ]
    if not dated or part.now is None:
        return
    time, card = max(dated, key=lambda pair: (pair[0], pair[1].created_seq))
    if part.now - time > stale_after:
        supported = part.supported(card.node_id)
        tests = [
            supported_card
            for supported_card in supported
            if supported_card.kind is NodeKind.TEST and command_of(supported_card) is not None
        ]
        title = f"run the test behind evidence {card.node_id} again"
        action = _run(tests[0] if tests else card, "rerun_test", "medium", title)
        message = f"the newest evidence, {card.node_id}, is {(part.now - time).days} days old"
        yield _signal(card, "BM8_EVIDENCE_STALE", "warning", message, action)


def _patterns(part: SignalInput) -> Iterator[Signal]:
    """Yield a signal (code BM9) for the newest open card that matches a pattern: it weighs alternatives, describes a
    regression, or claims something that can be tried."""
    for finding, method, kinds, patterns in _PATTERNS:
        for card in filter(is_open, part.cards_of_kinds(*kinds)):
            if all(pattern.search(f"{card.title}\n{card.text}") for pattern in patterns):
                card_name = f"{card.kind.value} {card.node_id}"
                action = _add_card(method.replace(" ", "_"), "low", f"{method} for {card.node_id}", "test",
                                   f"{method.capitalize()} for {card_name}", card.step)  # fmt: skip
                yield _signal(card, "BM9_PATTERN", "info", f"{card_name} {finding}: {method}", action)
                break


def _stuck(part: SignalInput) -> Iterator[Signal]:
    """Yield a signal (code BM10) if work seems stuck: many new cards without evidence, more steps added than closed, or many
    actions without evidence."""
    last_trace = part.traces[-1] if part.traces else None
    text = "What was expected, what happened, what is the smallest thing that shows the difference?"
    action = _add_card(
        "debug_playbook", "medium", "step back and debug", "question", text, last_trace.step if last_trace else None
    )

    def signal(code: str, message: str) -> Signal:
        return Signal(code, "warning", message, (), last_trace.seq if last_trace else 0, action)

    cards, evidence = _count_additions(part, _LAST_TRACES)
    if len(part.traces) >= _LAST_TRACES and cards >= _MANY_CARDS and not evidence:
        yield signal("BM10_STUCK", f"{cards} cards and no evidence in the last {_LAST_TRACES} actions")
    recent = part.events[-_WINDOW:]
    added_steps = sum(len(event.payload.get("steps", (1,))) for event in recent if event.kind == "step.added")
    closed_steps = sum(event.kind == "step.done" for event in recent)
    if len(recent) == _WINDOW and added_steps > closed_steps:
        yield signal(
            "BM10_SCOPE_CREEP", f"{added_steps} steps added and {closed_steps} closed in the last {_WINDOW} events"
        )
    if len(part.traces) >= _WINDOW and not _count_additions(part, _WINDOW)[1]:
        yield signal("BM10_NO_NEW_EVIDENCE", f"no new evidence in the last {_WINDOW} actions")


def _count_additions(part: SignalInput, last: int) -> tuple[int, int]:
    """Return how many other cards and how many evidence cards the last `last` actions added. Where the trace and the graph
    differ, the larger number counts."""
    recent = part.traces[-last:]
    new_kinds = [card.kind for card in part.cards if recent and card.created_seq >= recent[0].seq]
    evidence_count = new_kinds.count(NodeKind.EVIDENCE)
    trace_counts = [sum(word in trace.kind for trace in recent) for word in ("card", "evidence")]
    return max(len(new_kinds) - evidence_count, trace_counts[0]), max(evidence_count, trace_counts[1])


_RULES = (
    _unpublished, _weak_evidence, _untested, _runnable_tests, _contradictions, _low_confidence, _changed_assumptions,
    _patterns, _counter_arguments, _stuck,
)  # fmt: skip
