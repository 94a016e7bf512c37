"""Reserving paths, so that two agents never edit one file at the same time (spec 7, *Files*)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product

from hivemind.coordination.entries import Reservation
from hivemind.coordination.errors import ReservationHeld
from hivemind.coordination.event import Draft
from hivemind.coordination.globs import check_pattern, overlap
from hivemind.coordination.journal import Journal
from hivemind.coordination.lanes import check_agent
from hivemind.coordination.state import State
from hivemind.coordination.step import refused

__all__ = ["Reservations"]

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
