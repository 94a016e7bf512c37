"""Profiles of coding agents: how to start a program without a terminal, and where its messages say what it does.

A profile is a YAML file (README.md); supporting a new program takes a new file and no code.
"""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from string import Template
from typing import Any, Literal, Self

from hivemind import fs
from hivemind.boundary import boundary
from hivemind.config import ProgramSettings
from hivemind.errors import UserError
from hivemind.frontmatter import ParsedText, parse, validate
from hivemind.minds.mind import MissingKey, Usage
from hivemind.sandbox import Hosts
from hivemind.schema import StrictModel, field_validator, model_validator

SHIPPED = ("claude", "codex", "gemini", "opencode", "qwen", "kimi", "goose")
_INHERITED_VARIABLES = (
    "PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"
)  # fmt: skip
_Paths = str | list[str]
_MAX_FIGURE = 2**53  # larger numbers are no counts
REFUSALS = ("401 unauthorized", "api key not valid", "incorrect api key", "invalid api key", "invalid x-api-key")
"""Words, in lower case, by which providers refuse a key or login."""


class AgentProgram(ProgramSettings):
    """`mind: {agent: codex, …}` or `mind: {acp: gemini, …}` in an agent's file. `acp` is a known program or the command line
    of any other that speaks the Agent Client Protocol."""

    agent: str | None = None
    acp: str | tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if (self.agent is None) == (not self.acp):
            raise ValueError("name the program by agent: NAME, acp: NAME or acp: [program, args…]")
        return self

    @property
    def name(self) -> str:
        """The name of the program in logs and prices."""
        acp = self.acp if isinstance(self.acp, str) or self.acp is None else Path(self.acp[0]).name
        return self.agent or acp or ""


class UsagePaths(StrictModel):
    """Where the usage figures are in a message. Each is the path of a value, or a list of paths with values to add."""

    tokens_in: _Paths = []
    tokens_out: _Paths = []
    cached: _Paths = []
    written: _Paths = []
    money: _Paths = []

    def read(self, message: Mapping[str, Any]) -> Usage:
        """Return the usage in a message. Only numbers ≥ 0 count."""

        def total(paths: _Paths) -> float:
            values = [value_at(message, path) for path in ([paths] if isinstance(paths, str) else paths)]
            numbers = (number for value in values for number in (value if isinstance(value, list) else [value]))
            return sum(n for n in numbers if type(n) is int or type(n) is float if 0 < n <= _MAX_FIGURE)

        return Usage(
            int(total(self.tokens_in)), int(total(self.tokens_out)), total(self.money), cached=int(total(self.cached)),
            written=int(total(self.written)),
        )  # fmt: skip


class LineRule(StrictModel):
    """A rule for the lines that a program prints. A line that matches all of `when` is an event of the rule's kind.

    Values are paths into the line's JSON, or `=text` for a literal text. With `each`, a path to a list, the rule applies to every
    element; paths call the element `one`.
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
    usage: UsagePaths | None = None
    part: str | None = None
    approval: str | None = None
    login: str | None = None
    problem: str | None = None


class AcpUsageRule(StrictModel):
    """A place of usage figures in the Agent Client Protocol: in the `answer` to a prompt, or in an `update`.

    `of` says what the figures count: `message`, one message (they are added up); `run`, all since the start of the process;
    `session`, all since the start of the session, across processes.
    """

    usage: UsagePaths
    of: Literal["message", "run", "session"] = "message"


_STANDARD_USAGE = (  # not checked: that would import pydantic
    AcpUsageRule.model_construct(
        usage=UsagePaths.model_construct(
            tokens_in=[f"answer.usage.{key}" for key in ("inputTokens", "cachedReadTokens", "cachedWriteTokens")],
            tokens_out="answer.usage.outputTokens",
            cached="answer.usage.cachedReadTokens",
            written="answer.usage.cachedWriteTokens",
        )
    ),
    AcpUsageRule.model_construct(usage=UsagePaths.model_construct(money="update.cost.amount"), of="session"),
)


class AcpRules(StrictModel):
    """How a program is run as an agent of the Agent Client Protocol. A value that is absent here is taken from the profile.

    `authenticate` is the method by which it takes its key, `output` the path of output that comes in pieces. `tool_names` are the
    paths of a call's name; a name that matches a pattern in `hive_tools` is a tool of the hive.
    """

    program: str | None = None
    install: str | None = None
    words: tuple[str, ...] = ("$args",)
    environment: dict[str, str] = {}
    files: dict[str, str] = {}
    mode: str = ""
    authenticate: str | None = None
    tool_names: tuple[str, ...] = ("title",)
    hive_tools: tuple[str, ...] = ("mcp__hivemind__*", "mcp_hivemind_*", "hivemind[_./:]*", "* (hivemind MCP Server)*")
    output: str | None = None
    usage: tuple[AcpUsageRule, ...] = _STANDARD_USAGE


class Profile(StrictModel):
    """A description of how to run one program.

    `words` are its arguments; `$resume`, `$session`, `$model` and `$args` expand to any number of them. `files` are written
    before it starts. `home` is the environment variable for its private home, `login_command` what a person types to log in.
    `servers` are the path of the file with the person's MCP servers and the key in it. `hive_tools` is a pattern for the
    program's names of the hive's tools. With `usage_of: session`, usage figures are cumulative over the runs of a session.
    `permission_kinds` maps its tools to kinds; with it, the program asks for permission by the tool `permission` of the hive's
    server. `protocol` is the default one. `reads` are the instruction files and skill folders that it reads itself.
    """

    program: str
    version: tuple[str, ...] = ("--version",)
    install: str = ""
    keys: tuple[str, ...] = ()
    login: str | None = None
    login_command: str | None = None
    servers: tuple[str, str] = ("", "")
    home: str = "HOME"
    environment: dict[str, str] = {}
    mode: str = ""
    boxed_mode: str | None = None
    hosts: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    files: dict[str, str] = {}
    hive_tools: str = ""
    permission_kinds: dict[str, str] = {}
    reads: tuple[str, ...] = ()
    usage_of: Literal["run", "session"] = "run"
    lines: tuple[LineRule, ...] = ()
    protocol: Literal["lines", "acp"] = "lines"
    acp: AcpRules = AcpRules.model_construct()

    @field_validator("hosts")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        Hosts.parse(value)
        return value

    @classmethod
    def of(cls, config: AgentProgram, root: Path | None = None, *, is_checked: bool = True) -> Profile:
        """Return the profile for the value of `mind:`, in the protocol that is used. `root` is the hive's folder. Raises
        UserError as `load` does."""
        if isinstance(config.acp, tuple):
            words = [word.replace("$", "$$") for word in config.acp[1:]]
            profile = cls.model_construct(program=config.acp[0], acp=AcpRules.model_construct(words=(*words, "$args")))
        else:
            profile = cls.load(config.name, root, is_checked=is_checked)
        changes: dict[str, Any] = {"protocol": profile.protocol if config.acp is None else "acp"}
        if changes["protocol"] == "acp":
            acp = profile.acp
            changes |= {name: getattr(acp, name) or getattr(profile, name) for name in ("program", "install")}
            changes |= {
                "words": acp.words,
                "files": acp.files,
                "mode": acp.mode,
                "boxed_mode": None,
                "permission_kinds": {},
            }
            changes["environment"] = {**profile.environment, **acp.environment}
        if config.program is not None:
            changes["program"] = config.program
        return profile.model_copy(update=changes)

    @classmethod
    def load(cls, name: str, root: Path | None = None, *, is_checked: bool = True) -> Profile:
        """Return the profile of that name: the hive's (agents/profiles/NAME.yaml, or a path from its `root`), else a shipped one.

        Raises UserError if it does not exist or cannot be read. Without `is_checked` a shipped profile is not validated, which is
        enough for `check_access`.
        """
        hive_profile = (root or Path()) / (name if name.endswith((".yaml", ".yml")) else f"agents/profiles/{name}.yaml")
        if hive_profile.is_file():
            with boundary("profile", hive_profile):
                return validate(cls, parse(hive_profile.read_text("utf-8"), hive_profile))
        if name not in SHIPPED:
            remedy = f"known: {', '.join(SHIPPED)}, and those in agents/profiles/"
            raise UserError(f"no profile of a coding agent is called {name!r}", remedy=remedy)
        text = (Path(__file__).parent / "programs" / f"{name}.yaml").read_text("utf-8")
        parsed = parse(text, f"{name}.yaml")
        if is_checked:
            return validate(cls, parsed)
        return cls.model_construct(**parsed.values | {"acp": AcpRules.model_construct(**parsed.values.get("acp", {}))})

    def find(self, root: Path | None = None) -> str:
        """Return the path of the program. A name with a slash is relative to the hive's `root`.

        Raises UserError, with the way to install it, if it is missing.
        """
        return find_program(self.program, root, self.install or None)

    def check_access(self, config: AgentProgram) -> None:
        """Raise MissingKey if the environment has no key or, with `login`, if no person is logged in."""
        remedy = self.access_hint(config)
        if config.login:
            if self.login is None or not os.path.exists(os.path.expanduser(self.login)):
                raise MissingKey(f"nobody is logged in to {self.program}", location=self.login, remedy=remedy)
        elif self.keys and not any(os.environ.get(name) for name in (*self.keys, *config.env)):
            raise MissingKey(f"{self.program} has no key", remedy=remedy)

    def own_servers(self, config: AgentProgram) -> dict[str, dict[str, Any]]:
        """Return the person's MCP servers that `mcp` names, as the program's configuration describes them. Raises UserError."""
        path, servers = Path(self.servers[0]).expanduser(), dict[str, Any]()
        if config.mcp and path.is_file():
            with boundary("settings", path):
                servers = (tomllib.loads if path.suffix == ".toml" else json.loads)(path.read_text("utf-8"))
                servers = servers.get(self.servers[1]) or {}
        if missing := [name for name in config.mcp if not isinstance(servers.get(name), dict)]:
            remedy = f"mcp: may name {', '.join(servers) or 'none'}"
            raise UserError(f"no MCP server is called {missing[0]!r}", location=self.servers[0] or None, remedy=remedy)
        return {name: servers[name] for name in config.mcp}

    def arguments(
        self, config: AgentProgram, relay_command: Sequence[str], files: Path, session: str | None
    ) -> list[str]:
        """Return the program's arguments.

        `relay_command` starts the MCP server with the hive's tools, `files` is the folder of the program's files. A `session`
        is resumed.
        """
        substitutions = self._substitutions(config, relay_command, files)
        servers = self.own_servers(config).items()
        toml = {name: json.dumps(entry, ensure_ascii=False, separators=(", ", " = ")) for name, entry in servers}
        lists: dict[str, Sequence[str]] = {
            "$args": config.args, "$resume": self.resume if session else (),
            "$session": [Template(word).substitute(id=session) for word in self.session if session],
            "$model": [Template(word).substitute(model=config.model) for word in self.model if config.model],
            "$servers": [word for name, entry in toml.items() for word in ("-c", f"mcp_servers.{name}={entry}")],
        }  # fmt: skip
        words = (lists[word] if word in lists else [Template(word).substitute(substitutions)] for word in self.words)
        return [*chain.from_iterable(words)]

    def prepare(
        self, config: AgentProgram, relay_command: Sequence[str], files: Path, *, is_boxed: bool
    ) -> dict[str, str]:
        """Write the profile's files into the folder `files`. Return the program's environment, with only its own keys.

        The program gets a private home in `files`, unless it uses the person's login without a box.
        """
        substitutions = self._substitutions(config, relay_command, files)
        for name, text in self.files.items():
            write_below(files, name, Template(text).substitute(substitutions))
        values = ((name, Template(text).substitute(substitutions)) for name, text in self.environment.items())
        own = {name: value for name, value in values if value}
        names = (*_INHERITED_VARIABLES, *(() if config.login else self.keys), *config.env)
        environment = own | {name: os.environ[name] for name in names if name in os.environ}
        if config.login and not is_boxed:
            return {"HOME": os.path.expanduser("~"), **environment}
        home = files / "home"
        home.mkdir(parents=True, exist_ok=True)
        return {"HOME": str(home), **({} if config.login else {self.home: str(home)}), **environment}

    def login_files(self, files: Path) -> dict[Path, Path]:
        """Create an empty file at the place of the login file in the program's private home. Return a mapping from its path to
        the person's login file, or {} if the profile names no login file."""
        if self.login is None:
            return {}
        path = Path(self.login).expanduser()
        name = path.relative_to(Path.home()) if path.is_relative_to(Path.home()) else Path(path.name)
        write_below(files, os.path.join("home", name), "")
        return {files / "home" / name: Path(os.path.realpath(path))}

    def _substitutions(self, config: AgentProgram, relay_command: Sequence[str], files: Path) -> dict[str, str]:
        command, *arguments = relay_command
        servers = self.own_servers(config).items()
        return {
            "servers": "".join(f"{json.dumps(name)}: {json.dumps(entry)}, " for name, entry in servers),
            "command": json.dumps(command), "arguments": json.dumps(arguments), "line": json.dumps([*relay_command]),
            "files": str(files), "mode": config.mode or self.mode, "model": config.model or "",
            "names": ",".join(("hivemind", *config.mcp)),
        }  # fmt: skip

    def access_hint(self, config: AgentProgram) -> str:
        """Return a text that says how a person provides a key or a login."""
        login = f"log in: {self.login_command}" if self.login_command else f"log in with {self.program}"
        if config.login or not self.keys:
            return login
        other = f", or {login}, and write login: true beside agent: in the agent's file" if self.login else ""
        return f"set {' or '.join(self.keys)}{other}"

    def sets_by_configuration(self, variable: str) -> bool:
        """Return True if the program's command line, environment or files contain `$mode` or `$model` (the `variable`)."""
        texts = (*self.words, *self.environment.values(), *self.files.values())
        return any(f"${variable}" in text for text in texts)


def program_config(argument: object) -> AgentProgram:
    """Validate the value of `mind:` in an agent's file, and return it. Raises UserError."""
    return validate(AgentProgram, ParsedText(dict(argument) if isinstance(argument, Mapping) else {}, {}, "mind"))


def find_program(name: str, root: Path | None, install: str | None = None) -> str:
    """Return the path of a program. A name with a slash is relative to the hive's `root`.

    Raises UserError if it is missing; `install` is the way to install it.
    """
    program_path = shutil.which(os.path.join(root or Path(), name) if "/" in name else name)
    if program_path is None:
        raise UserError(f"the program {name} was not found{'' if '/' in name else ' on the PATH'}", remedy=install)
    return os.path.abspath(program_path)


def check_program(argument: Mapping[str, Any], root: Path) -> None:
    """Raise UserError if a program, its key or its login is missing. Other settings are not checked, so pydantic is not
    imported: `status` calls this."""
    with boundary("mind"):
        acp = argument.get("acp")
        config = AgentProgram.model_construct(**{**argument, "acp": tuple(acp) if isinstance(acp, list) else acp})
        profile = Profile.of(config, root, is_checked=False)
        profile.find(root)
        profile.check_access(config)


def server_command(entry: Mapping[str, Any]) -> list[str]:
    """Return the command line of an MCP server; [] if it has an address instead."""
    command = entry.get("command", [])
    return [*([command] if isinstance(command, str) else command), *entry.get("args", ())]


def write_below(base: Path, name: str, text: str) -> None:
    """Write a file below `base`, where a program may have put links: refuse linked folders, and replace a link at the end."""
    path = Path(name)
    folder = fs.folder_below(base, path.parent.parts, create=True)
    try:
        fs.write(path, text, durable=False, folder_fd=folder)
    finally:
        os.close(folder)


def value_at(message: Any, path: str | None) -> Any:
    """Return the value at a dotted path in a message, or the literal text after `=`. Return None if the path leads nowhere."""
    if path is None:
        return None
    if path.startswith("="):
        return path[1:]
    head, _, remaining_path = path.partition(".")
    if not isinstance(message, dict):
        return None
    if head == "*":
        return [value_at(value, remaining_path) for value in message.values()]
    return value_at(message.get(head), remaining_path) if remaining_path else message.get(head)


def as_text(value: Any) -> str | None:
    """Return a value as text, or None for None. If it is a list of parts with texts, as some programs print results, the texts
    are joined."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, dict) and "text" in part for part in value):
        return "\n".join(str(part["text"]) for part in value)
    return json.dumps(value, ensure_ascii=False)
