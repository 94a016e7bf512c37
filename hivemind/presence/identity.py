"""Who this process is: one process at a time has an agent's name, and each life of an agent has a number.

The name is an operating-system lock that dies with its process. Whoever takes it over writes `agent.exited` for a
predecessor that could not, and then its own `agent.started`: leases of an earlier incarnation are void (spec 1, spec 3).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from hivemind.coordination import Journal, ReservationHeld, State, StepLease, StepLeaseHeld
from hivemind.coordination.entries import DEFAULT_TTL_SEQ, MAX_TTL_SEQ, AgentEntry
from hivemind.errors import UserError
from hivemind.fs import HeldLock, Lock
from hivemind.fs.locks import told_of
from hivemind.layout import Layout
from hivemind.presence.parts import Parts

_T = TypeVar("_T")


class HiveGone(UserError):
    """The folder that a process has joined was moved or removed. It ends, and makes nothing where the hive was."""


def check_here(lock: Lock, layout: Layout) -> None:
    """Raise HiveGone if the lock that this process holds is not the file of that name any more."""
    if not lock.is_current():
        raise HiveGone(
            "the hive is not there any more, or was taken over", where=layout.root, mend="start anew where it is now"
        )


def agent_lock(layout: Layout, name: str) -> Lock:
    """The lock that the process of agent `name` holds while it lives."""
    return Lock(layout.locks / f"agent-{name}.lock")


def holder_of(layout: Layout, name: str) -> int | None:
    """The process that has the agent's name now, or None."""
    holder = agent_lock(layout, name).holder()
    if holder is None:
        return None
    pid = holder.get("pid")
    return pid if isinstance(pid, int) else 0


def hold(lock: Lock, layout: Layout, refusal: str, mend: str, **record: object) -> None:
    """Take the lock of a name for as long as this process lives, and write who holds it.

    Raises HeldLock, which says `refusal` and who has it, if another process holds it, or one on another machine may, which the
    lock of this file system does not exclude.
    """
    if not lock.acquire(wait=False):
        holder = lock.holder() or {}
        raise HeldLock(f"{refusal}: {told_of(holder)}", where=layout.root, holder=holder, mend=mend)
    try:
        lock.check_last_holder()
        lock.note(**record)
    except BaseException:
        lock.release()
        raise


def take_over(layout: Layout) -> None:
    """Forget the holders on other machines: a person says that those are gone. One that is not ends when it notices."""
    for path in layout.locks.glob("*.lock"):
        Lock(path).abandon()


def take_name(layout: Layout, name: str) -> Lock:
    """Take the agent's name for this process. Raises HeldLock that says who has it."""
    lock = agent_lock(layout, name)
    hold(lock, layout, f"the agent {name} is running already", "hivemind status shows it", agent=name)
    return lock


def announce(journal: Journal, name: str, pid: int) -> int:
    """Write that this agent lives; gives its incarnation. One append: nobody sees the old life and the new one at once."""

    def decide(state: State) -> Sequence[tuple[str, dict[str, Any]]]:
        before, moment = state.agents.get(name), int(time.time())
        incarnation = 1 if before is None else before.incarnation + 1
        events: list[tuple[str, dict[str, Any]]] = []
        if before is not None and before.state == "started":
            gone = {"agent_id": name, "incarnation": before.incarnation, "by": "successor", "time": moment}
            events.append(("agent.exited", gone))
        events.append(("agent.started", {"agent_id": name, "incarnation": incarnation, "pid": pid, "time": moment}))
        return events

    incarnation: int = journal.transact(decide)[-1].payload["incarnation"]
    return incarnation


def farewell(journal: Journal, name: str, incarnation: int, *, by: str) -> bool:
    """Write that this life of the agent is over, if nobody has; frees its leases at once. Returns whether it was needed."""
    return _write_end(journal, name, lambda entry: entry.incarnation == incarnation, by)


def bury(journal: Journal, layout: Layout, name: str, *, by: str) -> bool:
    """Write `agent.exited` for an agent whose process died without a word; nothing if its name is held again."""
    return _write_end(journal, name, lambda _: holder_of(layout, name) is None, by)


def _write_end(journal: Journal, name: str, is_over: Callable[[AgentEntry], bool], by: str) -> bool:
    def decide(state: State) -> Sequence[tuple[str, dict[str, Any]]]:
        entry = state.agents.get(name)
        if entry is None or entry.state != "started" or not is_over(entry):
            return []
        end = {"agent_id": name, "incarnation": entry.incarnation, "by": by, "time": int(time.time())}
        return [("agent.exited", end)]

    return bool(journal.transact(decide))


def unless_dead(hive: Parts, use: Callable[[], _T], *, by: str) -> _T:
    """Do something; where an agent that was killed stands in the way, bury it and do it once more.

    Raises StepLeaseHeld or ReservationHeld if it lives.
    """
    try:
        return use()
    except (StepLeaseHeld, ReservationHeld) as held:
        if not bury(hive.journal, hive.layout, held.holder, by=by):
            raise
        return use()


def lease_step(hive: Parts, step_id: str, name: str) -> StepLease:
    """The lease of a step, taken or kept. An agent that lives has it for as many events as there may be: it ends with its
    process, and among a hundred agents two hundred events are seconds. Raises StepLeaseHeld if another holds it, and lives."""
    entry = hive.journal.view(lambda state: state.agents.get(name))
    ttl_seq = MAX_TTL_SEQ if entry is not None and entry.state == "started" else DEFAULT_TTL_SEQ
    return unless_dead(hive, lambda: hive.leases.claim(step_id, name, ttl_seq), by=name)


def bury_dead(journal: Journal, layout: Layout, names: Iterable[str], *, by: str) -> list[str]:
    """`bury` each of these agents that has died without a word; gives their names. Writes nothing where nobody has."""
    gone = [
        name for name in names if (layout.locks / f"agent-{name}.lock").exists() and holder_of(layout, name) is None
    ]
    if not gone:
        return []

    def look(state: State) -> set[str]:
        return {name for name in gone if name in state.agents and state.agents[name].state == "started"}

    return [name for name in sorted(journal.view(look)) if bury(journal, layout, name, by=by)]


def announce_life(journal: Journal, layout: Layout, name: str) -> bool:
    """Write `agent.heartbeat`, unless some agent of the hive has done so within the last second.

    Only who holds a lease calls this: it moves the sequence by which leases age, and an idle hive writes nothing.
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
