"""Where a turn that was taken again went another way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hivemind.replay.record import wishes_of

__all__ = ["Difference", "differences"]

_PASSING = frozenset({
    "seconds", "timestamp", "time", "date", "since", "until", "id", "message_id", "generation", "seq", "expires_seq",
    "acquired_seq", "left",
})  # fmt: skip
"""What is another each time a tool is used: times, ids of messages, numbers of events."""

_NUMBERED = frozenset({"node", "card"})
"""Numbers of nodes, where a model's memory puts its own between them whenever it has thought."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`what` is focus, action, result or end; `where` which call; then what it was and would be now."""

    what: str
    where: str
    was: Any
    now: Any


def differences(was: Mapping[str, Any], now: Mapping[str, Any], *, by_rule: bool) -> Iterator[Difference]:
    """The differences of two records of a turn, in the order of the turn."""
    if was.get("step") != now.get("step"):
        yield Difference("focus", "step", was.get("step"), now.get("step"))
    wanted, wants = wishes_of(was), wishes_of(now)
    for at in range(max(len(wanted), len(wants))):
        one = wanted[at] if at < len(wanted) else None
        other = wants[at] if at < len(wants) else None
        if one != other:
            yield Difference("action", str(at + 1), one, other)
            return  # what follows another action follows from it
    passing = _PASSING if by_rule else _PASSING | _NUMBERED
    for at, (one, other) in enumerate(zip(was.get("actions", ()), now.get("actions", ()), strict=False), 1):
        before, after = _outcome(one, passing), _outcome(other, passing)
        if before != after:
            yield Difference("result", f"{at} {one['tool']}", before, after)


def _outcome(action: Mapping[str, Any], passing: Collection[str]) -> dict[str, Any]:
    told: dict[str, Any] = {key: action[key] for key in ("error", "parked") if key in action}
    return told | {"result": _lasting(action.get("result", {}), passing)}


def _lasting(value: Any, passing: Collection[str]) -> Any:
    """A result without what is another each time."""
    if isinstance(value, Mapping):
        return {key: _lasting(item, passing) for key, item in value.items() if key not in passing}
    return [_lasting(item, passing) for item in value] if isinstance(value, list) else value
