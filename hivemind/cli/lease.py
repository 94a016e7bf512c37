"""List, claim, renew and release leases of steps.

A lease lasts for a number of events in the journal, not for a time. Exit status 1: refused now, may succeed later.

examples:
  hivemind lease list
  hivemind lease claim what-is-a-lease.s1 --agent human
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from hivemind.cli.command import CommandOutput, command
from hivemind.cli.open_hive import open_hive, open_read_only
from hivemind.cli.output import table_lines
from hivemind.cli.text import age, natural_key, one_line

if TYPE_CHECKING:
    from hivemind.coordination import StepLease
    from hivemind.hive import Hive

_COLUMNS = ("step", "agent", "task for", "freed by", "title")


@command("lease list", open_read_only)
def leases(hive: Hive, *, agent: str | None = None) -> CommandOutput:
    """List leased steps: the holder, since when the holder has the task, and what frees the step.

    With --json, also show the generation of each lease, and after how many events in the journal it expires.

    arguments:
      --agent WHO  only leases of this holder

    examples:
      hivemind lease list --agent researcher
    """
    from hivemind.presence.identity import holder_pid
    from hivemind.swarm.overview import how_freed, leases_now
    from hivemind.tasks import TaskState

    active_leases = sorted(leases_now(hive, agent), key=lambda lease: natural_key(lease.step_id))
    claim_times = (
        {(task.id, task.owner): task.since for task in hive.tasks.list(TaskState.ACTIVE)} if active_leases else {}
    )
    rows = [
        {
            "step": lease.step_id,
            "agent": lease.holder_agent_id,
            "task for": age(claim_time)
            if (claim_time := claim_times.get((lease.task or "", lease.holder_agent_id)))
            else "-",
            "freed by": how_freed(lease, runs=holder_pid(hive.layout, lease.holder_agent_id) is not None),
            "title": lease.title,
        }
        for lease in active_leases
    ]
    empty = f"No step is leased{f' by {agent}' if agent else ''}."
    return CommandOutput([asdict(lease) for lease in active_leases], table_lines(rows, _COLUMNS, empty=empty))


@command("lease claim", open_hive)
def claim(hive: Hive, step: str, *, agent: str, ttl: int | None = None, force: bool = False) -> CommandOutput:
    """Claim the lease of a step, which prevents others from changing the step.

    A lease that the agent already holds does not change; `lease renew` extends it. A finished step, or a step of a
    finished task, cannot be claimed.

    arguments:
      STEP  the step's id, as `lease list` and `view resume` show it
      --agent WHO  the holder: an agent, or human
      --ttl N  how many events the lease lasts, 1 to 10,000 (default: 200)
      --force  take the lease over from its present holder

    examples:
      hivemind lease claim what-is-a-lease.s1 --agent human --ttl 500
      hivemind lease claim what-is-a-lease.s1 --agent human --force
    """
    from hivemind.coordination.entries import DEFAULT_TTL_SEQ

    events = DEFAULT_TTL_SEQ if ttl is None else ttl
    return _lease_output(hive, hive.leases.claim(step, agent, events, force=force, require_unfinished=True))


@command("lease renew", open_hive)
def renew(hive: Hive, step: str, *, agent: str, generation: int | None = None, ttl: int | None = None) -> CommandOutput:
    """Extend a lease: from now on it lasts N more events. Without --ttl, a lease with more events left stays unchanged.

    arguments:
      STEP  the step's id, as `lease list` and `view resume` show it
      --agent WHO  the holder: an agent, or human
      --generation N  refuse if the lease has had another holder since this generation
      --ttl N  how many events the lease lasts, 1 to 10,000 (default: 200)

    examples:
      hivemind lease renew what-is-a-lease.s1 --agent human --generation 3
    """
    from hivemind.coordination.entries import DEFAULT_TTL_SEQ, MAX_TTL_SEQ
    from hivemind.swarm.overview import lease_now

    if ttl is None:  # never shorter than what is left
        lease = hive.leases.get(step)
        left = 0 if lease is None else lease_now(hive, lease).left
        ttl = max(DEFAULT_TTL_SEQ, min(left, MAX_TTL_SEQ))
    return _lease_output(hive, hive.leases.renew(step, agent, generation, ttl))


@command("lease release", open_hive)
def release(hive: Hive, step: str, *, agent: str, generation: int | None = None) -> CommandOutput:
    """Release the lease of a step.

    arguments:
      STEP  the step's id, as `lease list` and `view resume` show it
      --agent WHO  the holder: an agent, or human
      --generation N  refuse if the lease has had another holder since this generation

    examples:
      hivemind lease release what-is-a-lease.s1 --agent human
    """
    hive.leases.release(step, agent, generation)
    return CommandOutput({"step_id": step, "released": True}, [f"{one_line(step)} is free."])


def _lease_output(hive: Hive, lease: StepLease) -> CommandOutput:
    from hivemind.swarm.overview import lease_now

    lease_state = lease_now(hive, lease)
    step = one_line(lease_state.step_id)
    description = (
        f"{step} ({one_line(lease_state.title)})" if lease_state.title else f"{step}, which no task has (yet),"
    )
    release_command = f"hivemind lease release {step} --agent {lease_state.holder_agent_id}"
    lines = [
        f"{lease_state.holder_agent_id} holds {description} (generation {lease_state.generation}).",
        f"{release_command} frees it; otherwise {lease_state.left:,} events in the journal do.",
    ]
    return CommandOutput(asdict(lease_state), lines)
