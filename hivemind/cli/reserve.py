"""hivemind reserve: paths that nobody else may edit meanwhile. It uses the tools `reserve` and `release`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from hivemind.cli.hive_of import hive_of, known_name, look_at
from hivemind.cli.output import print_json, print_table, say
from hivemind.cli.parser import Commands, Parser, add_command, add_group, add_json, number
from hivemind.cli.text import one_line
from hivemind.layout import HUMAN

__all__ = ["add_to"]

_COLUMNS = ("reservation", "agent", "paths", "shared", "reason")


def add_to(commands: Commands, common: Parser) -> None:
    reserve = add_group(
        commands,
        common,
        "reserve",
        "keep agents' hands off files while you edit them",
        examples="  hivemind reserve paths 'knowledge/boats/**' --reason 'new chapter'\n  hivemind reserve list\n"
        "  hivemind reserve release\n\nExit status 1: another holds what could be one of these paths.",
    )
    taking = add_command(
        reserve, common, "paths", _paths, "reserve all paths that patterns match, or none of them",
        about="A reservation of a person lasts until it is given back, one of an agent no longer than its process. It binds the\n"
        "tools of agents and MCP clients; a program that writes by itself does not ask.",
        examples="  hivemind reserve paths 'knowledge/boats/**' knowledge/index.md\n"
        "  hivemind reserve paths 'knowledge/**' --shared",
    )  # fmt: skip
    taking.add_argument(
        "paths", nargs="+", metavar="PATTERN", help="from the hive's folder: *, ** and ? as in a shell, in quotes"
    )
    taking.add_argument("--shared", action="store_true", help="others may reserve them as shared, too")
    taking.add_argument("--reason", default="", metavar="TEXT", help="shown to who asks for them")
    _add_agent(taking)
    listing = add_command(
        reserve, common, "list", _list, "list what is reserved, oldest first", examples="  hivemind reserve list --json"
    )  # fmt: skip
    listing.add_argument("--agent", metavar="NAME", help="only what this agent holds")
    add_json(listing)
    giving = add_command(
        reserve, common, "release", _release, "give reserved paths back",
        examples="  hivemind reserve release 42\n  hivemind reserve release --agent researcher",
    )  # fmt: skip
    giving.add_argument(
        "reservation", nargs="?", type=number("of a reservation"), metavar="N", help="which (default: all of them)"
    )
    _add_agent(giving)


def _add_agent(parser: Parser) -> None:
    parser.add_argument("--agent", default=HUMAN, metavar="NAME", help="for whom: an agent, or human (default)")
    add_json(parser)


def _paths(arguments: argparse.Namespace) -> int:
    from hivemind.tools.by_hand import use_by_hand

    hive = hive_of(arguments)
    agent = known_name(hive, arguments.agent)
    asked = {"paths": arguments.paths, "shared": arguments.shared, "reason": arguments.reason}
    made = use_by_hand(hive, agent, "reserve", asked)
    if arguments.json:
        print_json(made)
    else:
        say(f"{agent} holds {one_line(', '.join(made['paths']))}: reservation {made['reservation']}.")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from hivemind.coordination import Reservations

    hive = look_at(arguments)
    agent = None if arguments.agent is None else known_name(hive, arguments.agent)
    found = Reservations(hive.journal).list(agent)
    if arguments.json:
        print_json([{**asdict(one), "patterns": list(one.patterns)} for one in found])
        return 0
    rows = [
        {**asdict(one), "reservation": one.id, "agent": one.agent_id, "paths": " ".join(one.patterns)} for one in found
    ]
    print_table(rows, _COLUMNS, empty="Nothing is reserved.")
    return 0


def _release(arguments: argparse.Namespace) -> int:
    from hivemind.tools.by_hand import use_by_hand

    hive = hive_of(arguments)
    agent = known_name(hive, arguments.agent)
    asked = {} if arguments.reservation is None else {"reservation": arguments.reservation}
    ended = use_by_hand(hive, agent, "release", asked)
    if arguments.json:
        print_json(ended)
    else:
        say(f"{agent} has given {ended['released']} back.")
    return 0
