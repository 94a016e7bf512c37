"""Build the command line from functions: one function per command.

The signature declares the arguments: parameters before the `*` are positional, those after it are options. The docstring
is the help text; its section `arguments:` describes each argument. The returned CommandOutput is printed. The parser,
`--json` and shell completion are derived from these declarations.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import os
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import partial
from types import ModuleType, UnionType
from typing import Annotated, Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar

from hivemind.cli.output import as_json, print_line
from hivemind.cli.streams import standard_input, tolerate_closed_output
from hivemind.cli.text import one_line, terminal_size
from hivemind.errors import WRONG_USE, UserError
from hivemind.frozen import frozen
from hivemind.layout import HUMAN
from hivemind.pattern import pattern

INTERRUPTED = 130
_MAX_DIGITS = 18  # longer numbers overflow a 64-bit integer
_HELP_ENTRY = pattern(r"^ +(--[\w-]+)?(?: (?=\S))?(\S*)  (\S.*(?:\n {6}.*)*)", re.MULTILINE)
P = ParamSpec("P")
T = TypeVar("T")


@frozen
class CommandOutput:
    """The output of a command: `json_content` for `--json`, `lines` for people, and the exit status.

    A command that failed after a part of its work also sets `error`, which is raised after the output has been printed.
    """

    json_content: Any
    lines: Iterable[str] = ()
    status: int = 0
    error: Exception | None = None
    to_json: Callable[[Any], str] = partial(as_json, indent=1)

    def show(self, as_json: bool) -> int:
        with tolerate_closed_output():
            for line in [self.to_json(self.json_content)] if as_json else self.lines:
                print_line(line)
        if self.error is not None:
            raise self.error
        return self.status


@frozen
class Arg:
    """Rules for a parameter that its type cannot express: `Annotated[int, Arg(minimum=1)]`."""

    minimum: float = 0
    maximum: float = float("inf")
    reads_stdin: bool = False  # `-` reads the value from standard input
    default: Any = None  # makes an argument optional although required ones follow it
    exclusive_group: str | None = None  # options of the same group exclude each other
    is_file: bool = False  # a path outside the hive is allowed, so agents may not use this option


AttachedFiles = Annotated[list[str] | None, Arg(is_file=True)]
Box = Annotated[str, Arg(default="human")]  # a mailbox; optional although required arguments follow it
Positive = Annotated[int, Arg(minimum=1)]
Share = Annotated[float, Arg(maximum=1)]
Text = Annotated[str, Arg(reads_stdin=True)]


@frozen
class Command:
    """A command: its words (`task add`), its function, and the `opener`, which makes the function's first argument from
    `--hive`."""

    words: tuple[str, ...]
    function: Callable[..., CommandOutput | int | None]
    opener: Callable[[str | None], Any]
    fixed_format: bool
    for_agents: bool
    """True if agents may run the command: it shows only what every agent may see, or acts in the agent's name."""

    def parameters(self) -> Iterator[Parameter]:
        """Yield the arguments and options in declaration order."""
        return _parameters(self.function, list(inspect.signature(self.function).parameters.values())[1:])

    def run(self, namespace: argparse.Namespace) -> int:
        """Call the opener and the function, print the output and return the exit status.

        Raises UserError if an agent runs a command that is reserved for people.
        """
        if (author := os.environ.get("HIVEMIND_AUTHOR", HUMAN)) != HUMAN:
            self._check_agent(author, namespace)
        as_json = getattr(namespace, "json", False)
        hive = self.opener(getattr(namespace, "hive", None))
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        arguments = {"json": as_json}
        for parameter in self.parameters():
            value = getattr(namespace, parameter.name)
            arguments[parameter.name] = standard_input() if parameter.rule.reads_stdin and value == "-" else value
        output = _call(partial(self.function, hive), arguments)
        return output.show(as_json or self.fixed_format) if isinstance(output, CommandOutput) else output or 0

    def _check_agent(self, agent: str, namespace: argparse.Namespace) -> None:
        files = (
            parameter.option
            for parameter in self.parameters()
            if parameter.rule.is_file and getattr(namespace, parameter.name)
        )
        option = "--hive" if hasattr(namespace, "hive") else next(files, "") if self.for_agents else ""
        if option or not self.for_agents:
            command_line = " ".join(("hivemind", *self.words, option)).rstrip()
            mend = "its tools do what an agent may do; a person can write it as a `run:` step"
            raise UserError(f"{command_line} is not for a command that an agent ({agent}) wrote", remedy=mend)


@frozen
class Parameter:
    """An argument or option of a command; `kind` is its type without None, or the type of an element if `is_list`."""

    name: str
    kind: Any
    rule: Arg
    is_list: bool
    is_option: bool
    default: Any
    metavar: str
    help: str | None

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def option(self) -> str:
        return _option(self.name)


def _option(name: str) -> str:
    return "--" + name.rstrip("_").replace("_", "-")


def _parameters(function: Any, declarations: Iterable[inspect.Parameter]) -> Iterator[Parameter]:
    """Yield a Parameter for each declared parameter; a dataclass parameter is replaced by its fields."""
    hints = _type_hints(function)
    docstrings = (owner.__doc__ for owner in getattr(function, "__mro__", [function]))
    help_entries = [
        help_entry
        for docstring in docstrings
        for help_entry in _HELP_ENTRY.findall(_sections(docstring).get("arguments", ""))
    ]
    options = {option: (metavar, text) for option, metavar, text in help_entries if option}
    arguments = iter([(metavar, text) for option, metavar, text in help_entries if not option])
    for declaration in declarations:
        hint: Any = hints[declaration.name]
        if is_dataclass(hint):
            yield from _parameters(hint, inspect.signature(typing.cast(type, hint)).parameters.values())
        elif declaration.name != "json":
            kind, rule = _without_none(hint), Arg()
            if typing.get_origin(kind) is Annotated:
                kind, rule = typing.get_args(kind)
            kind = _without_none(kind)
            is_list, is_option = typing.get_origin(kind) is list, declaration.kind is declaration.KEYWORD_ONLY
            metavar, text = options.get(_option(declaration.name), ("", "")) if is_option else next(arguments, ("", ""))
            yield Parameter(
                declaration.name, typing.get_args(kind)[0] if is_list else kind, rule, is_list, is_option,
                declaration.default if rule.default is None else rule.default, metavar, " ".join(text.split()) or None,
            )  # fmt: skip


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (UnionType, typing.Union):
        return next(part for part in typing.get_args(kind) if part is not type(None))
    return kind


def _type_hints(function: Any) -> dict[str, Any]:
    """Return the type of each parameter. Hive and Layout are replaced by Any, because importing them takes long."""
    return typing.get_type_hints(function, localns={"Hive": Any, "Layout": Any}, include_extras=True)


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call the function with the arguments that its parameters name. Build each dataclass parameter from its fields."""
    parameters = inspect.signature(function).parameters
    hints = _type_hints(getattr(function, "func", function))
    keywords = {
        name: _call(hints[name], arguments) if is_dataclass(hints[name]) else arguments[name] for name in parameters
    }
    return function(**keywords)


def command(
    words: str, opener: Callable[[str | None], T], *, fixed_format: bool = False, for_agents: bool = False
) -> Callable[[Callable[Concatenate[T, P], CommandOutput | int | None]], Command]:
    """Return a decorator that declares a function as the command with these words.

    `opener` makes the function's first argument from `--hive`. `fixed_format` omits the option `--json`. `for_agents`
    allows agents to run the command.
    """

    def decorate(function: Callable[Concatenate[T, P], CommandOutput | int | None]) -> Command:
        return Command(tuple(words.split()), function, opener, fixed_format, for_agents)

    return decorate


def commands_of(module: ModuleType) -> list[Command]:
    """Return the commands of a module in declaration order."""
    return [member for member in vars(module).values() if isinstance(member, Command)]


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that measures the terminal as argparse does, but without importing shutil, which slows down the start."""

    def __init__(self, prog: str) -> None:
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() and int(columns) else terminal_size()[0]
        super().__init__(prog, width=width - 2)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports wrong use in one line, which ends with the command that shows the help."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", _HelpFormatter)
        # `--fol` must not mean --follow: a later option --folder would change what a script does.
        super().__init__(allow_abbrev=False, **settings)
        self._is_intermixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse like argparse, but allow options anywhere among the arguments unless `--` is used."""
        has_options = any(argument.startswith("-") for argument in args or ())
        if self._is_intermixing or self._subparsers is not None or not has_options or "--" in args:
            return super().parse_known_args(args, namespace)
        self._is_intermixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixing = False

    def parse_command_line(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Parse all arguments. An unknown argument ends the program with an error that suggests the most similar option."""
        arguments, unknown = self.parse_known_args(argv)
        if unknown:
            parser: Parser = getattr(arguments, "parser", self)
            options = [option for action in parser._actions for option in action.option_strings]
            parser.error(
                f"unrecognized arguments: {' '.join(unknown)}{_suggestion(unknown[0].partition('=')[0], options)}"
            )
        return typing.cast(argparse.Namespace, arguments)

    def error(self, message: str) -> NoReturn:
        message = message.replace("the following arguments are required:", "required:")
        self.exit(WRONG_USE, f"{self.prog}: {one_line(message)}; see: {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        hint = _suggestion(str(value), choices) or f", there are {', '.join(choices)}"
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the class has no public name
            raise argparse.ArgumentError(None, f"there is no command {value!r}{hint}")
        raise argparse.ArgumentError(action, f"there is no {value!r}{hint}")


def _suggestion(text: str, candidates: Iterable[str]) -> str:
    import difflib

    matches = difflib.get_close_matches(text, candidates, 1)
    return f", did you mean {matches[0]!r}?" if matches else ""


def add_commands(parser: Parser, commands: Iterable[Command], common: Parser) -> None:
    """Add a parser for each command and group. A group takes its help from the module that has its first command."""
    subparsers: dict[tuple[str, ...], Any] = {
        (): parser.add_subparsers(title="commands", metavar="COMMAND", required=True, prog=parser.prog)
    }
    for leaf_command in commands:
        for end in range(1, len(leaf_command.words)):
            path = leaf_command.words[:end]
            if path not in subparsers:
                group = subparsers[path[:-1]].add_parser(
                    path[-1], parents=[common], **_help(leaf_command.function.__globals__["__doc__"])
                )
                subparsers[path] = group.add_subparsers(
                    title="commands", metavar="COMMAND", required=True, prog=group.prog
                )
        leaf_parser = subparsers[leaf_command.words[:-1]].add_parser(
            leaf_command.words[-1], parents=[common], **_help(leaf_command.function.__doc__)
        )
        leaf_parser.set_defaults(command=leaf_command, parser=leaf_parser)
        exclusive_groups: dict[str, Any] = {}
        for parameter in leaf_command.parameters():
            group_name = parameter.rule.exclusive_group
            if group_name is not None and group_name not in exclusive_groups:
                exclusive_groups[group_name] = leaf_parser.add_mutually_exclusive_group()
            _add_parameter(leaf_parser if group_name is None else exclusive_groups[group_name], parameter)
        if not leaf_command.fixed_format:
            leaf_parser.add_argument("--json", action="store_true", help="answer with JSON, for programs")


def _sections(docstring: str | None) -> dict[str, str]:
    """Split a docstring into its `text` and its sections `arguments` and `examples`."""
    text, *parts = re.split(r"^(arguments|examples):\n", inspect.cleandoc(docstring or ""), flags=re.MULTILINE)
    return {"text": text.strip(), **dict(zip(parts[::2], parts[1::2], strict=True))}


def _help(docstring: str | None) -> dict[str, Any]:
    """Return the keyword arguments of argparse that a docstring has: `help` (its first paragraph), `description` and
    `epilog` (its examples)."""
    sections = _sections(docstring)
    summary = sections["text"].partition("\n\n")[0].rstrip(".")
    epilog = f"examples:\n{sections['examples']}" if "examples" in sections else None
    return {"help": summary[:1].lower() + summary[1:], "description": sections["text"], "epilog": epilog}


def _add_parameter(parser: Any, parameter: Parameter) -> None:
    settings: dict[str, Any] = {"help": parameter.help, "default": None if parameter.is_required else parameter.default}
    if parameter.kind is bool:
        settings["action"] = "store_true"
    elif typing.get_origin(parameter.kind) is Literal:
        settings |= {"choices": typing.get_args(parameter.kind), "metavar": parameter.metavar or None}
    else:
        settings["metavar"] = parameter.metavar or parameter.name.rstrip("_").upper()
        settings["type"] = _number_parser(parameter.kind, parameter.rule) if parameter.kind in (int, float) else None
    if parameter.is_option:
        if parameter.is_list:
            settings["action"] = "append"
        parser.add_argument(parameter.option, dest=parameter.name, required=parameter.is_required, **settings)
        return
    if parameter.is_list or not parameter.is_required:
        settings["nargs"] = ("+" if parameter.is_required else "*") if parameter.is_list else "?"
    parser.add_argument(parameter.name, **settings)


def _number_parser(kind: type[int | float], rule: Arg) -> Callable[[str], float]:
    bounds = (
        f"of at least {rule.minimum:g}"
        if rule.maximum == float("inf")
        else f"from {rule.minimum:g} to {rule.maximum:g}"
    )

    def parse(text: str) -> float:
        with suppress(ValueError):
            if kind is float or (text.isdecimal() and len(text) <= _MAX_DIGITS):
                number = kind(text)
                if rule.minimum <= number <= rule.maximum:
                    return number
        raise argparse.ArgumentTypeError(f"{text!r} is not a {'whole ' if kind is int else ''}number {bounds}")

    return parse
