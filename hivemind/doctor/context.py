"""The data that the checks need, read from files. The hive's stores are not opened, so a broken hive can be checked too."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hivemind.config import Agents, HiveConfig, load_agents, load_hive
from hivemind.errors import UserError
from hivemind.fs.filesystem import mounts, needs_polling
from hivemind.fs.integrity import Aside, list_folder
from hivemind.layout import HUMAN, Layout
from hivemind.mail import Mail
from hivemind.presence.identity import holder_pid
from hivemind.presence.watching import supervisor_lock
from hivemind.tasks import Tasks


@dataclass
class DoctorContext:
    """The hive to check. `config` and `agents` are None if hive.yaml is invalid."""

    layout: Layout

    @cached_property
    def now(self) -> float:
        """The current time in seconds since 1970."""
        return time.time()

    @cached_property
    def aside(self) -> Aside:
        return Aside(self.layout, self.now)

    def __post_init__(self) -> None:
        (self.config or HiveConfig()).set_umask()

    @cached_property
    def unchanged(self) -> Layout:
        """A read-only layout for the checks, which do not write."""
        return Layout(self.layout.root, read_only=True)

    @cached_property
    def config(self) -> HiveConfig | None:
        try:
            return load_hive(self.unchanged)
        except UserError:
            return None

    @cached_property
    def agents(self) -> Agents | None:
        return None if self.config is None else load_agents(self.unchanged, self.config)

    @property
    def mailbox_owners(self) -> tuple[str, ...]:
        """The owners of mailboxes: the operator and the configured agents."""
        return (HUMAN, *(self.agents or ()))

    @cached_property
    def mail(self) -> Mail:
        workspace = self.config.workspace if self.config else HiveConfig().workspace
        return Mail(self.layout, workspace, agents=lambda: self.agents or (), roots=self.roots)

    @cached_property
    def tasks(self) -> Tasks:
        return Tasks(
            replace(self.layout, read_only=True), agents=lambda: {} if self.agents is None else self.agents.roles()
        )

    @cached_property
    def is_read_only(self) -> bool:
        """True if the hive's file system is mounted read-only."""
        return bool(os.statvfs(self.layout.root).f_flag & os.ST_RDONLY)

    @cached_property
    def is_shared(self) -> bool:
        """True if other machines may write to the hive's file system."""
        return needs_polling(self.layout.root, mounts()) is not None

    @property
    def roots(self) -> tuple[Path, ...]:
        return self.config.read_roots(self.layout) if self.config else ()

    @property
    def has_journal(self) -> bool:
        """True if the journal's folder contains a log file."""
        return self.layout.journal.is_dir() and any(self.layout.journal.glob("*.jsonl"))

    def live_agents(self) -> set[str]:
        """Return the current and former agents that run: a process holds the name lock."""
        locks = {
            path.stem.removeprefix("agent-") for path in list_folder(self.layout.locks) if path.match("agent-*.lock")
        }
        return {name for name in {*(self.agents or ()), *locks} if holder_pid(self.layout, name) is not None}

    def is_swarm_up(self) -> bool:
        """Return True if a supervisor runs."""
        return supervisor_lock(self.layout.locks).holder() is not None

    def describe_running(self) -> str | None:
        """Describe the processes of the hive that run now. Return None if none runs."""
        if self.is_swarm_up():
            return "the swarm is up"
        names = sorted(self.live_agents())
        return f"{', '.join(names)} {'runs' if len(names) == 1 else 'run'}" if names else None
