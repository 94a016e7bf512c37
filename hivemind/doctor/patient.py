"""The hive as the checks see it: looked at without opening the stores, so that a broken one can be examined too."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hivemind.config import Agents, HiveConfig, load_agents, load_hive
from hivemind.errors import UserError
from hivemind.fs.check import Aside, listed
from hivemind.fs.filesystem import mounts, needs_polling
from hivemind.layout import HUMAN, Layout
from hivemind.mail import Mail
from hivemind.presence.identity import holder_pid
from hivemind.presence.watching import supervisor_lock
from hivemind.tasks import Tasks


@dataclass
class CheckContext:
    """One hive under examination. `config` and `agents` are None while hive.yaml is not understood."""

    layout: Layout

    @cached_property
    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    @cached_property
    def aside(self) -> Aside:
        return Aside(self.layout, self.now)

    def __post_init__(self) -> None:
        (self.config or HiveConfig()).set_umask()

    @cached_property
    def config(self) -> HiveConfig | None:
        try:
            return load_hive(self.layout)
        except UserError:
            return None

    @cached_property
    def agents(self) -> Agents | None:
        return None if self.config is None else load_agents(self.layout, self.config)

    @property
    def names(self) -> tuple[str, ...]:
        """The owners of mailboxes that are known: the operator, and the agents."""
        return (HUMAN, *(self.agents or ()))

    @cached_property
    def mail(self) -> Mail:
        workspace = self.config.workspace if self.config else HiveConfig().workspace
        return Mail(self.layout, workspace, agents=lambda: self.agents or (), durable=self.durable, roots=self.roots)

    @cached_property
    def tasks(self) -> Tasks:
        return Tasks(
            replace(self.layout, read_only=True),
            agents=lambda: {} if self.agents is None else self.agents.roles(),
            durable=self.durable,
        )

    @cached_property
    def read_only(self) -> bool:
        """Whether the hive's file system is mounted so that nothing can be written."""
        return bool(os.statvfs(self.layout.root).f_flag & os.ST_RDONLY)

    @cached_property
    def shared(self) -> bool:
        """Whether it lies on a file system that other machines may write to as well."""
        return needs_polling(self.layout.root, mounts()) is not None

    @property
    def durable(self) -> bool:
        return self.config is None or self.config.durable

    @property
    def roots(self) -> tuple[Path, ...]:
        return self.config.read_roots(self.layout) if self.config else ()

    @property
    def has_journal(self) -> bool:
        """Whether anything has ever been written there: opening an empty one would begin it."""
        return self.layout.journal.is_dir() and any(self.layout.journal.glob("*.jsonl"))

    def alive(self) -> set[str]:
        """The names that a process holds now, of agents that are configured or were once."""
        locks = {path.stem.removeprefix("agent-") for path in listed(self.layout.locks) if path.match("agent-*.lock")}
        return {name for name in {*(self.agents or ()), *locks} if holder_pid(self.layout, name) is not None}

    def up(self) -> bool:
        """Whether a supervisor runs."""
        return supervisor_lock(self.layout.locks).holder() is not None

    def running(self) -> str | None:
        """What of the hive runs now, in words; None if nothing does."""
        if self.up():
            return "the swarm is up"
        live_agents = sorted(self.alive())
        return f"{', '.join(live_agents)} {'runs' if len(live_agents) == 1 else 'run'}" if live_agents else None
