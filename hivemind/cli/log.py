"""hivemind log: what happened, from the journal or from one agent's own log."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hivemind.cli.hive_of import known_agent, look_at
from hivemind.cli.output import as_json, print_array, say
from hivemind.cli.parser import Commands, Parser, add_command, add_json, number
from hivemind.cli.reader import Bell
from hivemind.cli.story import event_line, story_lines
from hivemind.cli.text import fit, is_terminal, terminal_size
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.coordination import Event
    from hivemind.hive import Hive

__all__ = ["add_to"]

_NET_S = 5.0  # how often a follower looks although nothing was reported


def add_to(commands: Commands, common: Parser) -> None:
    parser = add_command(
        commands,
        common,
        "log",
        run,
        "show the journal of the hive, or the log of one agent",
        about="An event is its number, its kind and what it says. The number is the hive's own time: no clock is in it.\n"
        "--json gives an array; with --follow, which has no end, one JSON object a line.",
        examples="  hivemind log --kind lease --kind agent\n  hivemind log --since 120 --follow\n"
        "  hivemind log --agent researcher",
    )
    parser.add_argument("--follow", action="store_true", help="go on as new events come; Ctrl-C ends it")
    parser.add_argument("--since", type=number("of an event"), metavar="SEQ", help="only events after this number")
    parser.add_argument(
        "--kind", action="append", metavar="KIND", help="only this kind (step.done), or a family of them (step)"
    )
    parser.add_argument(
        "--agent", metavar="NAME", help="what this agent did that belongs to no task instead: mail above all"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    hive = look_at(arguments)
    if arguments.agent is not None:
        if arguments.follow or arguments.since is not None:
            raise UserError("--agent does not go with --follow or --since", mend="leave them out")
        return _own_log(hive, arguments)
    since = arguments.since or 0
    if arguments.follow:
        return _follow(hive, since, arguments)
    events = (event for event in hive.journal.events(since) if _wanted(event.kind, arguments.kind))
    if arguments.json:
        print_array(event.as_dict() for event in events)
    else:
        for event in events:
            say(event_line(event.as_dict()))
    return 0


def _wanted(kind: str, kinds: list[str] | None) -> bool:
    return kinds is None or any(kind == one or kind.startswith(f"{one}.") for one in kinds)


def _follow(hive: Hive, since: int, arguments: argparse.Namespace) -> int:
    for event in _events_as_they_come(hive, since):
        if _wanted(event.kind, arguments.kind):
            say(as_json(event.as_dict()) if arguments.json else event_line(event.as_dict()))
            sys.stdout.flush()
    return 0


def _events_as_they_come(hive: Hive, since: int) -> Iterator[Event]:
    """Events until the reader has gone (BrokenPipeError): read again when the journal's folder changed, and every few
    seconds in case that went unsaid."""
    from hivemind.fs.watch import open_watcher

    with Bell() as bell, open_watcher(hive.config.watch, [], [hive.layout.journal], bell.ring):
        while True:
            for event in hive.journal.read(since):
                since = event.seq
                yield event
            bell.wait(_NET_S)


def _own_log(hive: Hive, arguments: argparse.Namespace) -> int:
    """An agent's own."""
    from hivemind.presence.agent_log import AgentLog

    records = AgentLog(hive.layout.agent_state(known_agent(hive, arguments.agent))).records()
    if arguments.kind is not None:
        records = (record for record in records if _wanted(str(record.get("kind", "")), arguments.kind))
    if arguments.json:
        print_array(records)
        return 0
    columns = terminal_size()[0] if is_terminal() else None
    for record in records:
        for line in story_lines(record):
            say(line if columns is None else fit(line, columns))
    return 0
