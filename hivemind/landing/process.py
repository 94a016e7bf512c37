"""The process `landing` of a hive: runs the lander until it is stopped, or until nothing can land."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hivemind.fs import Doorbell, Lock
from hivemind.fs.sockets import wait_for_input
from hivemind.landing.queue import open_seqs
from hivemind.layout import LANDING
from hivemind.presence.identity import check_hive_exists
from hivemind.presence.parts import Parts
from hivemind.presence.service import run_service
from hivemind.presence.status import StatusFile

if TYPE_CHECKING:
    from hivemind.landing.lander import Lander

_BEAT_S = 1.0


def needs_lander(hive: Parts) -> bool:
    """Check whether the hive needs a lander: because work lands in one of its roots, or because finished tasks are in the
    queue."""
    if any(root.land != "off" for root in hive.config.repository_roots(hive.layout).values()):
        return True
    return bool(hive.journal.view(open_seqs))


def run_landing(
    hive: Parts, lifeline: int | None = None, *, is_done: Callable[[Lander], bool] = lambda _: False
) -> int:
    """Run the lander of a hive, and return the exit status. It ends on SIGTERM, when the pipe `lifeline` closes, or once
    `is_done` returns True."""

    from hivemind.landing.lander import Lander  # late: few hives have landings
    from hivemind.landing.reverts import claim_tasks, resume_claims

    def serve(lock: Lock, status: StatusFile, ends: Sequence[int]) -> None:
        lander = Lander(hive)
        try:
            resume_claims(hive)
            with Doorbell(hive.layout.doorbells, LANDING) as bell:
                while not wait_for_input(ends, 0):
                    check_hive_exists(lock, hive.layout)
                    status.beat()
                    claim_tasks(hive)
                    lander.step()
                    state = "working" if lander.is_busy else "idle"
                    status.update(state=state, task=" ".join(lander.checked_ids) or None)
                    if is_done(lander):
                        break
                    timeout = min(lander.remaining_s, _BEAT_S if lander.is_busy else hive.config.hang_after / 3)
                    wait_for_input([*ends, bell, *lander.processes], timeout)
                    bell.wait(0)
        finally:
            lander.close()

    return run_service(hive, LANDING, lifeline, serve)
