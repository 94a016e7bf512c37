"""Reserve paths, so two agents do not edit one file at the same time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import product
from typing import TypeVar

from hivemind.coordination.entries import Reservation
from hivemind.coordination.errors import CoordinationError, ReservationHeld
from hivemind.coordination.journal import EventDraft, Journal
from hivemind.coordination.lanes import check_agent
from hivemind.coordination.state import JournalState
from hivemind.coordination.step import invalid_argument
from hivemind.pattern import pattern

_MAX_LENGTH = 1024
_MAX_CODE_POINT = 0x10FFFF
_Ranges = tuple[tuple[int, int], ...]
_ANY_CHARACTER: _Ranges = ((0, _MAX_CODE_POINT),)
_STAR: _Ranges = ((-1, -1),)
"""The wildcard `*` among the character ranges of a path part."""
_CLASS = pattern(r"\[!?[^/][^\]/]*\]")
_T = TypeVar("_T")


def check_pattern(pattern: object) -> str:
    """Return the pattern in normal form, without `./` and doubled `/`. Raises CoordinationError (`INVALID_PATTERN`)."""
    text = pattern if isinstance(pattern, str) else ""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or len(text) > _MAX_LENGTH or text.startswith("/") or ".." in parts or "\0" in text:
        problem = "is not a path pattern within the hive"
        remedy = "use a path from the hive's root, like knowledge/notes.md or knowledge/**"
    elif "{" in _CLASS.sub("", text):
        problem = "contains braces, which are not supported"
        remedy = "use one pattern for each name, like src/a.py and src/b.py; [{] matches a brace"
    else:
        return "/".join(parts) + ("/**" if text.endswith("/") else "")
    raise CoordinationError(f"{pattern!r} {problem}", code="INVALID_PATTERN", remedy=remedy)


def escape(path: str) -> str:
    """Return the pattern that matches only `path`."""
    return re.sub(r"[*?\[{]", r"[\g<0>]", path)


def overlap(first: str, second: str) -> bool:
    """Return True if some path could match both patterns. Their order does not matter."""
    first_parts, second_parts = _parts(first), _parts(second)
    if first == second:
        return True
    # like [z-a], which matches no character
    if any(() in _character_ranges(part) for part in (*first_parts, *second_parts)):
        return False
    return _sequences_meet(first_parts, second_parts, "**", _names_meet)


def _parts(pattern: str) -> list[str]:
    parts = pattern.split("/")
    return [*parts[:-1], "*", "**"] if parts[-1] == "**" else parts  # everything below: at least one name


def _names_meet(first: str, second: str) -> bool:
    return first == second or _sequences_meet(_character_ranges(first), _character_ranges(second), _STAR, _ranges_meet)


def _ranges_meet(first: _Ranges, second: _Ranges) -> bool:
    """Return True if the ranges have a character other than `/` in common."""
    intersections = ((max(low, bottom), min(high, top)) for low, high in first for bottom, top in second)
    return any(low <= high and (low, high) != (47, 47) for low, high in intersections)


def _sequences_meet(
    first: Sequence[_T], second: Sequence[_T], star: _T, elements_meet: Callable[[_T, _T], bool]
) -> bool:
    """Return True if some sequence matches both patterns. `star` matches any number of elements."""
    todo, seen = [(0, 0)], set()
    while todo:
        first_index, second_index = indexes = todo.pop()
        if indexes in seen:
            continue
        seen.add(indexes)
        first_head, second_head = first[first_index : first_index + 1], second[second_index : second_index + 1]
        if not first_head and not second_head:
            return True
        if star in (*first_head, *second_head):  # it matches no further element, or the other's next element
            todo += [(first_index + 1, second_index)] if first_head else []
            todo += [(first_index, second_index + 1)] if second_head else []
        elif first_head and second_head and elements_meet(first_head[0], second_head[0]):
            todo.append((first_index + 1, second_index + 1))
    return False


@lru_cache(maxsize=1024)
def _character_ranges(part: str) -> list[_Ranges]:
    ranges, index = [], 0
    while index < len(part):
        char = part[index]
        end = part.find("]", index + 3 if part[index + 1 : index + 2] == "!" else index + 2) if char == "[" else -1
        if end > 0:
            ranges.append(_class_ranges(part[index + 1 : end]))
            index = end
        else:
            ranges.append({"*": _STAR, "?": _ANY_CHARACTER}.get(char, ((ord(char), ord(char)),)))
        index += 1
    return ranges


def _class_ranges(body: str) -> _Ranges:
    """Return the ranges of the characters that `[body]` matches in a pattern."""
    ranges = [(ord(span[0]), ord(span[-1])) for span in re.findall(r".-.|.", body.removeprefix("!"), re.DOTALL)]
    ranges = sorted((low, high) for low, high in ranges if low <= high)
    if not body.startswith("!"):
        return tuple(ranges)
    complement, low = [], 0
    for start, end in ranges:
        complement.append((low, start - 1))
        low = max(low, end + 1)
    return tuple(bounds for bounds in (*complement, (low, _MAX_CODE_POINT)) if bounds[0] <= bounds[1])


_ReservationList = list[Reservation]


class Reservations:
    """The reservations of a workspace. Each ends by release, or with its holder (`agent.exited`)."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def reserve(
        self, agent_id: str, patterns: str | Iterable[str], *, shared: bool = False, reason: str | None = None
    ) -> Reservation:
        """Reserve every path that the globs match: all of them, or none. `reason` is recorded for other agents and people.

        A reservation is exclusive, or `shared` with other shared reservations. It never conflicts with the agent's other
        reservations. If the agent already has an equal reservation, that is returned and no event is written. Raises
        ReservationHeld, CoordinationError (`INVALID_PATTERN`).
        """
        agent, pattern_list = check_agent(agent_id), [patterns] if isinstance(patterns, str) else list(patterns)
        if not pattern_list:
            raise invalid_argument("no path to reserve")
        checked_patterns = tuple(sorted({check_pattern(pattern) for pattern in pattern_list}))

        def find_own(state: JournalState) -> Reservation | None:
            for entry in _sorted_reservations(state):
                if (entry.agent_id, entry.patterns, entry.shared) == (agent, checked_patterns, shared):
                    return entry
            return None

        def decide(state: JournalState) -> Sequence[EventDraft]:
            for reservation in _sorted_reservations(state):
                if reservation.agent_id != agent and not (reservation.shared and shared):
                    for pattern, reserved_pattern in product(checked_patterns, reservation.patterns):
                        if overlap(pattern, reserved_pattern):
                            raise ReservationHeld(pattern, reserved_pattern, reservation.agent_id)
            if find_own(state) is not None:
                return []
            payload = {"agent_id": agent, "patterns": checked_patterns, "shared": shared}
            return [("paths.reserved", {**payload, "reason": reason} if reason else payload)]

        own_reservation = self._journal.transact_and_query(decide, lambda state, _: find_own(state))
        assert own_reservation is not None
        return own_reservation

    def release(self, reservation: Reservation | int, agent_id: str) -> bool:
        """End one of the agent's reservations. Return False if it had ended already."""
        agent, number = check_agent(agent_id), reservation.id if isinstance(reservation, Reservation) else reservation
        return bool(self._release(agent, lambda candidate: candidate.id == number))

    def release_all(self, agent_id: str) -> int:
        """End every reservation of the agent. Return their number."""
        return self._release(check_agent(agent_id), lambda _: True)

    def _release(self, agent: str, is_selected: Callable[[Reservation], bool]) -> int:
        released_ids: list[int] = []

        def decide(state: JournalState) -> Sequence[EventDraft]:
            own_reservations = [entry for entry in _sorted_reservations(state) if entry.agent_id == agent]
            released_ids.extend(entry.id for entry in own_reservations if is_selected(entry))
            return [("paths.released", {"agent_id": agent, "reservations": released_ids})] if released_ids else []

        self._journal.transact(decide)
        return len(released_ids)

    def list(self, agent_id: str | None = None) -> _ReservationList:
        """Return the reservations of all agents, or of one, oldest first."""
        agent = None if agent_id is None else check_agent(agent_id)
        reservations: _ReservationList = self._journal.view(_sorted_reservations)
        return [reservation for reservation in reservations if agent is None or reservation.agent_id == agent]


def _sorted_reservations(state: JournalState) -> _ReservationList:
    return sorted(state.reservations.values(), key=lambda reservation: reservation.id)
