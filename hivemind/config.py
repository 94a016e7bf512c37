"""The settings in hive.yaml and agents/*.yaml, validated."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from hivemind.boundary import boundary, read_input
from hivemind.errors import UserError
from hivemind.frontmatter import MAX_BYTES, parse, validate
from hivemind.frozen import frozen
from hivemind.fs import load_record, set_durability, write
from hivemind.fs.records import as_line
from hivemind.layout import EXCHANGE, HUMAN, LANDING, METRICS, POSTMASTER, TELEMETRY, Layout
from hivemind.names import check_name, is_name
from hivemind.outcome import Outcome
from hivemind.sandbox import BoxSettings, Hosts
from hivemind.schema import BaseModel, BeforeValidator, Field, StrictModel, field_validator, model_validator
from hivemind.tokens import DEFAULT_ENCODING, MIN_CONTEXT

GROUP_FOLDER_MODE = 0o2770
"""The mode of a folder that a group shares: new files in the folder belong to the group too."""

_M = TypeVar("_M", bound=BaseModel)

_RECORD = "settings", 1

RESERVED_NAMES = {
    HUMAN: "the operator's name",
    EXCHANGE: "the name of the process that links hives",
    LANDING: "the name of the process that lands branches",
    METRICS: "the name of the process that answers a monitoring system",
    TELEMETRY: "the name of the process that sends traces",
    POSTMASTER: "the sender of the hive's own letters",
}
"""Names that no agent may have, with the reasons."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_word(value: Any) -> Any:
    """Return the words `off` and `on` for False and True, which YAML makes of these words without quotes. Return other values
    unchanged.
    """
    return ("on" if value else "off") if isinstance(value, bool) else value


_Words = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


def _as_push(value: Any) -> Any:
    return {"remote": value} if isinstance(value, str) else value


class PushConfig(StrictModel):
    """The git remote that gets each landing (merge of finished work).

    With `as: branch` it gets each task's branch instead, for a person to request its merge.
    """

    remote: str = Field(pattern=r"^\w[\w-]*(?:[./]\w[\w-]*)*$")
    kind: Literal["target", "branch"] = Field("target", alias="as")


class RootConfig(StrictModel):
    """A folder outside the hive that agents may read, and with `write` also write.

    With `worktree` it is a git repository, in which each agent works in its own worktree, on a branch per task. A finished branch
    is merged into (lands in) `branch` once `check` passes on the merged result. `branch` defaults to the one that is checked out
    when the root is first used.
    """

    path: str
    write: bool = False
    worktree: bool = False
    worktrees: Literal["kept", "fresh"] = "kept"
    setup: _Words = ()
    setup_when: _Words = ()
    branch: str | None = Field(None, min_length=1)
    land: Annotated[Literal["auto", "ask", "off"], BeforeValidator(_as_word)] = "ask"
    land_tries: int = Field(3, ge=1)
    how: Literal["merge", "squash", "rebase"] = "merge"
    check: _Words = ()
    check_timeout_s: float = Field(1800, gt=0, allow_inf_nan=False)
    check_box: Literal["auto", "none"] = "auto"
    check_network: Annotated[Literal["off", "open"], BeforeValidator(_as_word)] = "off"
    check_subtasks: bool = False
    protect: _Words = ()
    sign: Annotated[Literal["off", "wait"], BeforeValidator(_as_word)] = "off"
    push: Annotated[PushConfig | None, BeforeValidator(_as_push)] = None


def _as_root(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class TokenBudget(StrictModel):
    tokens: int | None = Field(None, ge=0)
    money: float | None = Field(None, ge=0)


class TaskTokenBudget(TokenBudget):
    """The budget of a task. With `tokens: null` there is no bound. Without the key, the default bound applies."""

    tokens: int | None = Field(5_000_000, ge=0)


class DayTokenBudget(TokenBudget):
    """The budget of a day. With `tokens: null` there is no bound. Without the key, the default bound applies."""

    tokens: int | None = Field(50_000_000, ge=0)


class BudgetConfig(StrictModel):
    """The budget of an agent, for each task with its subtasks and for each day, in tokens and in money (the currency of
    `prices`)."""

    task: TaskTokenBudget = TaskTokenBudget.model_construct()
    day: TokenBudget = TokenBudget.model_construct()


class SharedBudgetConfig(StrictModel):
    """The budget of all agents of a hive together, per day."""

    day: DayTokenBudget = DayTokenBudget.model_construct()


def _or_default(value: Any) -> Any:
    return {} if value is None else value


class EmbedderConfig(StrictModel):
    """An endpoint for OpenAI's embeddings requests. The environment variable `key_env` has the endpoint's key."""

    url: str = Field(pattern=r"^https?://[^/\s]")
    model: str = Field(min_length=1)
    dimension: int = Field(ge=1, le=65_536, strict=True)
    key_env: str | None = None


class MailConfig(StrictModel):
    """The treatment of a letter from an unknown address: show it to a person, bounce it, or let an agent answer it.
    Letters that agents send to an unknown address stay in the mailbox `human`, because the hive sends no mail to the
    outside."""

    unknown_sender: Literal["needs_you", "bounce", "answer"] = "needs_you"


class PriceConfig(StrictModel):
    """The prices of a million tokens: `in` for sent tokens, `out` for answers, `cached` for sent tokens read from the
    provider's cache (default: a tenth of `in`), `written` for tokens written to that cache (default: a quarter more
    than `in`)."""

    tokens_in: float = Field(alias="in", ge=0, allow_inf_nan=False)
    tokens_out: float = Field(alias="out", ge=0, allow_inf_nan=False)
    cached: float | None = Field(None, ge=0, allow_inf_nan=False)
    written: float | None = Field(None, ge=0, allow_inf_nan=False)


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def _as_seconds(value: Any) -> Any:
    """Convert `10m` to 600.0 (seconds) and `never` to None. Return a number unchanged. Raises ValueError for another text."""
    if value == "never":
        return None
    if isinstance(value, str):
        if value[-1:] not in _UNITS or not value[:-1].strip().isdecimal():
            raise ValueError("must be a number of seconds, or like 90s, 10m, 2h, 90d, 8w, or never")
        return int(value[:-1]) * _UNITS[value[-1]]
    return value


_Seconds = Annotated[float | None, BeforeValidator(_as_seconds)]


class WebhookConfig(StrictModel):
    """A webhook that gets a POST request for each notice, signed as in Standard Webhooks with the secret in the
    environment variable `secret_env`."""

    url: str = Field(pattern=r"^https?://[^/\s]")
    secret_env: str | None = None


class NotifyConfig(StrictModel):
    """The events of people's tasks that cause a notice, and the ways to send it: a letter to `human`, a program, a
    webhook."""

    events: Annotated[tuple[Outcome, ...], BeforeValidator(_as_list)] = ("failed",)
    letter: bool = True
    program: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    webhook: WebhookConfig | None = None


class McpConfig(StrictModel):
    """Settings of members (agents with an MCP client as their mind). The tasks of an absent member return to the inbox after
    `return_after` seconds; None: never.
    """

    return_after: _Seconds = Field(600.0, ge=0)


class TelemetryConfig(StrictModel):
    """The collector that gets the traces of tasks, and whether it gets the texts of tasks, minds and tools too."""

    endpoint: str | None = Field(None, pattern=r"^https?://[^/\s]")
    content: bool = False


class RetentionConfig(StrictModel):
    """The age at which tasks, mail and journal segments are archived: seconds, or `90d`; None: never."""

    tasks: _Seconds = Field(None, ge=0)
    mail: _Seconds = Field(None, ge=0)
    journal: _Seconds = Field(None, ge=0)

    @property
    def is_set(self) -> bool:
        return any(age is not None for age in (self.tasks, self.mail, self.journal))


class LimitsConfig(StrictModel):
    """The limits of one command of an agent."""

    wall_s: float = Field(600, gt=0)
    cpu_s: float = Field(600, gt=0)
    memory_mb: int = Field(4096, gt=0)
    output_bytes: int = Field(1_048_576, gt=0)


class AgentConfig(StrictModel):
    """The settings of one agents/<agent>.yaml. `agents:` in hive.yaml can set defaults for any key."""

    role: str | None = None
    claims: Literal["any", "named"] = "any"
    lane: str | None = None
    mind: str | dict[str, Any] = "extractive"
    rom: list[str] = []
    tools: list[str] | None = None
    toolset: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    max_tokens: int = Field(100_000, ge=MIN_CONTEXT)
    max_turns: int = Field(100, ge=1)
    graph: Literal["rules", "model"] = "rules"
    budget: BudgetConfig = BudgetConfig.model_construct()
    prices: PriceConfig | None = None
    view: Literal["focus_only", "smart", "explore", "audit", "full"] = "smart"
    commands: list[str] = []
    shell: bool = False
    limits: LimitsConfig = LimitsConfig.model_construct()
    sandbox: Literal["auto", "bwrap", "none"] = "auto"
    network: Literal["open"] | tuple[str, ...] = ()
    replicas: int = Field(1, ge=1, le=1000)
    env: dict[str, str] = {}

    @property
    def outside(self) -> bool:
        """True for `mind: mcp`: the agent is a member: its mind is a program outside that connects with `hivemind mcp`."""
        return self.mind == "mcp"

    @property
    def program(self) -> dict[str, Any]:
        """The value of `mind:`, as a mapping, if the mind is a coding agent that the hive runs; otherwise {}.

        `agent:NAME` becomes `{"agent": "NAME"}`.
        """
        mind = self.mind
        if isinstance(mind, str):
            kind, _, name = map(str.strip, mind.partition(":"))
            mind = {kind: name}
        return mind if "agent" in mind or "acp" in mind else {}

    @property
    def runs_program(self) -> bool:
        """True if the mind is a coding agent that the hive runs."""
        return bool(self.program)

    @property
    def box(self) -> BoxSettings:
        """The box of the agent's program."""
        return BoxSettings(self.sandbox, self.network)

    @property
    def lacks_box(self) -> bool:
        """True if the agent's program should run in a box, and bubblewrap does not run here."""
        return self.runs_program and self.sandbox == "auto" and not self.box.is_boxed

    @property
    def has_boxed_commands(self) -> bool:
        """True if the agent's commands run in a box: with `bwrap`, and with `auto` if a coding agent in a box runs them.

        Commands outside of a box would let the coding agent leave its own.
        """
        return self.sandbox == "bwrap" or (self.runs_program and self.box.is_boxed)

    @property
    def may_write_unseen(self) -> bool:
        """True if the agent's program or commands run outside of a box: they may write any file that the person may."""
        runs_outside = self.runs_program and not self.box.is_boxed
        return runs_outside or (bool(self.shell or self.commands) and not self.has_boxed_commands)

    @field_validator("role")
    @classmethod
    def _role(cls, value: str | None) -> str | None:
        return None if value is None else _checked_name(value, "role")

    @field_validator("sandbox", mode="before")
    @classmethod
    def _sandbox(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in ("auto", "bwrap", "none"):
            raise ValueError(f"write auto, bwrap or none; a program's own way of approving is mind: {{mode: {value}}}")
        return value

    @field_validator("network", mode="before")
    @classmethod
    def _network(cls, value: Any) -> Any:
        if value == "open":
            return value
        entries = _as_list(value)
        Hosts.parse(entries if isinstance(entries, list) else ())
        return entries

    @field_validator("env", mode="before")
    @classmethod
    def _env(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: str(item) if isinstance(item, int | float) else item for key, item in value.items()}
        return value


def _checked_name(value: str, description: str) -> str:
    try:
        return check_name(value, description)
    except UserError as error:
        raise ValueError(str(error)) from None


class ProgramSettings(StrictModel):
    """Settings of a coding agent's program: `mind:` in an agent's file, or for all agents `minds:` in hive.yaml.

    `program` is another path of the program, `mode` its own way of approving. `env` names environment variables that the
    program inherits, `mcp` the person's MCP servers, by their names in the program's configuration. With `login` the program
    uses the person's home and login instead of a key. It is ended after `quiet_s` without output. It waits `ask_s` for the
    operator's answer to a request for permission; after that the task waits.
    """

    program: str | None = None
    model: str | None = None
    mode: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    login: bool = False
    permissions: dict[
        Literal["read", "edit", "execute", "fetch", "other"], Literal["allow", "ask", "deny", "commands"]
    ] = {}
    max_turns: int | None = Field(None, ge=1)
    timeout_s: float = Field(3600, gt=0)
    quiet_s: float = Field(900, gt=0)
    ask_s: float = Field(45, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _mode(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "sandbox" in values:
            value = values["sandbox"]
            is_box = value in ("auto", "bwrap", "none")
            key = f"sandbox: {value} beside mind" if is_box else f"mind: {{mode: {value}}}"
            raise ValueError(f"sandbox is no key of mind: write {key}")
        return values


class HiveConfig(StrictModel):
    """The settings of hive.yaml. Times are in the unit of the name's suffix, sizes in bytes."""

    version: Literal[1] = 1
    workspace: str = Field("hive", min_length=1, max_length=128)
    guard: str | None = None
    access: Literal["private", "group"] = "private"
    durability: Literal["full", "relaxed"] = "full"
    watch: Literal["auto", "inotify", "poll"] = "auto"
    settle_ms: int = Field(250, ge=0)
    heartbeat_s: float = Field(10.0, gt=0)
    hang_after: float = Field(60.0, gt=0)
    max_task_bytes: int = Field(1_048_576, ge=1)
    max_active: int = Field(8, ge=1)
    no_text: Literal["fail", "ask"] = "fail"
    review_timeout_s: float = Field(60.0, gt=0)
    encoding: str = DEFAULT_ENCODING
    embedder: Literal["auto", "none", "minilm", "hashing"] | EmbedderConfig = "auto"
    memory: str | None = None
    roots: list[Annotated[RootConfig, BeforeValidator(_as_root)]] = []
    mail: MailConfig = MailConfig.model_construct()
    mcp: McpConfig = McpConfig.model_construct()
    notify: NotifyConfig = NotifyConfig.model_construct()
    retention: Annotated[RetentionConfig, BeforeValidator(_or_default)] = RetentionConfig.model_construct()
    telemetry: Annotated[TelemetryConfig, BeforeValidator(_or_default)] = TelemetryConfig.model_construct()
    zone: str = "UTC"
    lessons: Annotated[Literal["ask", "rules", "off"], BeforeValidator(_as_word)] = "ask"
    relevance: Annotated[Literal["on", "learn", "off"], BeforeValidator(_as_word)] = "off"
    prices: dict[str, PriceConfig] = {}
    budget: Annotated[SharedBudgetConfig, BeforeValidator(_or_default)] = SharedBudgetConfig.model_construct()
    agents: dict[str, Any] = {}
    minds: dict[str, ProgramSettings] = {}

    def set_umask(self) -> None:
        """Set this process's umask, so only the users whom `access` allows can use files that the process and its children
        create.

        The umask covers all files: databases, mail, logs, and files that commands write.
        """
        os.umask(0o007 if self.access == "group" else 0o077)

    @field_validator("zone")
    @classmethod
    def _zone(cls, value: str) -> str:
        from zoneinfo import ZoneInfo  # few commands need it

        try:
            ZoneInfo(value)
        except (OSError, ValueError, LookupError):
            raise ValueError(f"{value!r} is not a time zone: write for example Europe/Berlin, or UTC") from None
        return value

    @field_validator("workspace")
    @classmethod
    def _workspace(cls, value: str) -> str:
        if any(char.isspace() or not char.isprintable() or char in '<>@/\\"(),:;[]' for char in value):
            raise ValueError('a workspace id must not contain white space or <>@/\\"(),:;[]')
        return value

    def read_roots(self, layout: Layout) -> tuple[Path, ...]:
        """Return the folders of `roots:`, with links resolved."""
        return tuple(Path(os.path.realpath(layout.root / os.path.expanduser(root.path))) for root in self.roots)

    def worktree_roots(self, layout: Layout) -> tuple[Path, ...]:
        """Return the roots with `worktree: true`."""
        return tuple(self.repository_roots(layout))

    def repository_roots(self, layout: Layout) -> dict[Path, RootConfig]:
        """Return the settings of each root with `worktree: true`, by its path.

        If the root contains the hive, its `protect` includes the lessons, so a branch that changes them waits for a person.
        """
        roots = {}
        for path, root in zip(self.read_roots(layout), self.roots, strict=True):
            if root.worktree and layout.lessons.is_relative_to(path):  # an agent's branch could bring lessons
                lessons = f"/{layout.lessons.relative_to(path).as_posix()}"
                roots[path] = root.model_copy(update={"protect": (*root.protect, lessons)})
            elif root.worktree:
                roots[path] = root
        return roots

    def sandbox_folders(self, layout: Layout) -> dict[Path, bool | None]:
        """Return the roots that a sandbox shows, each with True if it is writable.

        If a root contains the hive, the hive's folder is included with None, which hides it. Lessons in a root are read-only.
        Roots in the hive's protected folders are not shown.
        """
        hidden_folders = (layout.state, layout.mailboxes, layout.tasks, layout.rom, layout.agents)
        writable = self.writable_folders(layout)
        folders: dict[Path, bool | None] = {
            path: writable[path]
            for path in self.read_roots(layout)
            if path != layout.root and not any(path.is_relative_to(folder) for folder in hidden_folders)
        }
        if any(path in layout.root.parents for path in folders):
            return {**folders, layout.root: None}
        return (
            {**folders, layout.lessons: False} if any(path in layout.lessons.parents for path in folders) else folders
        )

    def writable_folders(self, layout: Layout) -> dict[Path, bool]:
        """Return folders by path, each with True if agents may write to it. For any path the innermost folder that contains it
        decides.

        The hive is not writable, except `knowledge/` without its lessons. A root that is listed twice is writable only if both
        entries say so.
        """
        folders = {layout.root: False, layout.knowledge: True, layout.lessons: False}
        for path, root in zip(self.read_roots(layout), self.roots, strict=True):
            is_writable = root.write and not root.worktree and not path.is_relative_to(layout.lessons)
            folders[path] = folders.get(path, True) and is_writable
        return folders


def _read(path: Path) -> str:
    try:
        return read_input(path, MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8 (byte {error.start})", location=path) from None
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", location=path) from None


def load_hive(layout: Layout) -> HiveConfig:
    """Load hive.yaml. Raises UserError with file, line and key.

    Its `durability` decides from now on whether this process syncs its writes to the hive, the roots and the memory's database.
    """
    if not os.path.lexists(layout.config):
        raise UserError(f"no {layout.config.name} there", location=layout.root, remedy="make one with: hivemind init")
    with boundary("settings file", layout.config):
        config = _CheckedFiles(layout).read(layout.config, _check_hive)
    for place in filter(None, (layout.root, *config.read_roots(layout), config.memory)):
        set_durability(str(place), durable=config.durability == "full")
    return config


def last_valid_hive(layout: Layout) -> HiveConfig | None:
    """Return the settings that hive.yaml had when it was last valid, or None if they are not recorded."""
    config: HiveConfig | None = _CheckedFiles(layout).last(layout.config)
    return config


def _check_hive(text: str, path: Path) -> HiveConfig:
    settings = parse(text, path)
    config = validate(HiveConfig, settings)
    if config.agents:  # validated here, so an error names their own lines
        validate(_Defaults, settings)
    return config


class _CheckedFiles:
    """The settings files, each validated only once. `.hive/settings.json` has the validated settings of each file and a digest.

    The digest is of the file's text, the settings and this program. If it does not match, the file is validated again. The
    settings of a file with `env` are not stored, because the values may be secrets.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._records: dict[str, Any] = {}
        with suppress(UserError, OSError), boundary("record of checked settings"):
            self._records = dict((load_record(layout.checked_settings, *_RECORD) or {"files": {}})["files"])
        self._is_changed = False

    def read(self, path: Path, check: Callable[[str, Path], _M], context: object = None) -> _M:
        """Return the settings in a file: those in the record if it matches the file, or those that `check` returns for the file's
        text.

        `context` are the other values on which the result of `check` depends.
        """
        text, name = _read(path), self._layout.relative(path)
        with suppress(UserError), boundary("record of checked settings"):
            digest, encoded = self._records[name]
            if digest == _digest(text, context, encoded):
                return cast("_M", _decode(encoded))
        config = check(text, path)
        if not getattr(config, "env", None) and "env" not in getattr(config, "agents", {}):
            encoded = _encode(config)
            self._is_changed = True
            self._records[name] = _digest(text, context, encoded), encoded
        elif self._records.pop(name, None) is not None:
            self._is_changed = True
        return config

    def last(self, path: Path) -> Any:
        """Return the settings of a file in the record, which may be older than the file. None if the record has none."""
        with suppress(UserError), boundary("record of checked settings"):
            return _decode(self._records[self._layout.relative(path)][1])
        return None

    def save(self, names: Collection[str] | None = None) -> None:
        """Write the record if a file was validated. `names` are the files that still exist; None keeps all."""
        folder = self._layout.state
        if not self._is_changed or self._layout.read_only:
            return
        records = {name: record for name, record in self._records.items() if names is None or name in names}
        record = as_line({"kind": _RECORD[0], "version": _RECORD[1], "files": records})
        with suppress(OSError):  # it is only a cache
            mode = folder.stat().st_mode & 0o660  # addresses of webhooks may be secrets
            write(self._layout.checked_settings, record, durable=False, mode=mode)


def _digest(text: str, context: object, encoded: object) -> str:
    return hashlib.sha256(repr((_rules(), text, context, encoded)).encode("utf-8", "surrogatepass")).hexdigest()


@cache
def _rules() -> str:
    """Return the digest of this module's text. Another version of the module may validate settings differently."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def _encode(value: Any) -> Any:
    """Encode settings as JSON. Unlike plain JSON, the result distinguishes models, tuples and lists."""
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(_encode, value)]
    return [type(value).__name__, _encode(vars(value))] if isinstance(value, BaseModel) else value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _decode(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    kind, items = value[0], [_decode(item) for item in value[1:]]
    return items if kind == "list" else tuple(items) if kind == "tuple" else globals()[kind].model_construct(**items[0])


class _Defaults(StrictModel):
    model_config = {"extra": "ignore"}
    agents: AgentConfig


@frozen
class Agents(Collection[str]):
    """The names of all agents of a hive. `configs` are their settings, sorted by name; the file `r` with `replicas: 3`
    is for `r-1`, `r-2`, `r-3`. `problems` are the errors of unreadable files, by file name without extension; these
    agents are set aside."""

    configs: dict[str, AgentConfig] = field(default_factory=dict)
    problems: dict[str, UserError] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.configs or self.problem_of(str(name)) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(
            [
                *self.configs,
                *(name for name in self.problems if is_name(name) and name not in (*RESERVED_NAMES, *self.configs)),
            ]
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def problem_of(self, name: str) -> UserError | None:
        """Return the error for which an agent, or the file of its replicas, is set aside; None if it is not."""
        return None if name in self.configs else self.problems.get(name) or self.problems.get(name.rpartition("-")[0])

    def roles(self) -> dict[str, str | None]:
        return {name: self.configs[name].role if name in self.configs else None for name in self}

    def get(self, name: str, options: str = "") -> AgentConfig:
        """Return the agent's settings. Raises UserError if the agent is set aside or unknown.

        The error for an unknown agent names the command that adds it, with `options` appended.
        """
        config = self.configs.get(name)
        if config is not None:
            return config
        if (problem := self.problem_of(name)) is not None:
            raise problem
        names = list(self.configs)
        listing = ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
        remedy = f"its agents: {listing or 'none'}; hivemind agent add {name}{options} adds it"
        raise UserError(f"there is no agent {name!r} in this hive", remedy=remedy)


def load_agents(layout: Layout, hive: HiveConfig) -> Agents:
    """Load the files in agents/, each on its own: an unreadable file only sets its agent aside. Save the validated settings."""
    agents, checked_files = Agents(), _CheckedFiles(layout)
    paths = [
        path
        for path in sorted(layout.agents.glob("*.y*ml"))
        if path.suffix in (".yaml", ".yml") and not path.name.startswith(".")
    ]
    with suppress(UserError), boundary("settings file", layout.config):  # recorded only now: the hive is not refused
        checked_files.read(layout.config, _check_hive)
    for path in paths:
        try:
            with boundary("agent's file", path):
                agents.configs.update(_load_agent(path, hive, checked_files, agents.configs))
        except UserError as error:
            agents.problems[path.name if path.stem in agents.configs else path.stem] = error
    checked_files.save([layout.relative(path) for path in (layout.config, *paths)])
    return Agents(dict(sorted(agents.configs.items())), agents.problems)


def check_agent_name(text: object) -> str:
    """Return the normalised name of an agent, as `check_name` does. Raises UserError for reserved names too."""
    name = check_name(text, "agent name")
    if name in RESERVED_NAMES:
        raise UserError(f"{name!r} is {RESERVED_NAMES[name]}", remedy="choose another")
    return name


def _load_agent(
    path: Path, hive: HiveConfig, checked_files: _CheckedFiles, used_names: Collection[str]
) -> dict[str, AgentConfig]:
    try:
        name = check_agent_name(path.stem)
    except UserError as error:
        raise UserError(error.message, location=path, remedy=error.remedy) from None
    config = checked_files.read(path, partial(_check_agent, hive=hive), (hive.agents, hive.minds))
    names = [name] if config.replicas == 1 else [f"{name}-{number}" for number in range(1, config.replicas + 1)]
    if duplicate := next((candidate for candidate in names if candidate in used_names), None):
        raise UserError(f"a second agent named {duplicate!r}", location=path, remedy="rename one of them")
    return {check_name(agent_name, "agent name"): config for agent_name in names}


def _check_agent(text: str, path: Path, hive: HiveConfig) -> AgentConfig:
    settings = parse(text, path)
    config_alone = validate(AgentConfig, settings)
    config = AgentConfig.model_validate({**hive.agents, **settings.values}) if hive.agents else config_alone
    program = config.program
    if program and (defaults := hive.minds.get(str(program.get("agent") or program.get("acp")))):
        config = config.model_copy(update={"mind": {**defaults.model_dump(mode="json", exclude_unset=True), **program}})
    return config


def key_location(layout: Layout, name: str, key: str) -> str:
    """Return the file and line in which an agent's key is set: the agent's file, its group's file, or the defaults in
    hive.yaml."""
    group = name.rpartition("-")[0] or name
    for stem in (name, group):
        for path in (layout.agents / f"{stem}.yaml", layout.agents / f"{stem}.yml"):
            if path.is_file():
                with boundary("settings file", path):
                    settings = parse(path.read_text("utf-8"), path)
                if key in settings.values:
                    return f"{path}:{settings.line((key, '<key>'))}"
    with boundary("settings file", layout.config):
        settings = parse(layout.config.read_text("utf-8"), layout.config)
    return f"{layout.config}:{settings.line(('agents', key, '<key>'))}"
