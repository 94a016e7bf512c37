"""Profiles of coding agents: how to start the program without a terminal, and how to read the lines that it prints.

A profile is a YAML file (README.md); supporting a new program takes a new file and no code.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Literal

from pydantic import Field

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.frontmatter import ParsedText, StrictModel, parse, validate
from hivemind.frozen import frozen
from hivemind.minds.mind import Usage

SHIPPED = ("claude", "codex", "gemini", "opencode")
_INHERITED_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
)
_Paths = str | list[str]
_TEXT_FIELDS = ("session", "text", "piece", "tool", "id", "result", "part", "approval", "problem")


class AgentProgram(StrictModel):
    """`mind: {agent: codex, …}` in an agent's file.

    `env` names environment variables that the program inherits. With `login` it uses the person's home and login instead
    of a key. After `quiet_s` without output it is ended.
    """

    agent: str
    model: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    login: bool = False
    sandbox: str | None = None
    max_turns: int | None = Field(None, ge=1)
    timeout_s: float = Field(3600, gt=0)
    quiet_s: float = Field(900, gt=0)


class _UsageOf(StrictModel):
    tokens_in: _Paths = []
    tokens_out: _Paths = []
    cached: _Paths = []
    written: _Paths = []
    money: _Paths = []


class _Rule(StrictModel):
    """The meaning of a line that matches all of `when`.

    Values are paths into the line's JSON, or `=text` for a literal text. With `each`, the rule applies to every element of
    that list; the element is called `one`.
    """

    when: dict[str, Any]
    each: str | None = None
    session: str | None = None
    text: str | None = None
    piece: str | None = None
    tool: str | None = None
    id: str | None = None
    arguments: str | dict[str, str] = {}
    result: str | None = None
    failed: str | None = None
    usage: _UsageOf | None = None
    part: str | None = None
    approval: str | None = None
    problem: str | None = None


@frozen
class OutputLine:
    """The content of one line of a program's output, by one rule; absent fields are None.

    `piece` is a part of a text. `tool` is a call of one of the program's own tools, identified by `id`, with its `result` if
    the line includes it. `usage` covers the whole run, or its `part`. `approval` is the action that the program asks to allow.
    """

    session: str | None = None
    text: str | None = None
    piece: str | None = None
    tool: str | None = None
    id: str | None = None
    arguments: Mapping[str, Any] | None = None
    result: str | None = None
    failed: bool = False
    usage: Usage | None = None
    part: str | None = None
    approval: str | None = None
    problem: str | None = None


class Profile(StrictModel):
    """A description of how to run one program.

    `words` are its arguments; `$resume`, `$session`, `$model` and `$args` expand to any number of them. `files` are written
    before it starts. `home` is the environment variable for its private home. `hive_tools` is a pattern for its names of
    the hive's tools. With `usage_of: session` its usage figures are cumulative over the runs of a session. `reads` are the
    files of instructions and the folders of skills that it reads itself.
    """

    program: str
    version: tuple[str, ...] = ("--version",)
    install: str = ""
    keys: tuple[str, ...] = ()
    login: str | None = None
    home: str
    environment: dict[str, str] = {}
    sandbox: str = ""
    words: tuple[str, ...]
    resume: tuple[str, ...] = ()
    session: tuple[str, ...]
    model: tuple[str, ...] = ()
    files: dict[str, str] = {}
    hive_tools: str = ""
    reads: tuple[str, ...] = ()
    usage_of: Literal["run", "session"] = "run"
    lines: tuple[_Rule, ...]

    @classmethod
    def load(cls, name: str, root: Path | None = None) -> Profile:
        """Load a profile by name: the hive's (agents/profiles/NAME.yaml, or a path from its root), else a shipped one.

        Raises UserError if it does not exist or cannot be read.
        """
        hive_profile = (root or Path()) / (name if name.endswith((".yaml", ".yml")) else f"agents/profiles/{name}.yaml")
        if hive_profile.is_file():
            with boundary("profile", hive_profile):
                return validate(cls, parse(hive_profile.read_text("utf-8"), hive_profile))
        if name not in SHIPPED:
            remedy = f"known: {', '.join(SHIPPED)}, and those in agents/profiles/"
            raise UserError(f"no profile of a coding agent is called {name!r}", remedy=remedy)
        text = (resources.files("hivemind.minds.agents") / f"{name}.yaml").read_text("utf-8")
        return validate(cls, parse(text, f"{name}.yaml"))

    def find(self, root: Path | None = None) -> str:
        """Return the path of the program. A name with a slash is relative to the hive's `root`.

        Raises UserError, with the way to install it, if it is missing.
        """
        name = os.path.join(root or Path(), self.program) if "/" in self.program else self.program
        program_path = shutil.which(name)
        if program_path is None:
            location = "" if "/" in self.program else " on the PATH"
            raise UserError(f"the program {self.program} was not found{location}", remedy=self.install or None)
        return os.path.abspath(program_path)

    def check_access(self, config: AgentProgram) -> None:
        """Raise UserError if the key is missing from the environment or, with `login`, if no person is logged in."""
        if config.login:
            if self.login is None or not os.path.exists(os.path.expanduser(self.login)):
                raise UserError(
                    f"nobody is logged in to {self.program}", location=self.login, remedy=f"log in with {self.program}"
                )
        elif self.keys and not any(os.environ.get(name) for name in (*self.keys, *config.env)):
            remedy = f"set {' or '.join(self.keys)}, or log in with {self.program} and set login: true"
            raise UserError(f"{self.program} has no key", remedy=remedy)

    def arguments(
        self, config: AgentProgram, relay_command: Sequence[str], files: Path, session: str | None
    ) -> list[str]:
        """Return the program's arguments.

        `relay_command` starts the MCP server with the hive's tools, `files` is the folder of the program's files. A `session`
        is resumed.
        """
        substitutions = self._substitutions(config, relay_command, files)
        lists = {
            "$resume": self.resume if session else (),
            "$session": [Template(argument).substitute(id=session) for argument in self.session] if session else (),
            "$model": [Template(argument).substitute(model=config.model) for argument in self.model]
            if config.model
            else (),
            "$args": config.args,
        }
        program_arguments: list[str] = []
        for word in self.words:
            program_arguments += lists[word] if word in lists else [Template(word).substitute(substitutions)]
        return program_arguments

    def prepare(self, config: AgentProgram, relay_command: Sequence[str], files: Path) -> dict[str, str]:
        """Write the profile's files into `files`. Return the program's environment, with no keys but its own."""
        substitutions = self._substitutions(config, relay_command, files)
        for name, text in self.files.items():
            path = files / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(text).substitute(substitutions), "utf-8")
        names = (*_INHERITED_VARIABLES, *(() if config.login else self.keys), *config.env)
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        profile_environment = {
            name: Template(text).substitute(substitutions) for name, text in self.environment.items()
        }
        if config.login:
            return {"HOME": os.path.expanduser("~"), **inherited, **profile_environment}
        home = files / "home"
        home.mkdir(parents=True, exist_ok=True)
        return {"HOME": str(home), self.home: str(home), **inherited, **profile_environment}

    def _substitutions(self, config: AgentProgram, relay_command: Sequence[str], files: Path) -> dict[str, str]:
        command, *arguments = relay_command
        return {
            "command": json.dumps(command), "arguments": json.dumps(arguments), "line": json.dumps([*relay_command]),
            "files": str(files), "sandbox": config.sandbox or self.sandbox,
        }  # fmt: skip

    def read(self, line: str) -> Iterator[OutputLine]:
        """Yield the contents of a line of output. Lines that are not JSON or match no rule are skipped."""
        try:
            with boundary("line of a program's"):
                message = dict(json.loads(line))
        except Unreadable:
            return
        for rule in self.lines:
            for element in _elements(message, rule.each):
                if all(_value_at(element, path) == value for path, value in rule.when.items()):
                    output_line = _apply_rule(rule, element)
                    if output_line.tool is None or not (
                        self.hive_tools and fnmatchcase(output_line.tool, self.hive_tools)
                    ):
                        yield output_line


def program_config(argument: object) -> AgentProgram:
    """Validate the value of `mind:` in an agent's file. Raises UserError."""
    values = {"agent": argument} if isinstance(argument, str) else argument
    return validate(AgentProgram, ParsedText(dict(values) if isinstance(values, Mapping) else {}, {}, "mind"))


def _elements(message: dict[str, Any], path: str | None) -> Iterator[dict[str, Any]]:
    if path is None:
        yield message
        return
    element_list = _value_at(message, path)
    for element in element_list if isinstance(element_list, list) else ():
        yield {**message, "one": element}


def _value_at(message: Any, path: str | None) -> Any:
    """Return the value at a path, or None."""
    if path is None:
        return None
    if path.startswith("="):
        return path[1:]
    head, _, remaining_path = path.partition(".")
    if not isinstance(message, dict):
        return None
    if head == "*":
        return [_value_at(value, remaining_path) for value in message.values()]
    return _value_at(message.get(head), remaining_path) if remaining_path else message.get(head)


def _text(value: Any) -> str | None:
    """Format a value as text. Of a list of parts, which some programs print as results, join the texts."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, dict) and "text" in part for part in value):
        return "\n".join(str(part["text"]) for part in value)
    return json.dumps(value, ensure_ascii=False)


def _apply_rule(rule: _Rule, message: dict[str, Any]) -> OutputLine:
    argument_paths = rule.arguments
    arguments = (
        {key: _value_at(message, path) for key, path in argument_paths.items()}
        if isinstance(argument_paths, dict)
        else _value_at(message, argument_paths)
    )
    texts = {name: _text(_value_at(message, getattr(rule, name))) for name in _TEXT_FIELDS}
    has_failed = _value_at(message, rule.failed) not in (None, False, 0, "")
    argument_values = arguments if isinstance(arguments, dict) else {}
    return OutputLine(**texts, arguments=argument_values, failed=has_failed, usage=_usage(rule.usage, message))


def _usage(rule: _UsageOf | None, message: dict[str, Any]) -> Usage | None:
    if rule is None:
        return None

    def total(paths: _Paths) -> float:
        values = [_value_at(message, path) for path in ([paths] if isinstance(paths, str) else paths)]
        numbers = (number for value in values for number in (value if isinstance(value, list) else [value]))
        return sum(
            number
            for number in numbers
            if isinstance(number, int | float) and not isinstance(number, bool) and number > 0
        )

    return Usage(
        int(total(rule.tokens_in)), int(total(rule.tokens_out)), total(rule.money), cached=int(total(rule.cached)),
        written=int(total(rule.written)),
    )  # fmt: skip
