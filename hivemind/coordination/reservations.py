"""Reserving paths, so that two agents never edit one file at the same time (spec 7, *Files*)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import product
from typing import TypeVar

from hivemind.coordination.entries import Reservation
from hivemind.coordination.errors import CoordinationError, ReservationHeld
from hivemind.coordination.journal import Draft, Journal
from hivemind.coordination.lanes import check_agent
from hivemind.coordination.state import State
from hivemind.coordination.step import refused

_MAX_LENGTH = 1024
_LAST = 0x10FFFF
_Ranges = tuple[tuple[int, int], ...]
_ANY: _Ranges = ((0, _LAST),)
_STAR: _Ranges = ((-1, -1),)
"""Stands for `*` among the characters of a part."""
_CLASS = re.compile(r"\[!?[^/][^\]/]*\]")
_T = TypeVar("_T")


def check_pattern(pattern: object) -> str:
    """The pattern in its one form: no `./`, no doubled `/`. Raises CoordinationError (`INVALID_PATTERN`)."""
    text = pattern if isinstance(pattern, str) else ""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or len(text) > _MAX_LENGTH or text.startswith("/") or ".." in parts or "\0" in text:
        raise CoordinationError(
            f"{pattern!r} is no path pattern within the hive",
            code="INVALID_PATTERN",
            mend="a path from the hive's root, such as knowledge/notes.md or knowledge/**",
        )
    if "{" in _CLASS.sub("", text):
        raise CoordinationError(
            f"{pattern!r} has braces, which stand for nothing here",
            code="INVALID_PATTERN",
            mend="one pattern for each of the names, such as src/a.py and src/b.py; [{] is a brace itself",
        )
    return "/".join(parts) + ("/**" if text.endswith("/") else "")


def escape(path: str) -> str:
    """The pattern that matches this path and no other."""
    return re.sub(r"[*?\[{]", r"[\g<0>]", path)


def overlap(first: str, second: str) -> bool:
    """True if there could be a path that both patterns match, whichever is named first."""
    one, two = _parts(first), _parts(second)
    if first == second:
        return True
    if any(() in _characters(part) for part in (*one, *two)):  # such as [z-a]: no path has that
        return False
    return _meet(one, two, "**", _names_meet)


def _parts(pattern: str) -> list[str]:
    parts = pattern.split("/")
    return [*parts[:-1], "*", "**"] if parts[-1] == "**" else parts  # everything below: a name at least


def _names_meet(first: str, second: str) -> bool:
    return first == second or _meet(_characters(first), _characters(second), _STAR, _ranges_meet)


def _ranges_meet(left: _Ranges, right: _Ranges) -> bool:
    """Whether a character, which is never `/`, is in both."""
    both = ((max(low, bottom), min(high, top)) for low, high in left for bottom, top in right)
    return any(low <= high and (low, high) != (47, 47) for low, high in both)


def _meet(one: Sequence[_T], two: Sequence[_T], star: _T, same: Callable[[_T, _T], bool]) -> bool:
    """Whether something matches both sequences, in which `star` stands for any number of things."""
    todo, seen = [(0, 0)], set()
    while todo:
        a, b = place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        left, right = one[a : a + 1], two[b : b + 1]
        if not left and not right:
            return True
        if star in (*left, *right):  # it ends, or takes what is beside it
            todo += [(a + 1, b)] if left else []
            todo += [(a, b + 1)] if right else []
        elif left and right and same(left[0], right[0]):
            todo.append((a + 1, b + 1))
    return False


@lru_cache(maxsize=1024)
def _characters(part: str) -> list[_Ranges]:
    found, at = [], 0
    while at < len(part):
        char = part[at]
        end = part.find("]", at + 3 if part[at + 1 : at + 2] == "!" else at + 2) if char == "[" else -1
        if end > 0:
            found.append(_class(part[at + 1 : end]))
            at = end
        else:
            found.append({"*": _STAR, "?": _ANY}.get(char, ((ord(char), ord(char)),)))
        at += 1
    return found


def _class(body: str) -> _Ranges:
    """The characters of `[body]`."""
    ranges = [(ord(found[0]), ord(found[-1])) for found in re.findall(r".-.|.", body.removeprefix("!"), re.DOTALL)]
    ranges = sorted((low, high) for low, high in ranges if low <= high)
    if not body.startswith("!"):
        return tuple(ranges)
    found, low = [], 0
    for start, end in ranges:
        found.append((low, start - 1))
        low = max(low, end + 1)
    return tuple(one for one in (*found, (low, _LAST)) if one[0] <= one[1])


_Held = list[Reservation]


class Reservations:
    """The reservations of a workspace. Each ends when it is released, and with its holder (`agent.exited`)."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def reserve(
        self, agent_id: str, patterns: str | Iterable[str], *, shared: bool = False, reason: str | None = None
    ) -> Reservation:
        """Reserve every path that the globs match, all of them or none.

        Exclusive, or `shared` with other shared ones. What the agent itself holds never stands in its way; exactly what
        it holds already is given back without an event. Raises ReservationHeld, CoordinationError (`INVALID_PATTERN`).
        """
        who, wanted = check_agent(agent_id), _patterns(patterns)

        def own(state: State) -> Reservation | None:
            return next(
                (one for one in _in_order(state) if (one.agent_id, one.patterns, one.shared) == (who, wanted, shared)),
                None,
            )

        def decide(state: State) -> Sequence[Draft]:
            for held in _in_order(state):
                if held.agent_id != who and not (held.shared and shared):
                    for one, other in product(wanted, held.patterns):
                        if overlap(one, other):
                            raise ReservationHeld(one, other, held.agent_id)
            if own(state) is not None:
                return []
            payload = {"agent_id": who, "patterns": wanted, "shared": shared}
            return [("paths.reserved", {**payload, "reason": reason} if reason else payload)]

        found = self._journal.change(decide, lambda state, _: own(state))
        assert found is not None
        return found

    def release(self, reservation: Reservation | int, agent_id: str) -> bool:
        """End a reservation of the agent's own. Returns False if it has ended before."""
        who, number = check_agent(agent_id), reservation.id if isinstance(reservation, Reservation) else reservation
        return bool(self._release(who, lambda held: held.id == number))

    def release_all(self, agent_id: str) -> int:
        """End every reservation of the agent. Returns how many there were."""
        return self._release(check_agent(agent_id), lambda _: True)

    def _release(self, who: str, wanted: Callable[[Reservation], bool]) -> int:
        ended: list[int] = []

        def decide(state: State) -> Sequence[Draft]:
            ended.extend(held.id for held in _in_order(state) if held.agent_id == who and wanted(held))
            return [("paths.released", {"agent_id": who, "reservations": ended})] if ended else []

        self._journal.transact(decide)
        return len(ended)

    def list(self, agent_id: str | None = None) -> _Held:
        """The reservations of all agents or of one, oldest first."""
        who = None if agent_id is None else check_agent(agent_id)
        found: _Held = self._journal.view(_in_order)
        return [held for held in found if who is None or held.agent_id == who]


def _in_order(state: State) -> _Held:
    return sorted(state.reservations.values(), key=lambda held: held.id)


def _patterns(patterns: str | Iterable[str]) -> tuple[str, ...]:
    many = [patterns] if isinstance(patterns, str) else list(patterns)
    if not many:
        raise refused("there is no path to reserve")
    return tuple(sorted({check_pattern(one) for one in many}))
