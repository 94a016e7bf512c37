"""List, claim, renew and release leases of steps.

A lease lasts for a number of events in the journal, not for a time. Exit status 1: the rules refuse it now.

examples:
  hivemind lease list
  hivemind lease claim what-is-a-lease.s1 --agent human
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from hivemind.cli.command import Answer, command
from hivemind.cli.opening import look_at, open_hive
from hivemind.cli.output import table_lines
from hivemind.cli.text import age, natural, one_line

if TYPE_CHECKING:
    from hivemind.coordination import StepLease
    from hivemind.hive import Hive

_COLUMNS = ("step", "agent", "task for", "freed by", "title")


@command("lease list", look_at)
def leases(hive: Hive, *, agent: str | None = None) -> Answer:
    """List leased steps: who holds each, how long that agent has had the task, and what frees the step.

    With --json also the generation of each lease, and after how many events in the journal it runs out.

    arguments:
      --agent WHO  only what this agent holds

    examples:
      hivemind lease list --agent researcher
    """
    from hivemind.presence.identity import holder_of
    from hivemind.swarm.overview import how_freed, leases_now
    from hivemind.tasks import TaskState

    held = sorted(leases_now(hive, agent), key=lambda lease: natural(lease.step_id))
    since = {(task.id, task.owner): task.since for task in hive.tasks.list(TaskState.ACTIVE)} if held else {}
    rows = [
        {
            "step": lease.step_id,
            "agent": lease.holder_agent_id,
            "task for": age(claimed) if (claimed := since.get((lease.task or "", lease.holder_agent_id))) else "-",
            "freed by": how_freed(lease, runs=holder_of(hive.layout, lease.holder_agent_id) is not None),
            "title": lease.title,
        }
        for lease in held
    ]
    empty = f"No step is leased{f' by {agent}' if agent else ''}."
    return Answer([asdict(lease) for lease in held], table_lines(rows, _COLUMNS, empty=empty))


@command("lease claim", open_hive)
def claim(
    hive: Hive, step: str, *, agent: str, ttl: int | None = None, force: bool = False, renew: bool = False
) -> Answer:
    """Take a step, so that nobody else changes it.

    A lease that the agent already holds stays as it is unless --renew is given. A finished step, or one of a
    finished task, cannot be claimed.

    arguments:
      STEP  the step's id, as `lease list` and `view resume` show it
      --agent WHO  who holds it: an agent, or human
      --ttl N  how many events it lasts, 1 to 10,000 (default: 200)
      --force  take it over from whoever holds it
      --renew  if the agent already holds it, extend it: N events from now, never fewer than are left

    examples:
      hivemind lease claim what-is-a-lease.s1 --agent human --ttl 500
      hivemind lease claim what-is-a-lease.s1 --agent human --force
    """
    events = _lasting(hive, step, ttl) if renew else _asked(ttl)
    return _held(hive, hive.leases.claim(step, agent, events, force=force, renew=renew, to_do=True))


@command("lease renew", open_hive)
def renew(hive: Hive, step: str, *, agent: str, generation: int | None = None, ttl: int | None = None) -> Answer:
    """Extend a lease from now on; without --ttl it never becomes shorter.

    arguments:
      STEP  the step's id, as `lease list` and `view resume` show it
      --agent WHO  who holds it: an agent, or human
      --generation N  refuse if the lease has changed hands since
      --ttl N  how many events it lasts, 1 to 10,000 (default: 200)

    examples:
      hivemind lease renew what-is-a-lease.s1 --agent human --generation 3
    """
    events = _lasting(hive, step, None) if ttl is None else ttl
    return _held(hive, hive.leases.renew(step, agent, generation, events))


@command("lease release", open_hive)
def release(hive: Hive, step: str, *, agent: str, generation: int | None = None) -> Answer:
    """Release a step.

    arguments:
      STEP  the step's id, as `lease list` and `view resume` show it
      --agent WHO  who holds it: an agent, or human
      --generation N  refuse if the lease has changed hands since

    examples:
      hivemind lease release what-is-a-lease.s1 --agent human
    """
    hive.leases.release(step, agent, generation)
    return Answer({"step_id": step, "released": True}, [f"{one_line(step)} is free."])


def _asked(ttl: int | None) -> int:
    """For how many events a lease is asked."""
    from hivemind.coordination.entries import DEFAULT_TTL_SEQ

    return DEFAULT_TTL_SEQ if ttl is None else ttl


def _lasting(hive: Hive, step: str, ttl: int | None) -> int:
    """The same, or as many as are left: what nobody asked for does not make a lease shorter."""
    from hivemind.coordination.entries import MAX_TTL_SEQ
    from hivemind.swarm.overview import lease_now

    held = hive.leases.get(step)
    left = 0 if held is None else lease_now(hive, held).left
    return max(_asked(ttl), min(left, MAX_TTL_SEQ))


def _held(hive: Hive, lease: StepLease) -> Answer:
    from hivemind.swarm.overview import lease_now

    now = lease_now(hive, lease)
    step = one_line(now.step_id)
    named = f"{step} ({one_line(now.title)})" if now.title else f"{step}, which no task has (yet),"
    release = f"hivemind lease release {step} --agent {now.holder_agent_id}"
    lines = [
        f"{now.holder_agent_id} holds {named} (generation {now.generation}).",
        f"{release} frees it; else {now.left:,} events in the journal do.",
    ]
    return Answer(asdict(now), lines)
