"""Which cards a view shows, and in which order (spec 3, *Views*; seed 002, *Views*)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Literal, get_args

from hivemind.reasoning import NodeKind, ReasoningNode
from hivemind.views.slice import is_open, is_pinned

__all__ = ["VIEWS", "View", "most_cards", "most_signals", "select"]

View = Literal["focus_only", "smart", "explore", "audit", "full"]
VIEWS: tuple[str, ...] = get_args(View)
_BUDGETS = (2_000, 6_000, 12_000)
_MOST = {"smart": (18, 26, 40, 60), "explore": (26, 40, 70, 100)}
_SIGNALS = (3, 6, 10, 20)
_FOCUS_OPEN = 12
_Wanted = Callable[[ReasoningNode], bool]


def most_cards(view: str, budget: int | None) -> int | None:
    """L: how many cards a view shows at most under a budget in characters; None for no limit (full)."""
    if view in ("full", "focus_only"):
        return None
    return _MOST["explore" if view == "explore" else "smart"][_size_of(budget)]


def most_signals(budget: int | None) -> int:
    """How many signals an answer shows at most, so that under a small budget they leave room for cards."""
    return _SIGNALS[_size_of(budget)]


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
    if view == "full":
        return newest if most is None else newest[:most]
    picked: dict[int, ReasoningNode] = {}
    for wanted, limit in _focus_only(focus, referred) if view == "focus_only" else _smart(focus, view == "explore"):
        room = len(newest) if limit is None else limit
        for card in newest:
            if room == 0 or (most is not None and len(picked) >= most):
                break
            if card.node_id not in picked and wanted(card):
                picked[card.node_id] = card
                room -= 1
    return list(picked.values())


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


def _smart(focus: str | None, warm: bool) -> list[tuple[_Wanted, int | None]]:
    of_step = _of_step(focus)
    return [
        (is_pinned, 8),
        (lambda card: of_step(card) and is_open(card), 6),
        (of_step, 4),
        (_open(NodeKind.HYPOTHESIS), 6),
        (_open(NodeKind.QUESTION), 6),
        (_subgoal, 4),
        (_open(NodeKind.TEST), 6),
        ((lambda _: True) if warm else is_open, None),
    ]
