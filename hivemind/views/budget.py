"""Keeping an answer within its budget: what goes first, what goes last, and what is said about it (spec 3, *Capsule*).

The budget counts UTF-8 bytes of compact JSON. In this order: long texts are cut, then traces, notes and events go (oldest
first), then cards from the tail, then statistics, then signals; the capsule goes last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hivemind.coordination import CoordinationError
from hivemind.masking import escaped

__all__ = ["LEAST", "check_budget", "fit", "render"]

Answer = dict[str, Any]
LEAST = 2
_WITH_CAPSULE = 200
_CUTS = (2_000, 1_000, 400, 160, 80)
_STATISTICS = ("stats", "lanes", "steps", "task", "step", "since")
_TEXTS = ("text", "title", "message", "reason")
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def render(answer: object) -> str:
    """The answer as it is counted: compact JSON, with escapes for what would steer who is shown it."""
    return escaped(_encoder.encode(answer))


def _size(value: Any) -> int:
    return len(render(value).encode())


def check_budget(budget: object) -> None:
    """Raise CoordinationError (`INVALID_BUDGET`) for what is no budget: a whole number of at least 2, or None."""
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget < LEAST):
        raise CoordinationError(
            f"context_budget is {budget!r}",
            code="INVALID_BUDGET",
            mend=f"give at least {LEAST} characters, or leave it out",
        )


def fit(answer: Answer, budget: int | None) -> Answer:
    """The answer with `budget` and `degradation` beside it, no longer than `budget` bytes. `answer` is used up."""
    degradation: list[str] = []
    used = _stamp(answer, budget, degradation)
    if budget is None or used <= budget:
        return answer
    if budget < _WITH_CAPSULE:
        bare: Answer = {"truncated": True}
        return bare if _size(bare) <= budget else {}
    stages: list[Callable[[Answer, int], str | None]] = [_cut(longest) for longest in _CUTS]
    stages += [_oldest("trace"), _oldest("notes"), _oldest("events"), _last("cards"), *map(_without, _STATISTICS)]
    stages += [_last("signals"), _no_markers, _no_why, _no_docs, _short_next, _no_next, _no_target, _only_place]
    for stage in stages:
        code = stage(answer, used - budget + _room(degradation))
        if code is None:
            continue
        if code not in degradation:
            degradation.append(code)
        used = _stamp(answer, budget, degradation)
        while used > budget and code.endswith("_TRIMMED"):
            if stage(answer, used - budget) is None:
                break
            used = _stamp(answer, budget, degradation)
        if used <= budget:
            return answer
    return _least(answer, budget)


def _room(degradation: list[str]) -> int:
    return 0 if degradation else 20


def _stamp(answer: Answer, budget: int | None, degradation: list[str]) -> int:
    """Write what was used and left out into the answer; gives its size, which the answer itself names."""
    answer["degradation"] = degradation
    stamp = answer["budget"] = {"max_chars": budget, "used_chars": 0, "truncated": bool(degradation)}
    rest = _size(answer) - 1
    used = rest + 1
    while used != rest + len(str(used)):  # the number is part of what it counts
        used = rest + len(str(used))
    stamp["used_chars"] = used
    return used


def _cut(longest: int) -> Callable[[Answer, int], str | None]:
    def stage(answer: Answer, _over: int) -> str | None:
        return "TEXT_CUT" if _cut_texts({k: v for k, v in answer.items() if k != "capsule"}, longest) else None

    return stage


def _cut_texts(value: Any, longest: int) -> bool:
    """Cut every long text below `value`, in place. Calls are left whole: they must be good as they stand."""
    found = False
    if isinstance(value, list):
        for at, item in enumerate(value):
            if isinstance(item, str) and len(item) > longest:
                value[at] = item[: longest - 1] + "…"
                found = True
            else:
                found = _cut_texts(item, longest) or found
    elif isinstance(value, dict) and "call" not in value:
        for name, item in value.items():
            if isinstance(item, str):
                if name in _TEXTS and len(item) > longest:
                    value[name] = item[: longest - 1] + "…"
                    found = True
            else:
                found = _cut_texts(item, longest) or found
    return found


def _oldest(name: str) -> Callable[[Answer, int], str | None]:
    return lambda answer, over: _drop(answer, name, over, first=True)


def _last(name: str) -> Callable[[Answer, int], str | None]:
    return lambda answer, over: _drop(answer, name, over, first=False)


def _drop(answer: Answer, name: str, over: int, *, first: bool) -> str | None:
    """Take as many items from one end as are needed; a list that is emptied leaves what was in it as a count."""
    items = answer.get(name)
    if not items or (len(items) == 1 and items[0].get("type") == "summary"):
        return None
    gone, freed = 0, 0
    while gone < len(items) and freed < over:
        freed += _size(items[gone if first else -1 - gone]) + 1
        gone += 1
    kept = items[gone:] if first else items[: len(items) - gone]
    answer[name] = kept or [{"type": "summary", "label": name, "count": len(items)}]
    return f"{name.upper()}_TRIMMED"


def _without(name: str) -> Callable[[Answer, int], str | None]:
    return lambda answer, _over: None if answer.pop(name, None) is None else "STATS_DROPPED"


def _no_markers(answer: Answer, _over: int) -> str | None:
    names = [
        name for name in ("trace", "notes", "events", "cards", "signals", "view", "seq", "card_seq") if name in answer
    ]
    for name in names:
        del answer[name]
    return "LISTS_DROPPED" if names else None


def _no_why(answer: Answer, _over: int) -> str | None:
    return None if answer["capsule"].pop("why", None) is None else "CAPSULE_CUT"


def _no_docs(answer: Answer, _over: int) -> str | None:
    return None if answer["capsule"]["where"].pop("docs", None) is None else "CAPSULE_CUT"


def _short_next(answer: Answer, _over: int) -> str | None:
    return None if answer["capsule"]["next"].pop("backup", None) is None else "CAPSULE_CUT"


def _no_next(answer: Answer, _over: int) -> str | None:
    return None if answer["capsule"].pop("next", None) is None else "CAPSULE_CUT"


def _no_target(answer: Answer, _over: int) -> str | None:
    """What is left of where: ids, without titles and the lease."""
    where = answer["capsule"]["where"]
    for name in ("target", "step_focus"):
        if isinstance(where.get(name), dict):
            where[name] = where[name]["id"]
    where.pop("branch", None)
    return "CAPSULE_CUT"


def _only_place(answer: Answer, _over: int) -> str | None:
    """The workspace and the lane, cut: names can be long."""
    where = answer["capsule"]["where"]
    answer["capsule"] = {"where": {name: _clip(where[name], 16) for name in ("workspace", "lane")}}
    return "CAPSULE_CUT"


def _clip(text: str, most: int) -> str:
    """At most `most` bytes of JSON, the mark of the cut among them."""
    if _size(text) - 2 <= most:
        return text
    while text and _size(text + "…") - 2 > most:
        text = text[:-1]
    return text + "…"


def _least(answer: Answer, budget: int) -> Answer:
    least = {"capsule": answer["capsule"]}
    if _stamp(least, budget, ["CAPSULE_CUT"]) > budget:
        raise AssertionError(f"the least capsule does not fit into {budget}")
    return least
