"""What a view answers, and keeping it within its budget: what goes first, what goes last (spec 3, *Capsule*).

The budget counts UTF-8 bytes of compact JSON. In this order: long texts are cut, then traces, notes and events go (oldest
first), then cards from the tail, then statistics, then signals; the capsule goes last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NotRequired, TypedDict, cast

from hivemind.coordination import Call, CoordinationError
from hivemind.masking import escaped

_LEAST = 2
_WITH_CAPSULE = 200
_TEXTS = ("text", "title", "message", "reason")
_Record = dict[str, Any]
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class Where(TypedDict, total=False):
    """Where a caller is. Under the smallest budgets only the workspace and the lane."""

    workspace: str
    target: _Record | None
    docs: dict[str, int]
    step_focus: _Record | None
    lane: str
    branch: str


class Capsule(TypedDict):
    """Where the caller is, why that needs attention, and what comes next: calls that can be made as they stand."""

    where: Where
    why: list[dict[str, str]]
    next: dict[Literal["primary", "backup"], Call | None]


class SignalFound(TypedDict):
    """A signal as an answer has it; `action` is a call with its kind, priority and title."""

    code: str
    severity: str
    message: str
    refs: NotRequired[list[int]]
    action: NotRequired[_Record]


class Answer(TypedDict, total=False):
    """What `resume`, `snapshot` and `watch` return; what a budget has no room for is not there (README, *The answer*)."""

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
    """The answer as it is counted: compact JSON, with escapes for what would steer who is shown it."""
    return escaped(_encoder.encode(answer))


def _size(value: Any) -> int:
    return len(render(value).encode())


def check_budget(budget: object) -> None:
    """Raise CoordinationError (`INVALID_BUDGET`) unless it is None or a whole number of at least 2."""
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget < _LEAST):
        raise CoordinationError(
            f"context_budget is {budget!r}",
            code="INVALID_BUDGET",
            mend=f"give at least {_LEAST} characters, or leave it out",
        )


def fit(full: Answer, budget: int | None) -> Answer:
    """The answer with `budget` and `degradation` beside it, no longer than `budget` bytes. `full` is used up."""
    answer = cast(_Record, full)
    degradation: list[str] = []
    used = _stamp(answer, budget, degradation)
    if budget is None or used <= budget:
        return full
    if budget < _WITH_CAPSULE:
        bare: Answer = {"truncated": True}
        return bare if _size(bare) <= budget else {}
    for code, shorten in _STAGES:
        while used > budget and shorten(answer, used - budget):
            degradation += [] if code in degradation else [code]
            used = _stamp(answer, budget, degradation)
    if used > budget:  # nothing is left but where, and the codes
        _stamp(answer, budget, ["CAPSULE_CUT"])
    return full


def _stamp(answer: _Record, budget: int | None, degradation: list[str]) -> int:
    """Write what was used and left out into the answer; returns its size, which the answer itself names."""
    answer["degradation"] = degradation
    stamp = answer["budget"] = {"max_chars": budget, "used_chars": 0, "truncated": bool(degradation)}
    rest = _size(answer) - 1
    used = rest + 1
    while used != rest + len(str(used)):  # the number is part of what it counts
        used = rest + len(str(used))
    stamp["used_chars"] = used
    return used


# What shortens an answer, given by how much it is too long: True if it has done something, and may do more. ------------


def _cut_texts(value: Any, _over: int, *, longest: int) -> bool:
    """Cut every long text, in place. Calls are left whole: they must be good as they stand; so is the capsule."""
    found = False
    todo = [value]
    for one in todo:
        for name, item in list(one.items() if isinstance(one, dict) else enumerate(one)):
            if isinstance(item, str) and len(item) > longest and (isinstance(name, int) or name in _TEXTS):
                one[name] = item[: longest - 1] + "…"
                found = True
            elif isinstance(item, dict | list) and name != "capsule" and "call" not in item:
                todo.append(item)
    return found


def _drop(answer: _Record, over: int, *, name: str, first: bool = False) -> bool:
    """Take as many items from one end as are needed; a list that is emptied leaves what was in it as a count."""
    items = answer.get(name)
    if not items or items[0].get("type") == "summary":
        return False
    kept, freed = list(items), 0
    while kept and freed < over:
        freed += _size(kept.pop(0 if first else -1)) + 1
    answer[name] = kept or [{"type": "summary", "label": name, "count": len(items)}]
    return True


def _remove(answer: _Record, _over: int, *, path: str) -> bool:
    *above, name = path.split(".")
    for one in above:
        answer = answer[one]
    return answer.pop(name, answer) is not answer


def _only_place(answer: _Record, _over: int) -> bool:
    """The workspace and the lane, cut: names can be long."""
    where = answer["capsule"]["where"]
    answer["capsule"] = {"where": {name: _clip(where[name], 16) for name in ("workspace", "lane")}}
    return "target" in where


def _clip(text: str, most: int) -> str:
    """At most `most` bytes of JSON, the mark of the cut among them."""
    if _size(text) - 2 <= most:
        return text
    while text and _size(text + "…") - 2 > most:
        text = text[:-1]
    return text + "…"


_STAGES: list[tuple[str, Callable[[_Record, int], bool]]] = [
    *(("TEXT_CUT", partial(_cut_texts, longest=longest)) for longest in (2_000, 1_000, 400, 160, 80)),
    *((f"{name.upper()}_TRIMMED", partial(_drop, name=name, first=True)) for name in ("trace", "notes", "events")),
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
    ("CAPSULE_CUT", _only_place),
]
