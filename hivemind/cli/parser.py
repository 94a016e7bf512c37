"""The parser: wrong use is one line, options are never guessed from their beginnings, help shows examples."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from hivemind.cli.text import one_line

__all__ = ["Commands", "Parser", "add_command", "add_group", "add_json", "global_options", "number"]

Commands: TypeAlias = "argparse._SubParsersAction[Any]"  # noqa: SLF001 - the type has no other name
Run = Callable[[argparse.Namespace], int]
_EXIT_WRONG_USE = 2
_DIGITS = 18  # more fit into no counter


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is one line that says how to find out more (spec 1, *Command line*)."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        # `--fol` must not mean --follow: a later option --folder would change what a script does.
        super().__init__(allow_abbrev=False, **settings)

    def parse_whole(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The arguments. What nobody knows is told by the command that was given it, with the option that is like it."""
        arguments, unknown = self.parse_known_args(argv)
        if unknown:
            parser: Parser = getattr(arguments, "parser", self)
            parser.refuse(unknown)
        return arguments

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End with what is not understood, and what may have been meant."""
        import difflib

        options = [option for action in self._actions for option in action.option_strings]
        near = difflib.get_close_matches(unknown[0].partition("=")[0], options, 1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")

    def error(self, message: str) -> NoReturn:
        message = message.replace("the following arguments are required:", "required:")
        self.exit(_EXIT_WRONG_USE, f"{self.prog}: {one_line(message)}; see: {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        import difflib

        known = [str(choice) for choice in action.choices]
        near = difflib.get_close_matches(str(value), known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        if action.option_strings:
            raise argparse.ArgumentError(action, f"there is no {value!r}, {hint}")
        raise argparse.ArgumentError(None, f"there is no command {value!r}, {hint}")


def global_options() -> Parser:
    """Options that may stand before or after the command; SUPPRESS keeps the later one from undoing the earlier."""
    options = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    options.add_argument(
        "--hive", metavar="PATH", help="the hive's folder (default: $HIVEMIND_HIVE, or the nearest above)"
    )
    options.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    return options


def add_command(
    commands: Commands, common: Parser, name: str, run: Run, line: str, *, about: str = "", examples: str = ""
) -> Parser:
    """One command; `line` is its line in the list, `about` what its own help says beyond that."""
    sentence = line[:1].upper() + line[1:] + "."
    parser: Parser = commands.add_parser(
        name,
        parents=[common],
        help=line,
        description=f"{sentence}\n\n{about}" if about else sentence,
        epilog=f"examples:\n{examples}" if examples else None,
    )
    parser.set_defaults(run=run, parser=parser)
    return parser


def add_group(commands: Commands, common: Parser, name: str, line: str, *, examples: str = "") -> Commands:
    """A command that has commands of its own; gives where to add them."""
    parser: Parser = commands.add_parser(
        name,
        parents=[common],
        help=line,
        description=line[:1].upper() + line[1:] + ".",
        epilog=f"examples:\n{examples}" if examples else None,
    )
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True, dest=f"{name}_command")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="answer with JSON, for programs")


def number(what: str, least: int = 0, most: int | None = None) -> Callable[[str], int]:
    """A `type` for options: a whole number from `least` to `most`; the complaint says that the text is no number `what`."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > _DIGITS or int(text) < least or (most is not None and int(text) > most):
            raise argparse.ArgumentTypeError(f"{text!r} is no number {what}")
        return int(text)

    return read
