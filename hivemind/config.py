"""What hive.yaml and agents/*.yaml say, checked (spec 1, *Layout* and *Agents and the swarm*)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from hivemind.errors import UserError
from hivemind.frontmatter import parse, validate
from hivemind.layout import HUMAN, Layout
from hivemind.names import check_name
from hivemind.tokens import DEFAULT_ENCODING, LEAST_CONTEXT

__all__ = [
    "SHARED",
    "AgentConfig",
    "BudgetConfig",
    "EmbedderConfig",
    "HiveConfig",
    "LimitsConfig",
    "PriceConfig",
    "RootConfig",
    "load_agents",
    "load_hive",
]

SHARED = 0o2770
"""The mode of a folder that a group shares: what is made in it belongs to the group as well."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RootConfig(_Strict):
    """A folder outside the hive that its agents may read, and write if it says so."""

    path: str
    write: bool = False


def _as_root(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class TokenBudget(_Strict):
    tokens: int | None = Field(None, ge=0)
    money: float | None = Field(None, ge=0)


class BudgetConfig(_Strict):
    """What an agent may use up: per task and per day, in tokens and in money (the currency of its price list)."""

    task: TokenBudget = TokenBudget()
    day: TokenBudget = TokenBudget()


class SharedBudgetConfig(_Strict):
    """What all agents of a hive may use up together, per day."""

    day: TokenBudget = TokenBudget()


class EmbedderConfig(_Strict):
    """An endpoint that takes OpenAI's embeddings requests; the key is in the environment under the name `key_env`."""

    url: str = Field(pattern=r"^https?://[^/\s]")
    model: str = Field(min_length=1)
    dimension: int = Field(ge=1, le=65_536)
    key_env: str | None = None


class PriceConfig(_Strict):
    """What a million tokens cost: `in`, those that are sent; `out`, those that are answered."""

    tokens_in: float = Field(alias="in", ge=0, allow_inf_nan=False)
    tokens_out: float = Field(alias="out", ge=0, allow_inf_nan=False)


class LimitsConfig(_Strict):
    """Limits of one command that an agent runs."""

    wall_s: float = Field(600, gt=0)
    cpu_s: float = Field(600, gt=0)
    memory_mb: int = Field(4096, gt=0)
    output_bytes: int = Field(1_048_576, gt=0)


class AgentConfig(_Strict):
    """One agents/<agent>.yaml. Defaults for any key can be set under `agents:` in hive.yaml."""

    role: str | None = None
    lane: str | None = None
    mind: str | dict[str, Any] = "extractive"
    rom: list[str] = []
    tools: list[str] | None = None
    max_tokens: int = Field(100_000, ge=LEAST_CONTEXT)
    budget: BudgetConfig = BudgetConfig()
    prices: PriceConfig | None = None
    view: Literal["focus_only", "smart", "explore", "audit", "full"] = "smart"
    commands: list[str] = []
    limits: LimitsConfig = LimitsConfig()
    sandbox: Literal["none", "bwrap"] = "none"
    replicas: int = Field(1, ge=1, le=1000)
    env: dict[str, str] = {}

    @property
    def outside(self) -> bool:
        """True for `mind: mcp`: a member whose mind is another program, which comes and goes (`hivemind mcp`)."""
        return self.mind == "mcp"

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


class HiveConfig(_Strict):
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
    review_timeout_s: float = Field(60.0, gt=0)
    encoding: str = DEFAULT_ENCODING
    embedder: Literal["auto", "none", "minilm", "hashing"] | EmbedderConfig = "auto"
    roots: list[Annotated[RootConfig, BeforeValidator(_as_root)]] = []
    prices: dict[str, PriceConfig] = {}
    budget: SharedBudgetConfig | None = None
    agents: dict[str, Any] = {}

    @property
    def durable(self) -> bool:
        return self.durability == "full"

    def take_access(self) -> None:
        """From now on what this process makes, and what it starts, can be used by whom `access` says, and by nobody else.

        It is said in one place, to the kernel, as the umask: databases, mail, logs and what commands write included.
        """
        os.umask(0o007 if self.access == "group" else 0o077)

    @property
    def shared_budget(self) -> TokenBudget | None:
        """What all agents may use up together on a day; None where nothing bounds it."""
        return None if self.budget is None else self.budget.day

    @field_validator("workspace")
    @classmethod
    def _workspace(cls, value: str) -> str:
        if any(char.isspace() or not char.isprintable() or char in '<>@/\\"(),:;[]' for char in value):
            raise ValueError('a workspace id has no white space and none of <>@/\\"(),:;[] in it')
        return value

    def read_roots(self, layout: Layout) -> tuple[Path, ...]:
        """The folders outside the hive that may be read, resolved."""
        return tuple(Path(os.path.realpath(layout.root / os.path.expanduser(root.path))) for root in self.roots)

    def write_roots(self, layout: Layout) -> tuple[Path, ...]:
        """Those of them that may be written, resolved."""
        found = (root for root in self.roots if root.write)
        return tuple(Path(os.path.realpath(layout.root / os.path.expanduser(root.path))) for root in found)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8 (byte {error.start})", where=path) from None
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path) from None


def load_hive(layout: Layout) -> HiveConfig:
    """What hive.yaml says. Raises UserError naming file, line and key."""
    config = validate(HiveConfig, parse(_read(layout.config), layout.config))
    if config.agents:  # the defaults must be good themselves, and blamed where they stand
        validate(_Defaults, parse(_read(layout.config), layout.config))
    return config


class _Defaults(BaseModel):
    model_config = ConfigDict(extra="ignore")
    agents: AgentConfig


def load_agents(layout: Layout, hive: HiveConfig) -> dict[str, AgentConfig]:
    """Every agent of the hive by name, sorted; a group of `replicas: 3` named `r` gives `r-1`, `r-2`, `r-3`.

    Raises UserError naming file, line and key, and for two agents of one name.
    """
    found: dict[str, AgentConfig] = {}
    for path in sorted(layout.agents.glob("*.y*ml")):
        if path.suffix not in (".yaml", ".yml") or path.name.startswith("."):
            continue
        for name, config in _load_agent(path, hive):
            if name in found:
                raise UserError(f"a second agent named {name!r}", where=path, mend="rename one of them")
            found[name] = config
    return dict(sorted(found.items()))


def _load_agent(path: Path, hive: HiveConfig) -> Iterator[tuple[str, AgentConfig]]:
    try:
        name = check_name(path.stem, "agent name")
    except UserError as error:
        raise UserError(str(error), where=path) from None
    if name == HUMAN:
        raise UserError(f"{HUMAN!r} is the operator's own name", where=path, mend="rename the file")
    parsed = parse(_read(path), path)
    own = validate(AgentConfig, parsed)
    config = AgentConfig.model_validate({**hive.agents, **parsed.values}) if hive.agents else own
    if config.replicas == 1:
        yield name, config
    else:
        for number in range(1, config.replicas + 1):
            yield check_name(f"{name}-{number}", "agent name"), config
