"""What hive.yaml and agents/*.yaml say, checked (spec 1, *Layout* and *Agents and the swarm*)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator

from hivemind.boundary import boundary, read_input
from hivemind.errors import UserError
from hivemind.frontmatter import MAX_BYTES, StrictModel, parse, validate
from hivemind.frozen import frozen
from hivemind.layout import EXCHANGE, HUMAN, POSTMASTER, Layout
from hivemind.names import check_name, is_name
from hivemind.outcome import Outcome
from hivemind.tokens import DEFAULT_ENCODING, LEAST_CONTEXT

SHARED = 0o2770
"""The mode of a folder that a group shares: what is made in it belongs to the group as well."""

TAKEN = {
    HUMAN: "the operator's own name",
    EXCHANGE: "the name of the process that links hives",
    POSTMASTER: "the name that the hive's own letters come from",
}
"""Names that no agent may have, and whose each is."""


class RootConfig(StrictModel):
    """A folder outside the hive that its agents may read, and write if it says so. A git repository with `worktree` is
    worked on in a worktree of each task's own, and never written itself."""

    path: str
    write: bool = False
    worktree: bool = False


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_root(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class TokenBudget(StrictModel):
    tokens: int | None = Field(None, ge=0)
    money: float | None = Field(None, ge=0)


class TaskTokenBudget(TokenBudget):
    """`tokens: null` takes the bound away; leaving it out does not."""

    tokens: int | None = Field(5_000_000, ge=0)


class DayTokenBudget(TokenBudget):
    """`tokens: null` takes the bound away; leaving it out does not."""

    tokens: int | None = Field(50_000_000, ge=0)


class BudgetConfig(StrictModel):
    """What an agent may use up: for a task with its subtasks, and per day, in tokens and in money (the currency of its price
    list)."""

    task: TaskTokenBudget = TaskTokenBudget.model_construct()
    day: TokenBudget = TokenBudget.model_construct()


class SharedBudgetConfig(StrictModel):
    """What all agents of a hive may use up together, per day."""

    day: DayTokenBudget = DayTokenBudget.model_construct()


def _or_default(value: Any) -> Any:
    return {} if value is None else value


class EmbedderConfig(StrictModel):
    """An endpoint that takes OpenAI's embeddings requests; the key is in the environment under the name `key_env`."""

    url: str = Field(pattern=r"^https?://[^/\s]")
    model: str = Field(min_length=1)
    dimension: int = Field(ge=1, le=65_536, strict=True)
    key_env: str | None = None


class MailConfig(StrictModel):
    """What becomes of a letter from an address that the hive does not know: a person is shown it, it bounces, or an agent
    answers it. What goes to such an address is left in the mailbox `human`: the hive sends nothing out."""

    unknown_sender: Literal["needs_you", "bounce", "answer"] = "needs_you"


class PriceConfig(StrictModel):
    """What a million tokens cost: `in`, those that are sent; `out`, those that are answered; `cached`, those that are sent
    and read from the provider's cache (default: a tenth of `in`); `written`, those that it writes there (default: a quarter
    more than `in`)."""

    tokens_in: float = Field(alias="in", ge=0, allow_inf_nan=False)
    tokens_out: float = Field(alias="out", ge=0, allow_inf_nan=False)
    cached: float | None = Field(None, ge=0, allow_inf_nan=False)
    written: float | None = Field(None, ge=0, allow_inf_nan=False)


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def _as_seconds(value: Any) -> Any:
    """`10m` as 600.0, a number as it is; `never` as None."""
    if value == "never":
        return None
    if isinstance(value, str):
        if value[-1:] not in _UNITS or not value[:-1].strip().isdecimal():
            raise ValueError("must be a number of seconds, or like 90s, 10m, 2h, 90d, 8w, or never")
        return int(value[:-1]) * _UNITS[value[-1]]
    return value


_Seconds = Annotated[float | None, BeforeValidator(_as_seconds)]


class WebhookConfig(StrictModel):
    """Where a POST request goes for each notification; it is signed with the secret in the environment under `secret_env`, as
    Standard Webhooks has it."""

    url: str = Field(pattern=r"^https?://[^/\s]")
    secret_env: str | None = None


class NotifyConfig(StrictModel):
    """Of which ends of people's tasks they are told, and how: by a letter to `human`, a program, a webhook."""

    events: Annotated[tuple[Outcome, ...], BeforeValidator(_as_list)] = ("failed",)
    letter: bool = True
    program: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    webhook: WebhookConfig | None = None


class McpConfig(StrictModel):
    """Members from outside. `return_after`: seconds after which the tasks of one that has left go back; None: never."""

    return_after: _Seconds = Field(600.0, ge=0)


class RetentionConfig(StrictModel):
    """After how long what is over is moved to the dated archives: seconds, or `90d`; None: never. Nothing is deleted."""

    tasks: _Seconds = Field(None, ge=0)
    mail: _Seconds = Field(None, ge=0)
    journal: _Seconds = Field(None, ge=0)

    @property
    def is_set(self) -> bool:
        return any(age is not None for age in (self.tasks, self.mail, self.journal))


class LimitsConfig(StrictModel):
    """Limits of one command that an agent runs."""

    wall_s: float = Field(600, gt=0)
    cpu_s: float = Field(600, gt=0)
    memory_mb: int = Field(4096, gt=0)
    output_bytes: int = Field(1_048_576, gt=0)


class AgentConfig(StrictModel):
    """One agents/<agent>.yaml. Defaults for any key can be set under `agents:` in hive.yaml."""

    role: str | None = None
    lane: str | None = None
    mind: str | dict[str, Any] = "extractive"
    rom: list[str] = []
    tools: list[str] | None = None
    toolset: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    max_tokens: int = Field(100_000, ge=LEAST_CONTEXT)
    max_turns: int = Field(100, ge=1)
    graph: Literal["rules", "model"] = "rules"
    budget: BudgetConfig = BudgetConfig.model_construct()
    prices: PriceConfig | None = None
    view: Literal["focus_only", "smart", "explore", "audit", "full"] = "smart"
    commands: list[str] = []
    shell: bool = False
    limits: LimitsConfig = LimitsConfig.model_construct()
    sandbox: Literal["none", "bwrap"] = "none"
    replicas: int = Field(1, ge=1, le=1000)
    env: dict[str, str] = {}

    @property
    def outside(self) -> bool:
        """True for `mind: mcp`: a member whose mind is another program, which comes and goes (`hivemind mcp`)."""
        return self.mind == "mcp"

    @property
    def runs_program(self) -> bool:
        """True for `mind: {agent: …}`: a coding agent that the hive runs."""
        return "agent" in self.mind if isinstance(self.mind, dict) else self.mind.split(":")[0].strip() == "agent"

    @field_validator("role")
    @classmethod
    def _role(cls, value: str | None) -> str | None:
        return None if value is None else _named(value, "role")

    @field_validator("env", mode="before")
    @classmethod
    def _env(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: str(item) if isinstance(item, int | float) else item for key, item in value.items()}
        return value


def _named(value: str, what: str) -> str:
    try:
        return check_name(value, what)
    except UserError as error:
        raise ValueError(str(error)) from None


class HiveConfig(StrictModel):
    """hive.yaml. Times are in the unit that the name says, sizes in bytes."""

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
    zone: str = "UTC"
    prices: dict[str, PriceConfig] = {}
    budget: Annotated[SharedBudgetConfig, BeforeValidator(_or_default)] = SharedBudgetConfig.model_construct()
    agents: dict[str, Any] = {}

    @property
    def durable(self) -> bool:
        return self.durability == "full"

    def take_access(self) -> None:
        """From now on what this process makes, and what it starts, can be used by whom `access` says, and by nobody else.

        It is said in one place, to the kernel, as the umask: databases, mail, logs and what commands write included.
        """
        os.umask(0o007 if self.access == "group" else 0o077)

    @field_validator("zone")
    @classmethod
    def _zone(cls, value: str) -> str:
        from zoneinfo import ZoneInfo  # few commands need it

        try:
            ZoneInfo(value)
        except (OSError, ValueError, LookupError):
            raise ValueError(f"{value!r} is no time zone: write Europe/Berlin, or UTC") from None
        return value

    @field_validator("workspace")
    @classmethod
    def _workspace(cls, value: str) -> str:
        if any(char.isspace() or not char.isprintable() or char in '<>@/\\"(),:;[]' for char in value):
            raise ValueError('a workspace id has no white space and none of <>@/\\"(),:;[] in it')
        return value

    def read_roots(self, layout: Layout) -> tuple[Path, ...]:
        """The folders outside the hive that may be read, resolved."""
        return tuple(Path(os.path.realpath(layout.root / os.path.expanduser(root.path))) for root in self.roots)

    def worktree_roots(self, layout: Layout) -> tuple[Path, ...]:
        """Those of them of which each task has a worktree."""
        found = zip(self.read_roots(layout), self.roots, strict=True)
        return tuple(dict.fromkeys(path for path, root in found if root.worktree))

    def bound(self, layout: Layout) -> dict[Path, bool | None]:
        """The roots as a sandbox shows them: whether each may be written; None for the hive itself where a root is around it.
        Of the hive's own folders only those that no tool keeps from agents are shown."""
        closed = (layout.state, layout.mailboxes, layout.tasks, layout.rom, layout.agents)
        written = self.written(layout)
        found: dict[Path, bool | None] = {
            path: written[path]
            for path in self.read_roots(layout)
            if path != layout.root and not any(path.is_relative_to(one) for one in closed)
        }
        return {**found, layout.root: None} if any(path in layout.root.parents for path in found) else found

    def written(self, layout: Layout) -> dict[Path, bool]:
        """Which folders may be written and which not: of those around a path the innermost decides.

        The hive's own may not, but `knowledge/`; of a root that is listed twice the listing without `write` holds.
        """
        found = {layout.root: False, layout.knowledge: True}
        for path, root in zip(self.read_roots(layout), self.roots, strict=True):
            found[path] = found.get(path, True) and root.write and not root.worktree
        return found


def _read(path: Path) -> str:
    try:
        return read_input(path, MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8 (byte {error.start})", location=path) from None
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", location=path) from None


def load_hive(layout: Layout) -> HiveConfig:
    """What hive.yaml says. Raises UserError naming file, line and key."""
    with boundary("settings file", layout.config):
        parsed = parse(_read(layout.config), layout.config)
        config = validate(HiveConfig, parsed)
        if config.agents:  # the defaults must be good themselves, and blamed where they stand
            validate(_Defaults, parsed)
        return config


class _Defaults(StrictModel):
    model_config = ConfigDict(extra="ignore")
    agents: AgentConfig


@frozen
class Agents(Collection[str]):
    """The names of all agents of a hive. `known`: what their files say, sorted; a group of `replicas: 3` named `r` is `r-1`,
    `r-2`, `r-3`. `aside`: why a file cannot be read, by its name without the ending: that agent, or group, is set aside."""

    known: dict[str, AgentConfig] = field(default_factory=dict)
    aside: dict[str, UserError] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.known or self.why_aside(str(name)) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(
            [*self.known, *(name for name in self.aside if is_name(name) and name not in (*TAKEN, *self.known))]
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def why_aside(self, name: str) -> UserError | None:
        """Why an agent, or the group that it is of, is set aside; None if it is not."""
        return None if name in self.known else self.aside.get(name) or self.aside.get(name.rpartition("-")[0])

    def roles(self) -> dict[str, str | None]:
        return {name: self.known[name].role if name in self.known else None for name in self}

    def get(self, name: str, options: str = "") -> AgentConfig:
        """What the agent's file says. Raises UserError: why it is set aside, or that there is none, and how it is added."""
        found = self.known.get(name)
        if found is not None:
            return found
        if (why := self.why_aside(name)) is not None:
            raise why
        names = list(self.known)
        there = ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
        mend = f"its agents: {there or 'none'}; hivemind agent add {name}{options} makes it one"
        raise UserError(f"there is no agent {name!r} in this hive", remedy=mend)


def load_agents(layout: Layout, hive: HiveConfig) -> Agents:
    """What agents/ says, each file by itself: one that cannot be read sets its agent aside, with the reason."""
    found = Agents()
    for path in sorted(layout.agents.glob("*.y*ml")):
        if path.suffix not in (".yaml", ".yml") or path.name.startswith("."):
            continue
        try:
            with boundary("agent's file", path):
                found.known.update(_load_agent(path, hive, found.known))
        except UserError as error:
            found.aside[path.name if path.stem in found.known else path.stem] = error
    return Agents(dict(sorted(found.known.items())), found.aside)


def check_agent_name(text: object) -> str:
    """The name that an agent may have, as `check_name`. Raises UserError for those of others, too."""
    name = check_name(text, "agent name")
    if name in TAKEN:
        raise UserError(f"{name!r} is {TAKEN[name]}", remedy="choose another")
    return name


def _load_agent(path: Path, hive: HiveConfig, others: Collection[str]) -> dict[str, AgentConfig]:
    try:
        name = check_agent_name(path.stem)
    except UserError as error:
        raise UserError(error.message, location=path, remedy=error.remedy) from None
    parsed = parse(_read(path), path)
    own = validate(AgentConfig, parsed)
    config = AgentConfig.model_validate({**hive.agents, **parsed.values}) if hive.agents else own
    names = [name] if config.replicas == 1 else [f"{name}-{number}" for number in range(1, config.replicas + 1)]
    if taken := next((one for one in names if one in others), None):
        raise UserError(f"a second agent named {taken!r}", location=path, remedy="rename one of them")
    return {check_name(one, "agent name"): config for one in names}


def place_of_key(layout: Layout, name: str, key: str) -> str:
    """The file and line where an agent's key stands: its own file, its group's, or the defaults in hive.yaml."""
    group = name.rpartition("-")[0] or name
    for stem in (name, group):
        for path in (layout.agents / f"{stem}.yaml", layout.agents / f"{stem}.yml"):
            if path.is_file():
                with boundary("settings file", path):
                    parsed = parse(path.read_text("utf-8"), path)
                if key in parsed.values:
                    return f"{path}:{parsed.line((key, '<key>'))}"
    with boundary("settings file", layout.config):
        parsed = parse(layout.config.read_text("utf-8"), layout.config)
    return f"{layout.config}:{parsed.line(('agents', key, '<key>'))}"
