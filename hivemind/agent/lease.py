"""The lease of the step in focus: claimed before the calls of a turn, and renewed while the turn lasts."""

from __future__ import annotations

import logging

from hivemind.coordination import StepLeaseHeld
from hivemind.coordination.entries import MAX_TTL_SEQ
from hivemind.errors import HivemindError
from hivemind.presence.identity import lease_step, record_heartbeat
from hivemind.presence.parts import Parts
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.waits import Parking, blocked_parking

_LEASE_PAUSE_S = 5.0
_log = logging.getLogger(__name__)


def renew_lease(hive: Parts, name: str, step_id: str, generation: int) -> None:
    """Renew the lease that the agent `name` holds on a step; do nothing before half of the lease's time is over. Raises
    CoordinationError if the lease is lost."""
    lease = hive.leases.get(step_id)
    if lease is None or lease.expires_seq - hive.journal.seq <= (lease.expires_seq - lease.acquired_seq) // 2:
        hive.leases.renew(step_id, name, generation, MAX_TTL_SEQ)


class FocusLease:
    """One agent's lease of the step in focus. The heartbeat's thread renews it."""

    def __init__(self, hive: Parts, name: str) -> None:
        self._hive, self._name = hive, name
        self._renewed: tuple[str, int] | None = None  # the step and the generation

    def keep(self, focus: Focus) -> None:
        """If the agent already holds the lease of the step in focus, let `renew` renew it, so it does not expire while the mind
        thinks."""
        lease = None if focus.step is None else self._hive.leases.get(focus.step.id)
        is_held = lease is not None and lease.holder_agent_id == self._name
        self._renewed = (lease.step_id, lease.generation) if lease is not None and is_held else None

    def take(self, focus: Focus) -> None:
        """Claim the step in focus, or keep its lease. Raises Parking if the step is blocked, or leased by another agent."""
        if focus.blocked is not None:
            wait = None if focus.work is None else focus.work.waits.get(focus.blocked.id)
            raise blocked_parking(focus.blocked.step.path, focus.blocked.step.blocked_reason, wait)
        lease = None
        if focus.step is not None:
            try:
                lease = lease_step(self._hive, focus.step.id, self._name)
            except StepLeaseHeld as held:
                reason = f"step {focus.step.step.path} is leased by {held.holder}"
                raise Parking(reason, again_s=_LEASE_PAUSE_S) from None
        self._renewed = None if lease is None else (lease.step_id, lease.generation)
        if focus.work is not None:
            focus.work.lease = lease

    def let_age(self) -> None:
        """Stop renewing the lease, because the turn is over."""
        self._renewed = None

    def renew(self) -> None:
        """Renew the lease; do nothing before half of its time is over. A lost lease is logged, and the agent's next write to the
        step is refused."""
        if self._renewed is None:
            return
        try:
            renew_lease(self._hive, self._name, *self._renewed)
            record_heartbeat(self._hive.journal, self._hive.layout, self._name)
        except HivemindError as error:
            _log.warning("%s: %s", self._name, error)
            self._renewed = None
