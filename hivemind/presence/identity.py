"""The identity of an agent's process: only one process at a time has the agent's name, and each has an incarnation number.

A process has the name while it holds a lock, which the operating system frees when the process ends. The next holder writes
`agent.exited` for a predecessor that was killed, then `agent.started` for itself. `agent.exited` ends the leases of its
incarnation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from hivemind.coordination import Journal, JournalState, ReservationHeld, StepLease, StepLeaseHeld
from hivemind.coordination.entries import DEFAULT_TTL_SEQ, MAX_TTL_SEQ, AgentEntry
from hivemind.errors import UserError
from hivemind.fs import Lock, LockBusy
from hivemind.fs.locks import describe_holder
from hivemind.layout import Layout
from hivemind.presence.parts import Parts

_T = TypeVar("_T")


class HiveGone(UserError):
    """The hive was moved or removed. The process must end, and create nothing at the hive's former path."""


def check_hive_exists(lock: Lock, layout: Layout) -> None:
    """Raise HiveGone if the file of the held `lock` was removed or replaced, or the lock was taken over: the hive has moved or
    gone.
    """
    if not lock.is_current():
        raise HiveGone(
            "the hive was removed, moved or taken over",
            location=layout.root,
            remedy="start again at the hive's present path",
        )


def agent_lock(layout: Layout, name: str) -> Lock:
    """Return the lock of an agent's name, which the agent's process holds while it runs."""
    return Lock(layout.locks / f"agent-{name}.lock")


def holder_pid(layout: Layout, name: str) -> int | None:
    """Return the pid of the process that holds the agent's name. None: no process holds it. 0: its pid is unknown."""
    holder = agent_lock(layout, name).holder()
    if holder is None:
        return None
    pid = holder.get("pid")
    return pid if isinstance(pid, int) else 0


def hold_lock(lock: Lock, layout: Layout, refusal: str, mend: str, **record: object) -> None:
    """Take a lock for the lifetime of this process, and write the holder's `record` into the lock file.

    Raises LockBusy with the message `refusal`, the holder and the remedy `mend` if another process holds the lock. Also raises
    LockBusy if a process on another machine may hold the lock and the file system's locks do not reach that machine.
    """
    if not lock.acquire(wait=False):
        holder = lock.holder() or {}
        raise LockBusy(f"{refusal}: {describe_holder(holder)}", location=layout.root, holder=holder, remedy=mend)
    try:
        lock.check_last_holder()
        lock.write_holder(**record)
    except BaseException:
        lock.release()
        raise


def abandon_locks(layout: Layout) -> None:
    """Clear the locks of other machines, which a person has declared dead. A holder that still lives then ends itself."""
    for path in layout.locks.glob("*.lock"):
        Lock(path).clear_foreign_holder()


def lock_name(layout: Layout, name: str) -> Lock:
    """Take the lock of the agent's name for this process and return it. Raises LockBusy, which names the holder."""
    lock = agent_lock(layout, name)
    hold_lock(lock, layout, f"the agent {name} is running already", "hivemind status shows it", agent=name)
    return lock


def journal_start(journal: Journal, name: str, pid: int) -> int:
    """Write `agent.started` in one append, after `agent.exited` if the predecessor was killed. Return the new incarnation's
    number.
    """

    def decide(state: JournalState) -> Sequence[tuple[str, dict[str, Any]]]:
        entry, now = state.agents.get(name), int(time.time())
        incarnation = 1 if entry is None else entry.incarnation + 1
        events: list[tuple[str, dict[str, Any]]] = []
        if entry is not None and entry.state == "started":
            exit_payload = {"agent_id": name, "incarnation": entry.incarnation, "by": "successor", "time": now}
            events.append(("agent.exited", exit_payload))
        events.append(("agent.started", {"agent_id": name, "incarnation": incarnation, "pid": pid, "time": now}))
        return events

    incarnation: int = journal.transact(decide)[-1].payload["incarnation"]
    return incarnation


def journal_exit(journal: Journal, name: str, incarnation: int, *, by: str) -> bool:
    """Write `agent.exited` for an incarnation, which ends its leases. Return False if it had been written before.

    `by` is who writes it: `itself`, `doctor` …
    """
    return _write_exit(journal, name, lambda entry: entry.incarnation == incarnation, by)


def journal_death(journal: Journal, layout: Layout, name: str, *, by: str, **details: str) -> bool:
    """Write `agent.exited` for an agent that died without writing it. Return False if nothing was written: the agent has exited
    in the journal already, or a process holds the name again.

    `by` is who noticed the death, `details` are further fields of the event.
    """
    return _write_exit(journal, name, lambda _: holder_pid(layout, name) is None, by, **details)


def _write_exit(journal: Journal, name: str, is_over: Callable[[AgentEntry], bool], by: str, **details: str) -> bool:
    def decide(state: JournalState) -> Sequence[tuple[str, dict[str, Any]]]:
        entry = state.agents.get(name)
        if entry is None or entry.state != "started" or not is_over(entry):
            return []
        exit_payload = {"agent_id": name, "incarnation": entry.incarnation, "by": by, "time": int(time.time())}
        return [("agent.exited", {**exit_payload, **details})]

    return bool(journal.transact(decide))


def retry_if_holder_died(hive: Parts, action: Callable[[], _T], *, by: str) -> _T:
    """Return the result of `action`. If a dead agent's lease or reservation prevents it, write that agent's `agent.exited` and
    try again.

    `by` is who noticed the death. Raises StepLeaseHeld or ReservationHeld if the holder is alive.
    """
    try:
        return action()
    except (StepLeaseHeld, ReservationHeld) as refusal:
        if not journal_death(hive.journal, hive.layout, refusal.holder, by=by):
            raise
        return action()


def lease_step(hive: Parts, step_id: str, name: str) -> StepLease:
    """Claim a step's lease, or return it if the agent holds it. Raises StepLeaseHeld if another live agent holds the lease.

    A running agent gets a lease with the longest lifetime, since the lease ends with the agent's process anyway. The
    default of 200 events lasts only seconds among a hundred agents.
    """
    entry, lease = hive.journal.view(lambda state: (state.agents.get(name), state.lease(step_id)))
    if lease is not None and lease.holder_agent_id == name:
        return lease
    ttl_seq = MAX_TTL_SEQ if entry is not None and entry.state == "started" else DEFAULT_TTL_SEQ
    return retry_if_holder_died(hive, lambda: hive.leases.claim(step_id, name, ttl_seq), by=name)


def record_deaths(journal: Journal, layout: Layout, names: Iterable[str], *, by: str) -> list[str]:
    """Write `agent.exited` for those of the agents `names` that died without writing it. Return the names of these agents.

    `by` is who noticed the deaths.
    """
    dead_names = [
        name for name in names if (layout.locks / f"agent-{name}.lock").exists() and holder_pid(layout, name) is None
    ]
    if not dead_names:
        return []

    def look(state: JournalState) -> set[str]:
        return {name for name in dead_names if name in state.agents and state.agents[name].state == "started"}

    return [name for name in sorted(journal.view(look)) if journal_death(journal, layout, name, by=by)]


def record_heartbeat(journal: Journal, layout: Layout, name: str) -> bool:
    """Write `agent.heartbeat` and return True. Return False if any agent of the hive wrote one within the last second.

    Call this function only for an agent with leases: the events let leases age, and an idle hive writes none.
    """
    path = layout.state / "heartbeat"
    try:
        if 0 <= time.time() - path.stat().st_mtime < 1.0:
            return False
    except FileNotFoundError:
        pass  # the first heartbeat of this hive
    path.touch()
    journal.append("agent.heartbeat", agent_id=name, time=int(time.time()))
    return True
