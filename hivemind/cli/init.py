"""hivemind init: make a hive."""

from __future__ import annotations

import argparse

from hivemind.cli.output import print_json, say
from hivemind.cli.parser import Commands, Parser, add_command, add_json

__all__ = ["add_to"]


def add_to(commands: Commands, common: Parser) -> None:
    parser = add_command(
        commands,
        common,
        "init",
        run,
        "make a hive in a folder",
        about="Makes the folders with a README in each, three agents with their mailboxes, a short ROM and the manual.\n"
        "Files that are there already stay as they are.",
        examples="  hivemind init my-hive",
    )
    parser.add_argument("path", nargs="?", metavar="PATH", help="the folder (default: --hive, or this one)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from hivemind.hive import Hive

    path = arguments.path or getattr(arguments, "hive", None) or "."
    hive = Hive.init(path)
    if arguments.json:
        print_json({"hive": hive.layout.root, "agents": list(hive.agents)})
        return 0
    say(f"A hive in {hive.layout.root}, with the agents {', '.join(hive.agents)}.")
    say('Next, in that folder: hivemind task add "What is a lease?" and hivemind up --until-idle')
    return 0
