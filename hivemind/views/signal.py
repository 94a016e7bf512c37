"""A signal and the action that it proposes, and which of many come first (spec 3, *Signals*)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from hivemind.coordination import Call

__all__ = ["Action", "Signal", "best_actions", "rank"]

Severity = Literal["high", "warning", "info"]
Priority = Literal["high", "medium", "low"]
_SEVERITIES = {"high": 0, "warning": 1, "info": 2}
_PRIORITIES = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True, slots=True)
class Action:
    """What would help: a call that can be made as it stands."""

    kind: str
    priority: Priority
    title: str
    call: Call

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "priority": self.priority, "title": self.title, **self.call}


@dataclass(frozen=True, slots=True)
class Signal:
    """Something worth knowing about the cards in `refs`. `newest` is the seq in the task's log that it rests on."""

    code: str
    severity: Severity
    message: str
    refs: tuple[int, ...] = ()
    newest: int = 0
    action: Action | None = None

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"code": self.code, "severity": self.severity, "message": self.message}
        if self.refs:
            found["refs"] = list(self.refs)
        if self.action is not None:
            found["action"] = self.action.as_dict()
        return found


def rank(signals: Iterable[Signal]) -> list[Signal]:
    """By severity, newest, code, message; what says the same twice is dropped."""
    order = sorted(signals, key=lambda one: (_SEVERITIES[one.severity], -one.newest, one.code, one.message, one.refs))
    seen: set[tuple[str, str, tuple[int, ...]]] = set()
    found = []
    for one in order:
        key = (one.code, one.message, one.refs)
        if key not in seen:
            seen.add(key)
            found.append(one)
    return found


def best_actions(signals: Iterable[Signal]) -> list[Action]:
    """One best action and one backup, at most: by priority, newest, kind, title."""
    told = [(one.action, one.newest) for one in signals if one.action is not None]
    told.sort(key=lambda pair: (_PRIORITIES[pair[0].priority], -pair[1], pair[0].kind, pair[0].title))
    best = [action for action, _ in told[:1]]
    return best + [action for action, _ in told if action.call != best[0].call][:1]
