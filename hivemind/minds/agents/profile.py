"""Profiles of coding agents: how such a program is started without a terminal, and what the lines that it prints say (spec 13).

A profile is a YAML file (README.md), so that a new program is a new file and no code.
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

__all__ = ["AgentProgram", "Line", "Profile", "program_config"]

SHIPPED = ("claude", "codex", "gemini", "opencode")
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
_Paths = str | list[str]
_TEXTS = ("session", "text", "piece", "tool", "id", "result", "part", "approval", "problem")


class AgentProgram(StrictModel):
    """`mind: {agent: codex, …}` in an agent's file. `env`: names of variables that are passed on to the program; `login`: it uses
    the person's own home and login instead of a key; `quiet_s`: it is ended when it prints nothing for so long."""

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
    """What a line means where all of `when` holds. Values are paths into the line's JSON; `=text` stands for itself, and with
    `each` the rule is applied to each element of that list, which is `one`."""

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
class Line:
    """What one line of a program's output says, by one rule; None for what it does not say.

    `piece` is a part of a text, `tool` a call of a tool of the program's own, known by `id`, with its `result` if that is there
    too. `usage` is that of the whole run, or of its `part`; `approval` is what it waits to be allowed.
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
    """How one program is run. `words` are its arguments, of which `$resume`, `$session`, `$model` and `$args` stand for any
    number; `files` are written before it is started; `home` is the variable that names its private home; `hive_tools` is a
    pattern of the names that it has for the hive's own tools. With `usage_of: session` it counts on from run to run."""

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
    usage_of: Literal["run", "session"] = "run"
    lines: tuple[_Rule, ...]

    @classmethod
    def load(cls, name: str, root: Path | None = None) -> Profile:
        """The profile of that name: a hive's own (agents/profiles/NAME.yaml, or a path from its root), or one that ships.

        Raises UserError if there is none, or for one that cannot be read.
        """
        own = (root or Path()) / (name if name.endswith((".yaml", ".yml")) else f"agents/profiles/{name}.yaml")
        if own.is_file():
            with boundary("profile", own):
                return validate(cls, parse(own.read_text("utf-8"), own))
        if name not in SHIPPED:
            mend = f"known: {', '.join(SHIPPED)}, and those in agents/profiles/"
            raise UserError(f"there is no profile of a coding agent {name!r}", remedy=mend)
        text = (resources.files("hivemind.minds.agents") / f"{name}.yaml").read_text("utf-8")
        return validate(cls, parse(text, f"{name}.yaml"))

    def find(self, root: Path | None = None) -> str:
        """The path of the program; one that is named with a slash lies below the hive's `root`. Raises UserError that says
        how it is installed."""
        name = os.path.join(root or Path(), self.program) if "/" in self.program else self.program
        found = shutil.which(name)
        if found is None:
            where = "" if "/" in self.program else " on the PATH"
            raise UserError(f"there is no program {self.program}{where}", remedy=self.install or None)
        return os.path.abspath(found)

    def check_access(self, config: AgentProgram) -> None:
        """Raises UserError if there is neither a key in the environment nor, with `login`, a login."""
        if config.login:
            if self.login is None or not os.path.exists(os.path.expanduser(self.login)):
                raise UserError(
                    f"nobody is logged in to {self.program}", location=self.login, remedy=f"log in with {self.program}"
                )
        elif self.keys and not any(os.environ.get(name) for name in (*self.keys, *config.env)):
            mend = f"set {' or '.join(self.keys)}, or log in with {self.program} and set login: true"
            raise UserError(f"{self.program} has no key", remedy=mend)

    def arguments(self, config: AgentProgram, line: Sequence[str], files: Path, session: str | None) -> list[str]:
        """The program's arguments. `line` starts the MCP server that has the hive's tools, `files` is where its files lie;
        with a `session` that one is gone on with."""
        told = self._told(config, line, files)
        lists = {
            "$resume": self.resume if session else (),
            "$session": [Template(one).substitute(id=session) for one in self.session] if session else (),
            "$model": [Template(one).substitute(model=config.model) for one in self.model] if config.model else (),
            "$args": config.args,
        }
        found: list[str] = []
        for word in self.words:
            found += lists[word] if word in lists else [Template(word).substitute(told)]
        return found

    def prepare(self, config: AgentProgram, line: Sequence[str], files: Path) -> dict[str, str]:
        """Write the files of the profile below `files`, and return the program's environment: its key and no other."""
        told = self._told(config, line, files)
        for name, text in self.files.items():
            path = files / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(text).substitute(told), "utf-8")
        names = (*_PASSED_ON, *(() if config.login else self.keys), *config.env)
        passed = {name: os.environ[name] for name in names if name in os.environ}
        own = {name: Template(text).substitute(told) for name, text in self.environment.items()}
        if config.login:
            return {"HOME": os.path.expanduser("~"), **passed, **own}
        home = files / "home"
        home.mkdir(parents=True, exist_ok=True)
        return {"HOME": str(home), self.home: str(home), **passed, **own}

    def _told(self, config: AgentProgram, line: Sequence[str], files: Path) -> dict[str, str]:
        command, *arguments = line
        return {
            "command": json.dumps(command), "arguments": json.dumps(arguments), "line": json.dumps([*line]),
            "files": str(files), "sandbox": config.sandbox or self.sandbox,
        }  # fmt: skip

    def read(self, line: str) -> Iterator[Line]:
        """What a line of the program's output says; nothing if it is not JSON, or is of no kind that is known."""
        try:
            with boundary("line of a program's"):
                told = dict(json.loads(line))
        except Unreadable:
            return
        for rule in self.lines:
            for here in _each(told, rule.each):
                if all(_at(here, path) == value for path, value in rule.when.items()):
                    found = _line(rule, here)
                    if found.tool is None or not (self.hive_tools and fnmatchcase(found.tool, self.hive_tools)):
                        yield found


def program_config(argument: object) -> AgentProgram:
    """What an agent's file says under `mind:`. Raises UserError."""
    values = {"agent": argument} if isinstance(argument, str) else argument
    return validate(AgentProgram, ParsedText(dict(values) if isinstance(values, Mapping) else {}, {}, "mind"))


def _each(told: dict[str, Any], path: str | None) -> Iterator[dict[str, Any]]:
    if path is None:
        yield told
        return
    found = _at(told, path)
    for one in found if isinstance(found, list) else ():
        yield {**told, "one": one}


def _at(told: Any, path: str | None) -> Any:
    """The value at a path; None if there is none."""
    if path is None:
        return None
    if path.startswith("="):
        return path[1:]
    head, _, rest = path.partition(".")
    if not isinstance(told, dict):
        return None
    if head == "*":
        return [_at(value, rest) for value in told.values()]
    return _at(told.get(head), rest) if rest else told.get(head)


def _text(value: Any) -> str | None:
    """A value as text: a list of parts, as some programs print results, by their texts."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, dict) and "text" in one for one in value):
        return "\n".join(str(one["text"]) for one in value)
    return json.dumps(value, ensure_ascii=False)


def _line(rule: _Rule, told: dict[str, Any]) -> Line:
    named = rule.arguments
    arguments = {key: _at(told, path) for key, path in named.items()} if isinstance(named, dict) else _at(told, named)
    texts = {name: _text(_at(told, getattr(rule, name))) for name in _TEXTS}
    failed = _at(told, rule.failed) not in (None, False, 0, "")
    given = arguments if isinstance(arguments, dict) else {}
    return Line(**texts, arguments=given, failed=failed, usage=_usage(rule.usage, told))


def _usage(rule: _UsageOf | None, told: dict[str, Any]) -> Usage | None:
    if rule is None:
        return None

    def total(paths: _Paths) -> float:
        values = [_at(told, path) for path in ([paths] if isinstance(paths, str) else paths)]
        numbers = (one for value in values for one in (value if isinstance(value, list) else [value]))
        return sum(one for one in numbers if isinstance(one, int | float) and not isinstance(one, bool) and one > 0)

    return Usage(
        int(total(rule.tokens_in)), int(total(rule.tokens_out)), total(rule.money), cached=int(total(rule.cached)),
        written=int(total(rule.written)),
    )  # fmt: skip
