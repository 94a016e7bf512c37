"""A command is a function: its signature declares the arguments, its docstring is the help, what it returns is shown.

Parameters before the `*` are arguments, those after it options; the docstring says below `arguments:` what each is for. The
parser, `--json` and shell completion are made from that.
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

from hivemind.cli.output import as_document, say
from hivemind.cli.streams import reader_may_go, standard_input
from hivemind.cli.text import one_line
from hivemind.errors import WRONG_USE, UserError
from hivemind.frozen import frozen
from hivemind.layout import HUMAN

INTERRUPTED = 130
_DIGITS = 18  # more fit into no counter
_ARGUMENT = re.compile(r"^ +(--[\w-]+)?(?: (?=\S))?(\S*)  (\S.*(?:\n {6}.*)*)", re.MULTILINE)
P = ParamSpec("P")
T = TypeVar("T")


@frozen
class Answer:
    """What a command found: `record` for `--json`, `lines` for people, its exit status; or the error that ended it."""

    record: Any
    lines: Iterable[str] = ()
    status: int = 0
    error: Exception | None = None
    form: Callable[[Any], str] = as_document

    def tell(self, as_json: bool) -> int:
        with reader_may_go():
            for line in [self.form(self.record)] if as_json else self.lines:
                say(line)
        if self.error is not None:
            raise self.error
        return self.status


@frozen
class Arg:
    """What a parameter's type does not say, in `Annotated[int, Arg(least=1)]`."""

    least: float = 0
    most: float = float("inf")
    read: Callable[[str], Any] | None = None  # makes the value of the text; raises argparse.ArgumentTypeError
    stdin: bool = False  # `-` stands for what standard input says
    default: Any = None  # of an argument before others that must be given
    bare: str | None = None  # what the option means without a value
    apart: str | None = None  # options that name the same group exclude each other
    file: bool = False  # names a file anywhere: only a person may say it


Attached = Annotated[list[str] | None, Arg(file=True)]
Box = Annotated[str, Arg(default="human")]  # whose mailbox; may be left out before the arguments that must be given
Positive = Annotated[int, Arg(least=1)]
Share = Annotated[float, Arg(most=1)]
Text = Annotated[str, Arg(stdin=True)]


@frozen
class Command:
    """`words` as they are typed, the function behind them, and what opens its first argument from `--hive`."""

    words: tuple[str, ...]
    function: Callable[..., Answer | int | None]
    opens: Callable[[str | None], Any]
    own_form: bool
    agents: bool
    """Whether an agent may run it of its own accord, in its own hive: it shows what all of them may see, or acts in its name."""

    def parameters(self) -> Iterator[Parameter]:
        """Its arguments and options, in their order."""
        return _parameters(self.function, list(inspect.signature(self.function).parameters.values())[1:])

    def run(self, asked: argparse.Namespace) -> int:
        """Open what it works on, call it, show its answer; the exit status. Raises UserError for what only a person may run."""
        if (author := os.environ.get("HIVEMIND_AUTHOR", HUMAN)) != HUMAN:
            self._check_agent(author, asked)
        as_json = getattr(asked, "json", False)
        opened = self.opens(getattr(asked, "hive", None))
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        told = {"json": as_json}
        for one in self.parameters():
            value = getattr(asked, one.name)
            told[one.name] = standard_input() if one.rule.stdin and value == "-" else value
        answer = _call(partial(self.function, opened), told)
        return answer.tell(as_json or self.own_form) if isinstance(answer, Answer) else answer or 0

    def _check_agent(self, agent: str, asked: argparse.Namespace) -> None:
        files = (one.option for one in self.parameters() if one.rule.file and getattr(asked, one.name))
        option = "--hive" if hasattr(asked, "hive") else next(files, "") if self.agents else ""
        if option or not self.agents:
            words = " ".join(("hivemind", *self.words, option)).rstrip()
            mend = "its tools do what an agent may do; a person can write it as a `run:` step"
            raise UserError(f"{words} is not for a command that an agent ({agent}) wrote", mend=mend)


@frozen
class Parameter:
    """An argument or, if it is `named`, an option: its type without None, whether there may be `many`, its default."""

    name: str
    kind: Any
    rule: Arg
    many: bool
    named: bool
    default: Any
    metavar: str
    help: str | None

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def option(self) -> str:
        return _option(self.name)


def _option(name: str) -> str:
    return "--" + name.rstrip("_").replace("_", "-")


def _parameters(function: Any, taken: Iterable[inspect.Parameter]) -> Iterator[Parameter]:
    """What is declared by `taken` parameters; those of a dataclass stand for its fields."""
    hints = _hints(function)
    docstrings = (one.__doc__ for one in getattr(function, "__mro__", [function]))
    told = [entry for one in docstrings for entry in _ARGUMENT.findall(_sections(one).get("arguments", ""))]
    options = {option: (metavar, text) for option, metavar, text in told if option}
    arguments = iter([(metavar, text) for option, metavar, text in told if not option])
    for one in taken:
        hint: Any = hints[one.name]
        if is_dataclass(hint):
            yield from _parameters(hint, inspect.signature(typing.cast(type, hint)).parameters.values())
        elif one.name != "json":
            kind, rule = _without_none(hint), Arg()
            if typing.get_origin(kind) is Annotated:
                kind, rule = typing.get_args(kind)
            kind = _without_none(kind)
            many, named = typing.get_origin(kind) is list, one.kind is one.KEYWORD_ONLY
            metavar, text = options.get(_option(one.name), ("", "")) if named else next(arguments, ("", ""))
            yield Parameter(
                one.name, typing.get_args(kind)[0] if many else kind, rule, many, named,
                one.default if rule.default is None else rule.default, metavar, " ".join(text.split()) or None,
            )  # fmt: skip


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (UnionType, typing.Union):
        return next(part for part in typing.get_args(kind) if part is not type(None))
    return kind


def _hints(function: Any) -> dict[str, Any]:
    """The types of parameters; those of the first ones would cost an import."""
    return typing.get_type_hints(function, localns={"Hive": Any, "Layout": Any}, include_extras=True)


def _call(function: Callable[..., Any], told: dict[str, Any]) -> Any:
    """Call with what its parameters name of what was told."""
    taken = inspect.signature(function).parameters
    hints = _hints(getattr(function, "func", function))
    more = {name: _call(hints[name], told) if is_dataclass(hints[name]) else told[name] for name in taken}
    return function(**more)


def command(
    words: str, opens: Callable[[str | None], T], *, own_form: bool = False, agents: bool = False
) -> Callable[[Callable[Concatenate[T, P], Answer | int | None]], Command]:
    """Make a command of a function; one of its `own_form` has no `--json`, one for `agents` they may run themselves."""

    def made(function: Callable[Concatenate[T, P], Answer | int | None]) -> Command:
        return Command(tuple(words.split()), function, opens, own_form, agents)

    return made


def commands_of(module: ModuleType) -> list[Command]:
    """The commands that a module declares, in their order."""
    return [one for one in vars(module).values() if isinstance(one, Command)]


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is one line that says how to find out more (spec 1, *Command line*)."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        # `--fol` must not mean --follow: a later option --folder would change what a script does.
        super().__init__(allow_abbrev=False, **settings)
        self._mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As usual, but a command's options may stand anywhere among its arguments, if none of them follow `--`."""
        if self._mixing or self._subparsers is not None or "--" in (args or ()):
            return super().parse_known_args(args, namespace)
        self._mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False

    def parse_whole(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The arguments. Unknown ones are reported by the command they were given to, with the nearest option."""
        arguments, unknown = self.parse_known_args(argv)
        if unknown:
            parser: Parser = getattr(arguments, "parser", self)
            options = [option for action in parser._actions for option in action.option_strings]
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{_meant(unknown[0].partition('=')[0], options)}")
        return typing.cast(argparse.Namespace, arguments)

    def error(self, message: str) -> NoReturn:
        message = message.replace("the following arguments are required:", "required:")
        self.exit(WRONG_USE, f"{self.prog}: {one_line(message)}; see: {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        hint = _meant(str(value), known) or f", there are {', '.join(known)}"
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no other name
            raise argparse.ArgumentError(None, f"there is no command {value!r}{hint}")
        raise argparse.ArgumentError(action, f"there is no {value!r}{hint}")


def _meant(text: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(text, known, 1)
    return f", did you mean {near[0]!r}?" if near else ""


def add_commands(parser: Parser, commands: Iterable[Command], common: Parser) -> None:
    """Add the parsers of commands. A group's help is the docstring of the module that declares its first command."""
    below: dict[tuple[str, ...], Any] = {(): parser.add_subparsers(title="commands", metavar="COMMAND", required=True)}
    for one in commands:
        for end in range(1, len(one.words)):
            path = one.words[:end]
            if path not in below:
                group = below[path[:-1]].add_parser(
                    path[-1], parents=[common], **_help(one.function.__globals__["__doc__"])
                )
                below[path] = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
        leaf = below[one.words[:-1]].add_parser(one.words[-1], parents=[common], **_help(one.function.__doc__))
        leaf.set_defaults(command=one, parser=leaf)
        apart: dict[str, Any] = {}
        for parameter in one.parameters():
            name = parameter.rule.apart
            if name is not None and name not in apart:
                apart[name] = leaf.add_mutually_exclusive_group()
            _add(leaf if name is None else apart[name], parameter)
        if not one.own_form:
            leaf.add_argument("--json", action="store_true", help="answer with JSON, for programs")


def _sections(docstring: str | None) -> dict[str, str]:
    """A docstring, and what it says below `arguments:` and `examples:`."""
    text, *parts = re.split(r"^(arguments|examples):\n", inspect.cleandoc(docstring or ""), flags=re.MULTILINE)
    return {"text": text.strip(), **dict(zip(parts[::2], parts[1::2], strict=True))}


def _help(docstring: str | None) -> dict[str, Any]:
    """A docstring as argparse takes it: its first sentence, what it says beyond that, its examples."""
    found = _sections(docstring)
    line = found["text"].partition("\n\n")[0].rstrip(".")
    epilog = f"examples:\n{found['examples']}" if "examples" in found else None
    return {"help": line[:1].lower() + line[1:], "description": found["text"], "epilog": epilog}


def _add(place: Any, one: Parameter) -> None:
    settings: dict[str, Any] = {"help": one.help, "default": None if one.required else one.default}
    if one.kind is bool:
        settings["action"] = "store_true"
    elif typing.get_origin(one.kind) is Literal:
        settings |= {"choices": typing.get_args(one.kind), "metavar": one.metavar or None}
    else:
        settings["metavar"] = one.metavar or one.name.rstrip("_").upper()
        settings["type"] = one.rule.read or (_number(one.kind, one.rule) if one.kind in (int, float) else None)
    if one.rule.bare is not None:
        settings |= {"nargs": "?", "const": one.rule.bare}
    if one.named:
        repeated = {"action": "append"} if one.many else {}
        place.add_argument(one.option, dest=one.name, required=one.required, **settings, **repeated)
        return
    if one.many or not one.required:
        settings["nargs"] = ("+" if one.required else "*") if one.many else "?"
    place.add_argument(one.name, **settings)


def _number(kind: type[int | float], rule: Arg) -> Callable[[str], float]:
    bounds = f"of at least {rule.least:g}" if rule.most == float("inf") else f"from {rule.least:g} to {rule.most:g}"

    def read(text: str) -> float:
        with suppress(ValueError):
            if kind is float or (text.isdecimal() and len(text) <= _DIGITS):
                value = kind(text)
                if rule.least <= value <= rule.most:
                    return value
        raise argparse.ArgumentTypeError(f"{text!r} is not a {'whole ' if kind is int else ''}number {bounds}")

    return read
