"""`hivemind …`: one parser; each command's module opens the rooms that it needs only when it runs."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence

from hivemind import __version__
from hivemind.cli.command import INTERRUPTED, Command, Parser, add_commands, commands_of
from hivemind.cli.output import warn
from hivemind.cli.streams import hush, reader_may_go, take_streams
from hivemind.errors import HivemindError, UserError, exit_line

MODULES = {
    "init": "swarm",
    "up": "swarm",
    "down": "swarm",
    "status": "swarm",
    "due": "swarm",
    "archive": "archive",
    "backup": "archive",
    "restore": "archive",
    "task": "task transcript",
    "mail": "mail",
    "agent": "agent",
    "context": "agent",
    "log": "log",
    "lease": "lease",
    "reserve": "reserve",
    "view": "view",
    "graph": "graph branch",
    "doc": "doc",
    "memory": "memory",
    "doctor": "doctor",
    "mcp": "mcp",
    "link": "link",
    "unlink": "link",
    "web": "web",
    "top": "top",
    "tool": "tool",
    "completion": "completion",
}
"""The modules that declare a command or a group of them, the first with the group's help. Only those asked for are imported."""

_DESCRIPTION = """A swarm of agents that share a folder. Make one with `hivemind init`, start it with `hivemind up`,
drop tasks into tasks/inbox/, find the results in tasks/done/."""

_EPILOG = """examples:
  hivemind init my-hive && cd my-hive
  hivemind task add "What is a lease?"
  hivemind up --until-idle
  hivemind task list

Exit status: 0 done, 1 the work failed, 2 wrong use. The manual: knowledge/manual/ in every hive."""


def declared(words: Iterable[str] = MODULES) -> Iterator[Command]:
    """The commands that begin with one of these words; all by default. A module is imported when one of its is asked for."""
    for word in words:
        for module in MODULES[word].split():
            for one in commands_of(importlib.import_module(f"hivemind.cli.{module}")):
                if one.words[0] == word:
                    yield one


def build_parser(typed: Sequence[str] | None = None) -> Parser:
    """The command line, or as much of it as the typed words need: their command, or its group where it needs help itself."""
    common = Parser(
        add_help=False, argument_default=argparse.SUPPRESS
    )  # before or after the command; the last one counts
    common.add_argument(
        "--hive", metavar="PATH", help="the hive's folder (default: $HIVEMIND_HIVE, or the nearest above)"
    )
    common.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    parser = Parser(prog="hivemind", description=_DESCRIPTION, parents=[common], epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"hivemind {__version__}")
    add_commands(parser, _needed(typed or ()), common)
    return parser


def _needed(typed: Sequence[str]) -> Iterable[Command]:
    while typed and typed[0].partition("=")[0] in ("--hive", "--debug"):
        typed = typed[2 if typed[0] == "--hive" else 1 :]
    first = typed[0] if typed else ""
    if first not in MODULES:
        return () if first == "--version" else declared()
    whole = next((one for one in declared([first]) if tuple(typed[: len(one.words)]) == one.words), None)
    return declared([first]) if whole is None else [whole]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status: 0 done, 1 the work failed, 2 wrong use."""
    take_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the terminal has no code for must not end a listing
            stream.reconfigure(errors="backslashreplace")
    typed = sys.argv[1:] if argv is None else argv
    arguments = build_parser(typed).parse_whole(typed)
    try:
        return _run(arguments)
    except BrokenPipeError:  # the reader of our output has gone: nobody to tell
        hush()
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: argparse.Namespace) -> int:
    try:
        status: int = arguments.command.run(arguments)
        with reader_may_go():
            return status
    except BrokenPipeError:
        raise
    except Exception as error:  # the boundary of the process: one line for a person, the rest on request
        if getattr(arguments, "debug", False):
            warn(traceback.format_exc().rstrip())
        line, status = _told(error, arguments)
        warn(line)
        return status


def _told(error: Exception, arguments: argparse.Namespace) -> tuple[str, int]:
    """What a person is told of an error, and the exit status it makes."""
    if isinstance(error, UserError):
        from hivemind.cli.refusal import tell_refusal
        from hivemind.coordination import CoordinationError

        if isinstance(error, CoordinationError):
            return tell_refusal(error, arguments)
    line, status = exit_line(error)
    return line if isinstance(error, HivemindError | OSError) else f"{line}; --debug shows where", status
