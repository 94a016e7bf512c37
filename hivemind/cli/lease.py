"""hivemind lease: who holds which step; claiming, renewing and releasing one."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from hivemind.cli.hive_of import hive_of, look_at
from hivemind.cli.output import print_json, print_table, say
from hivemind.cli.parser import Commands, Parser, add_command, add_group, add_json, number
from hivemind.cli.text import natural, one_line

if TYPE_CHECKING:
    from hivemind.coordination import StepLease
    from hivemind.hive import Hive
    from hivemind.swarm.overview import LeaseNow

__all__ = ["add_to"]

_COLUMNS = ("step", "agent", "left", "generation", "title")


def add_to(commands: Commands, common: Parser) -> None:
    lease = add_group(
        commands,
        common,
        "lease",
        "see who holds which step; claim, renew and release one",
        examples="  hivemind lease list\n  hivemind lease claim what-is-a-lease.s1 --agent human\n\n"
        "A lease lasts for a number of the journal's events, not for a time. Exit status 1: the rules refuse it now.",
    )
    listing = add_command(
        lease, common, "list", _list, "list the steps that are leased, their holders, the events that are left",
        examples="  hivemind lease list --agent researcher",
    )  # fmt: skip
    listing.add_argument("--agent", metavar="NAME", help="only what this agent holds")
    add_json(listing)
    _add_claim(lease, common)
    _add_renew(lease, common)
    releasing = add_command(
        lease, common, "release", _release, "give a step back",
        examples="  hivemind lease release what-is-a-lease.s1 --agent human",
    )  # fmt: skip
    _add_step_and_agent(releasing)
    _add_generation(releasing)
    add_json(releasing)


def _add_claim(lease: Commands, common: Parser) -> None:
    parser = add_command(
        lease, common, "claim", _claim, "take a step, so that nobody else changes it",
        about="What the agent holds already stays as it is, unless --renew is given. A step that is done, and one of a task\n"
        "that is over, cannot be claimed.",
        examples="  hivemind lease claim what-is-a-lease.s1 --agent human --ttl 500\n"
        "  hivemind lease claim what-is-a-lease.s1 --agent human --force",
    )  # fmt: skip
    _add_step_and_agent(parser)
    _add_ttl(parser)
    parser.add_argument("--force", action="store_true", help="take it over from whoever holds it")
    parser.add_argument(
        "--renew",
        action="store_true",
        help="if the agent holds it already: for N events from now, never fewer than are left",
    )
    add_json(parser)


def _add_renew(lease: Commands, common: Parser) -> None:
    parser = add_command(
        lease, common, "renew", _renew, "let a lease last from now on (without --ttl never shorter than it is)",
        examples="  hivemind lease renew what-is-a-lease.s1 --agent human --generation 3",
    )  # fmt: skip
    _add_step_and_agent(parser)
    _add_generation(parser)
    _add_ttl(parser)
    add_json(parser)


def _add_step_and_agent(parser: Parser) -> None:
    parser.add_argument("step", metavar="STEP", help="the step's id, as `lease list` and `view resume` show it")
    parser.add_argument("--agent", required=True, metavar="NAME", help="who holds it: an agent, or human")


def _add_generation(parser: Parser) -> None:
    parser.add_argument(
        "--generation", type=number("of a generation"), metavar="N", help="refuse if the lease has passed on since"
    )


def _add_ttl(parser: Parser) -> None:
    parser.add_argument("--ttl", type=number("of events"), metavar="N", help="for N events (default: 200; 1 to 10,000)")


def _list(arguments: argparse.Namespace) -> int:
    from hivemind.swarm.overview import leases_now

    found = sorted(leases_now(look_at(arguments), arguments.agent), key=lambda lease: natural(lease.step_id))
    if arguments.json:
        print_json([asdict(lease) for lease in found])
        return 0
    rows = [{**asdict(lease), "step": lease.step_id, "agent": lease.holder_agent_id} for lease in found]
    print_table(rows, _COLUMNS, empty=f"No step is leased{f' by {arguments.agent}' if arguments.agent else ''}.")
    return 0


def _claim(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    ttl = _lasting(hive, arguments) if arguments.renew else _asked(arguments)
    lease = hive.leases.claim(
        arguments.step, arguments.agent, ttl, force=arguments.force, renew=arguments.renew, to_do=True
    )
    return _tell(hive, lease, arguments)


def _renew(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    ttl = _lasting(hive, arguments) if arguments.ttl is None else _asked(arguments)
    lease = hive.leases.renew(arguments.step, arguments.agent, arguments.generation, ttl)
    return _tell(hive, lease, arguments)


def _asked(arguments: argparse.Namespace) -> int:
    """For how many events a lease is asked."""
    from hivemind.coordination.lease import DEFAULT_TTL_SEQ

    return DEFAULT_TTL_SEQ if arguments.ttl is None else int(arguments.ttl)


def _lasting(hive: Hive, arguments: argparse.Namespace) -> int:
    """The same, or as many as are left: what nobody asked for does not make a lease shorter."""
    from hivemind.coordination.lease import MAX_TTL_SEQ
    from hivemind.swarm.overview import lease_now

    held = hive.leases.get(arguments.step)
    left = 0 if held is None else lease_now(hive, held).left
    return max(_asked(arguments), min(left, MAX_TTL_SEQ))


def _release(arguments: argparse.Namespace) -> int:
    hive_of(arguments).leases.release(arguments.step, arguments.agent, arguments.generation)
    if arguments.json:
        print_json({"step_id": arguments.step, "released": True})
    else:
        say(f"{one_line(arguments.step)} is free.")
    return 0


def _tell(hive: Hive, lease: StepLease, arguments: argparse.Namespace) -> int:
    from hivemind.swarm.overview import lease_now

    now = lease_now(hive, lease)
    if arguments.json:
        print_json(asdict(now))
    else:
        say(f"{now.holder_agent_id} holds {_named(now)} for {now.left:,} more events (generation {now.generation}).")
    return 0


def _named(lease: LeaseNow) -> str:
    step = one_line(lease.step_id)
    return f"{step} ({one_line(lease.title)})" if lease.title else f"{step}, which no task has (yet),"
