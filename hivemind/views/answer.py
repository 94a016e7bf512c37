"""The answer of a view, which is shortened to fit into a budget.

The budget counts UTF-8 bytes of compact JSON. First long texts are cut. Then traces, notes and events are removed
(oldest first), then cards from the tail, statistics, signals, and last the capsule.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NotRequired, TypedDict, cast

from hivemind.coordination import Call, CoordinationError
from hivemind.masking import escape_controls
from hivemind.words import truncate

_MIN_BUDGET = 2
_MIN_CAPSULE_BUDGET = 200
_TEXTS = ("text", "title", "message", "reason")
_Record = dict[str, Any]
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class CapsuleLocation(TypedDict, total=False):
    """Where the caller is: task, step, lane (whose drafts it sees) and branch. The smallest budgets leave only the workspace and
    the lane."""

    workspace: str
    target: _Record | None
    docs: dict[str, int]
    step_focus: _Record | None
    lane: str
    branch: str


class Capsule(TypedDict):
    """The caller's location, the most important signals, and the next calls with all arguments."""

    where: CapsuleLocation
    why: list[dict[str, str]]
    next: dict[Literal["primary", "backup"], Call | None]


class SignalFound(TypedDict):
    """A signal in an answer. `action` is a proposed call with its kind, priority and title."""

    code: str
    severity: str
    message: str
    refs: NotRequired[list[int]]
    action: NotRequired[_Record]


class ViewResult(TypedDict, total=False):
    """The answer of `resume`, `snapshot` or `watch`. A small budget may remove any field (README, *The answer*)."""

    view: str
    seq: int
    card_seq: int
    capsule: Capsule
    task: _Record
    step: _Record
    steps: list[dict[str, str]]
    signals: list[SignalFound]
    cards: list[_Record]
    notes: list[_Record]
    trace: list[_Record]
    events: list[_Record]
    stats: dict[str, Any]
    lanes: list[_Record]
    since: dict[str, int | None]
    budget: _Record
    degradation: list[str]
    truncated: bool


def render(answer: object) -> str:
    """Return an answer as compact JSON: the budget counts these bytes. Control characters are escaped."""
    return escape_controls(_encoder.encode(answer))


def _size(value: Any) -> int:
    return len(render(value).encode())


def check_budget(budget: object) -> None:
    """Raise CoordinationError (`INVALID_BUDGET`) unless the budget is None or an integer ≥ 2."""
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget < _MIN_BUDGET):
        raise CoordinationError(
            f"{budget!r} is not a valid context_budget",
            code="INVALID_BUDGET",
            remedy=f"pass at least {_MIN_BUDGET} (bytes), or no budget",
        )


def fit(full: ViewResult, budget: int | None) -> ViewResult:
    """Add the fields `budget` and `degradation` to the answer `full`, and shorten it in place to `budget` bytes (None: no limit).
    Return it. A tiny budget leaves only `truncated`, or {}."""
    answer = cast(_Record, full)
    degradation: list[str] = []
    used_bytes = _stamp(answer, budget, degradation)
    if budget is None or used_bytes <= budget:
        return full
    if budget < _MIN_CAPSULE_BUDGET:
        bare_answer: ViewResult = {"truncated": True}
        return bare_answer if _size(bare_answer) <= budget else {}
    for code, shorten in _STAGES:
        while used_bytes > budget and shorten(answer, used_bytes - budget):
            degradation += [] if code in degradation else [code]
            used_bytes = _stamp(answer, budget, degradation)
    if used_bytes > budget:  # only the location and the codes are left
        _stamp(answer, budget, ["CAPSULE_CUT"])
    return full


def _stamp(answer: _Record, budget: int | None, degradation: list[str]) -> int:
    """Write `budget` and `degradation` into the answer, including the answer's own size in bytes. Return the size."""
    answer["degradation"] = degradation
    stamp = answer["budget"] = {"max_chars": budget, "used_chars": 0, "truncated": bool(degradation)}
    size_without_number = _size(answer) - 1
    used_bytes = size_without_number + 1
    while used_bytes != size_without_number + len(str(used_bytes)):  # the digits of the size count, too
        used_bytes = size_without_number + len(str(used_bytes))
    stamp["used_chars"] = used_bytes
    return used_bytes


# Each function shortens an answer that is `excess` bytes too long, or returns False if it cannot. ---


def _cut_texts(value: Any, _excess: int, *, longest: int) -> bool:
    """Cut long texts to `longest` characters, except in the capsule and in calls, which must stay complete. Return True if any
    was cut."""
    is_changed = False
    containers = [value]
    for container in containers:
        for name, item in list(container.items() if isinstance(container, dict) else enumerate(container)):
            if isinstance(item, str) and len(item) > longest and (isinstance(name, int) or name in _TEXTS):
                container[name] = truncate(item, longest)
                is_changed = True
            elif isinstance(item, dict | list) and name != "capsule" and "call" not in item:
                containers.append(item)
    return is_changed


def _drop(answer: _Record, excess: int, *, name: str, from_start: bool = False) -> bool:
    """Remove items from one end of the list `name` until `excess` bytes are free. Replace an emptied list by the number of its
    items. Return False if there was nothing to remove."""
    items = answer.get(name)
    if not items or items[0].get("type") == "summary":
        return False
    remaining, freed = list(items), 0
    while remaining and freed < excess:
        freed += _size(remaining.pop(0 if from_start else -1)) + 1
    answer[name] = remaining or [{"type": "summary", "label": name, "count": len(items)}]
    return True


def _remove(answer: _Record, _excess: int, *, path: str) -> bool:
    *parents, name = path.split(".")
    for parent in parents:
        answer = answer[parent]
    return answer.pop(name, answer) is not answer


def _keep_location(answer: _Record, _excess: int) -> bool:
    """Reduce the capsule to the workspace and the lane, each cut to 16 bytes. Return False if it was reduced before."""
    location = answer["capsule"]["where"]
    answer["capsule"] = {"where": {name: _clip(location[name], 16) for name in ("workspace", "lane")}}
    return "target" in location


def _clip(text: str, max_bytes: int) -> str:
    """Return a text cut to at most `max_bytes` of JSON, including the ellipsis that marks the cut."""
    if _size(text) - 2 <= max_bytes:
        return text
    while text and _size(text + "…") - 2 > max_bytes:
        text = text[:-1]
    return text + "…"


_STAGES: list[tuple[str, Callable[[_Record, int], bool]]] = [
    *(("TEXT_CUT", partial(_cut_texts, longest=longest)) for longest in (2_000, 1_000, 400, 160, 80)),
    *((f"{name.upper()}_TRIMMED", partial(_drop, name=name, from_start=True)) for name in ("trace", "notes", "events")),
    ("CARDS_TRIMMED", partial(_drop, name="cards")),
    *(("STATS_DROPPED", partial(_remove, path=name)) for name in ("stats", "lanes", "steps", "task", "step", "since")),
    ("SIGNALS_TRIMMED", partial(_drop, name="signals")),
    *(
        ("LISTS_DROPPED", partial(_remove, path=name))
        for name in ("trace", "notes", "events", "cards", "signals", "view", "seq", "card_seq")
    ),
    *(
        ("CAPSULE_CUT", partial(_remove, path=f"capsule.{name}"))
        for name in ("why", "where.docs", "next.backup", "next")
    ),
    ("CAPSULE_CUT", _keep_location),
]
