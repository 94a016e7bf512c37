"""`hivemind …`: one parser; each command's module opens the rooms that it needs only when it runs."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
import traceback
from collections.abc import Sequence

from hivemind import __version__
from hivemind.cli.output import warn
from hivemind.cli.parser import Parser, global_options
from hivemind.cli.reader import hush, reader_may_go, take_streams
from hivemind.cli.refusal import tell_refusal
from hivemind.errors import HivemindError, UserError, system_error

__all__ = ["COMMANDS", "build_parser", "main"]

DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
COMMANDS = (
    "init",
    "up",
    "down",
    "status",
    "task",
    "mail",
    "agent",
    "context",
    "log",
    "lease",
    "reserve",
    "view",
    "graph",
    "doc",
    "memory",
    "doctor",
    "mcp",
    "tool",
)
"""Each is a module hivemind.cli.<command> with `add_to(commands, common)`; they import rooms inside functions only."""

_DESCRIPTION = """A swarm of agents that share a folder. Make one with `hivemind init`, start it with `hivemind up`,
drop tasks into tasks/inbox/, find the results in tasks/done/."""

_EPILOG = """examples:
  hivemind init my-hive && cd my-hive
  hivemind task add "What is a lease?"
  hivemind up --until-idle
  hivemind task list

Exit status: 0 done, 1 the work failed, 2 wrong use. The manual: knowledge/manual/ in every hive."""


def build_parser() -> Parser:
    """The whole command line. Each module `hivemind.cli.<command>` adds its own part."""
    common = global_options()
    parser = Parser(prog="hivemind", description=_DESCRIPTION, parents=[common], epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"hivemind {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"hivemind.cli.{name}").add_to(commands, common)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit status: 0 done, 1 the work failed, 2 wrong use."""
    take_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the terminal has no code for must not end a listing
            stream.reconfigure(errors="backslashreplace")
    arguments = build_parser().parse_whole(argv)
    try:
        return _run(arguments)
    except BrokenPipeError:  # the reader of our output has gone: nobody to tell
        hush()
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: argparse.Namespace) -> int:
    try:
        status: int = arguments.run(arguments)
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
        from hivemind.coordination import CoordinationError

        return tell_refusal(error, arguments) if isinstance(error, CoordinationError) else (str(error), WRONG_USE)
    if isinstance(error, HivemindError):
        return str(error), FAILED
    if isinstance(error, OSError):
        return system_error(error), FAILED
    return f"a fault of hivemind itself: {type(error).__name__}: {error}; --debug shows where", FAILED
