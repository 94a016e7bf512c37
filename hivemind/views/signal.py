"""Signals: what is worth knowing about a slice of the graph, and what would help (spec 3, *Signals*; seed 002).

Read-only and deterministic. Each rule is a function from a slice to its signals.
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

_GONE = ("rejected", "withdrawn")
_DEPTH = 3
_IN_A_CYCLE = _LEAF = 0.5
_WEIGHTS = {NodeKind.EVIDENCE: 4.0, NodeKind.TEST: 1.5, NodeKind.DECISION: 0.75, NodeKind.HYPOTHESIS: 0.75}
_OTHER_WEIGHT = 0.25


# -- a slice of the graph: the cards that signals are about, how they bear on each other, how sure that makes them ------


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


STALE_AFTER = timedelta(days=30)
_STRONG, _WORST = 60, 2
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
    ("tells of a regression between a good and a bad point", "bisect", tuple(NodeKind), _REGRESSION),
    ("makes a claim to try", "experiment", (NodeKind.HYPOTHESIS,), [_TO_TRY]),
)

Severity = Literal["high", "warning", "info"]
Priority = Literal["high", "medium", "low"]
_SEVERITIES = {"high": 0, "warning": 1, "info": 2}
_PRIORITIES = {"high": 0, "medium": 1, "low": 2}


@frozen
class Action:
    """What would help: a call that can be made as it stands."""

    kind: str
    priority: Priority
    title: str
    call: Call

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "priority": self.priority, "title": self.title, **self.call}


@frozen
class Signal:
    """Something worth knowing about the cards in `refs`. `newest` is the seq in the task's log that it rests on."""

    code: str
    severity: Severity
    message: str
    refs: tuple[int, ...] = ()
    newest: int = 0
    action: Action | None = None

    def as_dict(self) -> SignalFound:
        found: SignalFound = {"code": self.code, "severity": self.severity, "message": self.message}
        if self.refs:
            found["refs"] = list(self.refs)
        if self.action is not None:
            found["action"] = self.action.as_dict()
        return found


def analyse(part: Slice, stale_after: timedelta = STALE_AFTER) -> list[Signal]:
    """Every signal of one slice, by severity, newest, code, message; none twice."""
    found = [*(signal for rule in _RULES for signal in rule(part)), *_stale_evidence(part, stale_after)]
    found.sort(key=lambda one: (_SEVERITIES[one.severity], -one.newest, one.code, one.message, one.refs))
    return _once(found)


def _once(signals: Iterable[Signal]) -> list[Signal]:
    known: dict[object, Signal] = {}
    for one in signals:
        known.setdefault((one.code, one.refs, one.message), one)
    return list(known.values())


def analyse_scope(scope: Scope, stale_after: timedelta = STALE_AFTER) -> list[Signal]:
    """The signals of a scope: those of the step in focus first, then those of everything; none twice."""
    graph = ReasoningGraph() if scope.graph is None else scope.graph.graph
    nodes, focus = scope.cards(), scope.place.step
    visible = frozenset(node.node_id for node in nodes if node.active != FLUSHED)
    receipts = {step.id: step.evidence for step in scope.steps}
    found: list[Signal] = []
    for step in [None] if focus is None else [focus, None]:
        cards = [node for node in nodes if step in (None, node.step)]
        traces = [trace for trace in scope.traces if step in (None, trace.step)]
        part = Slice(graph, cards, visible=visible, traces=traces, events=scope.events, receipts=receipts)
        found += analyse(part, stale_after)
    return _once(found)


def best_action(signals: Iterable[Signal]) -> Action | None:
    """The action to take first: by priority, newest, kind, title."""
    proposed = [(_PRIORITIES[do.priority], -one.newest, do.kind, do.title, do) for one in signals if (do := one.action)]
    return min(proposed, key=lambda one: one[:4])[4] if proposed else None


# -- the rules -----------------------------------------------------------------------------------------------------


def _name(card: ReasoningNode) -> str:
    heading = card.heading
    return f"{card.kind.value} {card.node_id} ({heading if len(heading) <= 80 else heading[:79] + '…'})"


def _about(
    card: ReasoningNode,
    code: str,
    severity: Severity,
    message: str,
    action: Action | None = None,
    beside: Iterable[ReasoningNode] = (),
) -> Signal:
    return Signal(code, severity, message, (card.node_id, *(one.node_id for one in beside)), card.created_seq, action)


def _add_card(action: str, priority: Priority, title: str, kind: str, text: str, step: str | None) -> Action:
    """The action that adds a card, under the step of the card that it is about."""
    arguments: dict[str, object] = {"kind": kind, "text": text, **({} if step is None else {"step": step})}
    return Action(action, priority, title, tool_call("add_card", arguments))


def _run(card: ReasoningNode, action: str, priority: Priority, title: str) -> Action:
    arguments: dict[str, object] = {} if card.step is None else {"step": card.step}
    if (command := command_of(card)) is not None:
        arguments["command"] = command.split()
    return Action(action, priority, title, tool_call("run_command", arguments))


def _unpublished(part: Slice) -> Iterator[Signal]:
    """LANE_DECISION_NOT_PUBLISHED: a decision in an agent's lane, pinned or under 14 days old, not published; at most 8."""
    drafts = []
    for card in part.of(NodeKind.DECISION):
        time = moment(card.created_at)
        fresh = time is None or part.now is None or part.now - time < _FRESH
        if card.lane != SHARED and (is_pinned(card) or fresh) and part.graph.published_copy(card.node_id) is None:
            drafts.append(card)
    for card in drafts[:_MOST_DRAFTS]:
        call = tool_call("publish", {"card": card.node_id})
        action = Action("publish", "medium", f"publish {card.node_id}", call)
        message = f"decision {card.node_id} is in {card.lane} only"
        yield _about(card, "LANE_DECISION_NOT_PUBLISHED", "warning", message, action)


def _contradictions(part: Slice) -> Iterator[Signal]:
    """BM1: an open hypothesis, test or decision with both supports and blocks."""
    for card in filter(is_open, part.of(NodeKind.HYPOTHESIS, NodeKind.TEST, NodeKind.DECISION)):
        supports, blocks = part.supporters(card.node_id), part.blockers(card.node_id)
        if supports and blocks:
            text = f"Which holds, what supports {_name(card)} or what blocks it?"
            title = f"resolve what contradicts itself in {card.node_id}"
            message = f"{_name(card)} has {len(supports)} for it and {len(blocks)} against it"
            involved = (card, *supports, *blocks)
            yield Signal(
                "BM1_CONTRADICTION", "high", message, tuple(one.node_id for one in involved),
                max(one.created_seq for one in involved), _add_card("resolve", "high", title, "question", text, card.step),
            )  # fmt: skip


def _weak_evidence(part: Slice) -> Iterator[Signal]:
    """BM2: evidence under 60 of 100 that is pinned or that a pinned decision rests on; the worst two."""
    weak = []
    for card in part.of(NodeKind.EVIDENCE):
        rests = any(one.kind is NodeKind.DECISION and is_pinned(one) for one in part.supported(card.node_id))
        if (score := part.evidence_score(card)) < _STRONG and (is_pinned(card) or rests):
            weak.append((score, -card.created_seq, card))
    for score, _, card in sorted(weak, key=lambda one: one[:2])[:_WORST]:
        message = f"evidence {card.node_id} scores {score} of 100; a command, a link and a linked test make it stronger"
        yield _about(card, "BM2_EVIDENCE_WEAK", "warning", message)


def _low_confidence(part: Slice) -> Iterator[Signal]:
    """BM3: the least sure pinned decision, or with none of those the least sure open hypothesis."""
    pinned = list(filter(is_pinned, part.of(NodeKind.DECISION)))
    candidates = [(part.confidence(one), -one.created_seq, one) for one in pinned or part.of(NodeKind.HYPOTHESIS)
                  if pinned or is_open(one)]  # fmt: skip
    if not candidates:
        return
    sure, _, card = min(candidates, key=lambda one: one[:2])
    if sure <= (_UNSURE_DECISION if pinned else _UNSURE_HYPOTHESIS):
        text = f"An experiment that would show whether {_name(card)} holds"
        action = _add_card("experiment", "medium", f"try out {card.node_id}", "test", text, card.step)
        message = f"{'pinned' if pinned else 'open'} {_name(card)} stands at confidence {sure:.2f}"
        yield _about(card, "BM3_LOW_CONFIDENCE", "warning" if pinned else "info", message, action)


def _untested(part: Slice) -> Iterator[Signal]:
    """BM4: an open hypothesis without a supporting test, or with a test and no evidence."""
    for card in filter(is_open, part.of(NodeKind.HYPOTHESIS)):
        tests = [one for one in part.supporters(card.node_id) if one.kind is NodeKind.TEST]
        text = f"How would it show if {_name(card)} were wrong?"
        action = _add_card("add_test", "high", f"add a test for {card.node_id}", "test", text, card.step)
        if not tests:
            yield _about(card, "BM4_HYPOTHESIS_NO_TEST", "high", f"{_name(card)} has no test", action)
        elif not any(part.evidence_for(one.node_id) for one in (card, *tests)):
            message = f"{_name(card)} has a test and no evidence"
            yield _about(card, "BM4_HYPOTHESIS_NO_EVIDENCE", "warning", message, action, tests)


def _runnable_tests(part: Slice) -> Iterator[Signal]:
    """BM5: an open test with a command and no evidence."""
    for card in filter(is_open, part.of(NodeKind.TEST)):
        command = command_of(card)
        was_run = any(receipt.text == command for receipt in part.receipts.get(card.step or "", ()))
        if command is not None and not was_run and not part.evidence_for(card.node_id):
            action = _run(card, "run_test", "high", f"run test {card.node_id} and keep its output as evidence")
            yield _about(card, "BM5_RUNNABLE_TEST", "info", f"test {card.node_id} can be run: {command}", action)


def _changed_assumptions(part: Slice) -> Iterator[Signal]:
    """BM6: an assumption that is no longer open and supports something open or pinned."""
    for card in part.cards:
        if "assumption" not in card.tags or card.status == "open":
            continue
        resting = [one for one in part.supported(card.node_id) if is_open(one) or is_pinned(one)]
        if resting:
            names = ", ".join(str(one.node_id) for one in resting)
            text = f"Do {names} still hold, now that {_name(card)} is {card.status}?"
            title = f"check again what rests on {card.node_id}"
            action = _add_card("recheck", "medium", title, "question", text, card.step)
            message = f"the assumption {_name(card)} is {card.status}; on it rest {names}"
            yield _about(card, "BM6_ASSUMPTION_CHANGED", "warning", message, action, resting)


def _counter_arguments(part: Slice) -> Iterator[Signal]:
    """BM7: the best-supported open hypothesis or decision has nothing against it."""
    claims = filter(is_open, part.of(NodeKind.HYPOTHESIS, NodeKind.DECISION))
    supported = [card for card in claims if part.supporters(card.node_id)]
    sure = {card.node_id: round(part.confidence(card), 9) for card in supported}
    best = max(supported, key=lambda one: (sure[one.node_id], one.created_seq, one.node_id), default=None)
    if best is not None and not part.blockers(best.node_id):
        text = f"The strongest case against {_name(best)}, and a test that would prove it wrong"
        action = _add_card("steelman", "medium", f"argue against {best.node_id}", "test", text, best.step)
        yield _about(best, "BM7_NO_COUNTER_ARGUMENT", "info", f"nothing speaks against {_name(best)} yet", action)


def _stale_evidence(part: Slice, stale_after: timedelta) -> Iterator[Signal]:
    """BM8: the newest evidence is older than `stale_after`, counted back from the newest time in the slice."""
    dated = [(time, card) for card in part.of(NodeKind.EVIDENCE) if (time := moment(card.created_at)) is not None]
    if not dated or part.now is None:
        return
    time, card = max(dated, key=lambda one: (one[0], one[1].created_seq))
    if part.now - time > stale_after:
        supported = part.supported(card.node_id)
        tests = [one for one in supported if one.kind is NodeKind.TEST and command_of(one) is not None]
        title = f"run the test behind evidence {card.node_id} again"
        action = _run(tests[0] if tests else card, "rerun_test", "medium", title)
        message = f"the newest evidence, {card.node_id}, is {(part.now - time).days} days old"
        yield _about(card, "BM8_EVIDENCE_STALE", "warning", message, action)


def _patterns(part: Slice) -> Iterator[Signal]:
    """BM9: the newest open card that weighs alternatives, tells of a regression, or makes a claim to try."""
    for what, name, kinds, signs in _PATTERNS:
        for card in filter(is_open, part.of(*kinds)):
            if all(sign.search(f"{card.title}\n{card.text}") for sign in signs):
                about = f"{card.kind.value} {card.node_id}"
                action = _add_card(name.replace(" ", "_"), "low", f"{name} for {card.node_id}", "test",
                                   f"{name.capitalize()} for {about}", card.step)  # fmt: skip
                yield _about(card, "BM9_PATTERN", "info", f"{about} {what}: {name}", action)
                break


def _stuck(part: Slice) -> Iterator[Signal]:
    """BM10: many cards and no evidence, steps added faster than closed, no new evidence for long."""
    last = part.traces[-1] if part.traces else None
    text = "What was expected, what happened, what is the smallest thing that shows the difference?"
    action = _add_card("debug_playbook", "medium", "step back and debug", "question", text, last.step if last else None)

    def signal(code: str, message: str) -> Signal:
        return Signal(code, "warning", message, (), last.seq if last else 0, action)

    cards, evidence = _made(part, _LAST_TRACES)
    if len(part.traces) >= _LAST_TRACES and cards >= _MANY_CARDS and not evidence:
        yield signal("BM10_STUCK", f"{cards} cards and no evidence in the last {_LAST_TRACES} actions")
    recent = part.events[-_WINDOW:]
    added = sum(len(event.payload.get("steps", (1,))) for event in recent if event.kind == "step.added")
    closed = sum(event.kind == "step.done" for event in recent)
    if len(recent) == _WINDOW and added > closed:
        yield signal("BM10_SCOPE_CREEP", f"{added} steps added and {closed} closed in the last {_WINDOW} events")
    if len(part.traces) >= _WINDOW and not _made(part, _WINDOW)[1]:
        yield signal("BM10_NO_NEW_EVIDENCE", f"no new evidence in the last {_WINDOW} actions")


def _made(part: Slice, last: int) -> tuple[int, int]:
    """(cards, evidence) that came with the last actions, by what they say they did and by what is in the graph."""
    recent = part.traces[-last:]
    made = [card.kind for card in part.cards if recent and card.created_seq >= recent[0].seq]
    proofs = made.count(NodeKind.EVIDENCE)
    said = [sum(word in trace.kind for trace in recent) for word in ("card", "evidence")]
    return max(len(made) - proofs, said[0]), max(proofs, said[1])


_RULES = (
    _unpublished, _weak_evidence, _untested, _runnable_tests, _contradictions, _low_confidence, _changed_assumptions,
    _patterns, _counter_arguments, _stuck,
)  # fmt: skip
