"""The entry point of `hivemind`. Commands import other packages only when they run, to keep the start fast."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Iterable, Iterator, Sequence

from hivemind import __version__
from hivemind.cli.command import INTERRUPTED, Command, Parser, add_commands, commands_of
from hivemind.cli.output import warn
from hivemind.cli.streams import discard_output, ensure_standard_streams, tolerate_closed_output
from hivemind.errors import HivemindError, UserError, exit_line

MODULES = {
    "help": "manual",
    "init": "swarm",
    "up": "swarm",
    "down": "swarm",
    "status": "swarm",
    "due": "swarm",
    "archive": "archive",
    "backup": "archive",
    "restore": "archive",
    "task": "task transcript",
    "land": "land",
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
    "lessons": "lessons",
    "doctor": "doctor",
    "mcp": "mcp",
    "acp": "acp",
    "link": "link",
    "unlink": "link",
    "web": "web",
    "top": "top",
    "tool": "tool",
    "completion": "completion",
}
"""For each first word, the modules with its commands. The first module's docstring is the help of a group."""

_DESCRIPTION = """A swarm of agents that share a folder. Make one with `hivemind init`, start it with `hivemind up`,
drop tasks into tasks/inbox/, find the results in tasks/done/."""

_EPILOG = """examples:
  hivemind init my-hive && cd my-hive && cp -r ~/documents knowledge/
  hivemind task add "When does the ferry leave?"
  hivemind up --until-idle
  hivemind task list

Exit status: 0 done, 1 the work failed, 2 wrong use. `hivemind help QUESTION` answers from the manual."""


def declared_commands(words: Iterable[str] = MODULES) -> Iterator[Command]:
    """Yield the commands that begin with one of these words, by default all commands. Import only their modules."""
    for word in words:
        for module in MODULES[word].split():
            for command in commands_of(importlib.import_module(f"hivemind.cli.{module}")):
                if command.words[0] == word:
                    yield command


def build_parser(words: Sequence[str] | None = None) -> Parser:
    """Build a parser that knows only the typed command, or its group if the command is incomplete. If `words` is None,
    it knows all commands."""
    # each may stand before or after the command; the last one counts
    common_options = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    common_options.add_argument(
        "--hive", metavar="PATH", help="the hive's folder (default: $HIVEMIND_HIVE, or the nearest above)"
    )
    common_options.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    parser = Parser(prog="hivemind", description=_DESCRIPTION, parents=[common_options], epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"hivemind {__version__}")
    add_commands(parser, _needed_commands(words or ()), common_options)
    return parser


def _needed_commands(words: Sequence[str]) -> Iterable[Command]:
    while words and words[0].partition("=")[0] in ("--hive", "--debug"):
        words = words[2 if words[0] == "--hive" else 1 :]
    first = words[0] if words else ""
    if first not in MODULES:
        return () if first == "--version" else declared_commands()
    matching_command = next(
        (command for command in declared_commands([first]) if tuple(words[: len(command.words)]) == command.words), None
    )
    return declared_commands([first]) if matching_command is None else [matching_command]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 the work failed, 2 wrong use."""
    ensure_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that cannot be encoded must not end a listing
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else argv
    try:
        return _run_command(build_parser(words).parse_command_line(words))
    except BrokenPipeError:  # the reader has closed the output
        discard_output(sys.stdout)
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def _run_command(arguments: argparse.Namespace) -> int:
    try:
        status: int = arguments.command.run(arguments)
        with tolerate_closed_output():
            return status
    except BrokenPipeError:
        raise
    except Exception as error:  # the boundary of the process: one line for a person, the rest on request
        if getattr(arguments, "debug", False):
            import traceback

            warn(traceback.format_exc().rstrip())
        line, status = _error_line(error, arguments)
        warn(line)
        try:
            sys.stdout.flush()
        except OSError:  # Python would write it again at the end
            discard_output(sys.stdout)
        return status


def _error_line(error: Exception, arguments: argparse.Namespace) -> tuple[str, int]:
    """Return the line for standard error that describes an error, and the exit status."""
    if isinstance(error, UserError):
        from hivemind.cli.refusal import report_refusal
        from hivemind.coordination import CoordinationError

        if isinstance(error, CoordinationError):
            return report_refusal(error, arguments)
    line, status = exit_line(error)
    return line if isinstance(error, HivemindError | OSError) else f"{line}; --debug shows where", status
