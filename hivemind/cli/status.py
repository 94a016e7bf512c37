"""hivemind status: the hive as it stands now."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hivemind.cli.hive_of import look_at
from hivemind.cli.output import print_json, print_table, say
from hivemind.cli.parser import Commands, Parser, add_command, add_json
from hivemind.cli.picture import tokens_of
from hivemind.cli.text import natural, one_line

if TYPE_CHECKING:
    from hivemind.swarm.overview import AgentNow, Overview

__all__ = ["add_to"]

_COLUMNS = ("agent", "state", "pid", "task", "step", "unread", "tokens", "last_action")
_COST = (*_COLUMNS[:-1], "cost", _COLUMNS[-1])
_SHOWN = 20  # so many leases, and tasks that do not go on, are named


def add_to(commands: Commands, common: Parser) -> None:
    parser = add_command(
        commands,
        common,
        "status",
        run,
        "show who is up, what each agent does, how the tasks stand",
        examples="  hivemind status\n  hivemind status --json | jq '.agents[] | select(.state == \"working\")'",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from hivemind.swarm.overview import overview

    now = overview(look_at(arguments))
    if arguments.json:
        print_json(_record(now))
    else:
        _show(now)
    return 0


def _record(now: Overview) -> dict[str, Any]:
    return {
        "hive": now.root,
        "workspace": now.workspace,
        "supervisor": now.supervisor,
        "watching": now.watching,
        "disk_full": now.disk_full,
        "search": now.embedder,
        "agents": [asdict(agent) for agent in now.agents],
        "leases": [asdict(lease) for lease in now.leases],
        "human_unread": now.human_unread,
        "tasks": now.tasks,
        "waiting": [{"task": task, "why": why} for task, why in now.waiting],
        "parked": [{"task": task, "why": why} for task, why in now.parked],
        "needs_you": [{"id": id_, "what": what} for id_, what in now.needs_you],
        "left": [{"task": task, "why": why} for task, why in now.left],
        "mail_waits": [{"agent": agent, "why": why} for agent, why in now.mail_waits],
    }


def _show(now: Overview) -> None:
    say(f"Hive       {now.root} (workspace {now.workspace})")
    up = now.supervisor
    say(
        f"Swarm      process {up.get('pid', '?')}, up since {up.get('since', '?')}"
        if up is not None
        else f"Swarm      not up{'' if now.has_state else ', and there is no .hive here (yet, or any more)'}"
    )
    if now.disk_full:
        say("Disk       disk full: all work rests; make room, and it goes on")
    if now.watching:
        say(f"Watching   {one_line(now.watching)}")
    say(f"Search     {now.embedder}")
    counts = now.tasks
    active = f"{counts['active']} active" + (f" ({counts['parked']} parked)" if counts["parked"] else "")
    say(f"Tasks      {counts['inbox']} waiting, {active}, {counts['done']} done, {counts['failed']} failed")
    say(f"Your mail  {now.human_unread} unread")
    say()
    costs = any(agent.money or agent.unpriced for agent in now.agents)
    print_table(
        _agent_rows(now.agents),
        _COST if costs else _COLUMNS,
        empty="There are no agents: hivemind agent add NAME makes one.",
    )
    leases = [
        (lease.step_id, f"{lease.holder_agent_id}, {lease.left:,} events left")
        for lease in sorted(now.leases, key=lambda lease: natural(lease.step_id))
    ]
    needs = [(f"hivemind mail read human {id_}", what) for id_, what in now.needs_you]
    _list("Needs you", needs, "hivemind mail list --unread")
    _list("Stuck", [(agent.name, agent.problem) for agent in now.agents if agent.problem], "hivemind status --json")
    _list("Mail waits", now.mail_waits, "hivemind status --json")
    _list("Left", now.left, "hivemind status --json")
    _list("Leased", leases, "hivemind lease list")
    _list("Parked", now.parked, "hivemind task list")
    _list("Waiting", now.waiting, "hivemind task list")


def _list(title: str, named: Sequence[tuple[str, str]], rest: str) -> None:
    """What stands beside each name; `rest` is the command that shows those that are left out here."""
    if not named:
        return
    say(f"\n{title}:")
    for name, told in named[:_SHOWN]:
        say(f"  {one_line(name)}: {one_line(told)}")
    if len(named) > _SHOWN:
        say(f"  … and {len(named) - _SHOWN} more: {rest}")


def _cost(agent: AgentNow) -> str:
    """`0.0123`; `?` where no price is known, `0.0123+?` where that is so of a part."""
    known = f"{agent.money:.4f}" if agent.money or not agent.unpriced else ""
    return known + (("+?" if known else "?") if agent.unpriced else "")


def _agent_rows(agents: tuple[AgentNow, ...]) -> list[dict[str, Any]]:
    """Each agent as a row of a table."""
    return [
        {**asdict(agent), "agent": agent.name, "tokens": tokens_of(agent.tokens, agent.budget), "cost": _cost(agent)}
        for agent in sorted(agents, key=lambda agent: natural(agent.name))
    ]
