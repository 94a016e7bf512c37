"""hivemind log: what happened, from the journal or from one task's own log."""

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
        "show the journal of the hive, or the log of one task or agent",
        about="An event is its number, its kind and what it says. The number is the hive's own time: no clock is in it.\n"
        "--json gives an array; with --follow, which has no end, one JSON object a line.",
        examples="  hivemind log --kind lease --kind agent\n  hivemind log --since 120 --follow\n  hivemind log --task my-task\n"
        "  hivemind log --agent researcher",
    )
    parser.add_argument("--follow", action="store_true", help="go on as new events come; Ctrl-C ends it")
    parser.add_argument("--since", type=number("of an event"), metavar="SEQ", help="only events after this number")
    parser.add_argument(
        "--kind", action="append", metavar="KIND", help="only this kind (step.done), or a family of them (step)"
    )
    parser.add_argument("--task", metavar="ID", help="the log of one task instead: its cycles and actions")
    parser.add_argument(
        "--agent", metavar="NAME", help="what this agent did that belongs to no task instead: mail above all"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    hive = look_at(arguments)
    if arguments.task is not None or arguments.agent is not None:
        option = "--agent" if arguments.task is None else "--task"
        if arguments.follow or arguments.since is not None:
            raise UserError(f"{option} does not go with --follow or --since", mend="leave them out")
        if arguments.task is not None and arguments.agent is not None:
            raise UserError("--task does not go with --agent", mend="say one of them")
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
    """The log of a task, or an agent's own."""
    from hivemind.presence.agent_log import AgentLog

    if arguments.task is not None:
        records = hive.tasks.read_log(arguments.task)
    else:
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
