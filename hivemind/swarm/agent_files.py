"""Changes in agents/ while the swarm is up: new, changed and removed files (README.md).

If a file has a mistake (an unknown key, a mind that is not installed), its agent keeps the old settings. A file is read
only after nobody has written it for a moment.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from typing import Any

from hivemind import fs
from hivemind.config import AgentConfig, check_agent_name
from hivemind.errors import UserError
from hivemind.frontmatter import parse, validate
from hivemind.frozen import frozen
from hivemind.fs import is_settled
from hivemind.layout import Layout
from hivemind.minds import open_mind
from hivemind.minds.mind import MissingKey
from hivemind.names import check_name
from hivemind.presence.parts import Parts
from hivemind.swarm.preflight import preflight


def add_agent(hive: Parts, name: str, *, role: str | None = None, mind: str | None = None) -> str:
    """Write agents/<name>.yaml and create the mailbox. Return the normalised name.

    The key or login of the agent's mind may be missing. Raises UserError, before any file is written, for an invalid name, role
    or mind, and for a name in use.
    """
    name = check_agent_name(name)
    path = hive.layout.agent_config(name)
    if name in hive.agents or path.exists() or path.with_suffix(".yml").exists():
        raise UserError(
            f"there is an agent {name!r} already", location=path, remedy="edit its file, or choose another name"
        )
    lines = ["# All keys and their defaults: README.md in this folder.\n"]
    if role is not None:
        lines.append(f"role: {json.dumps(check_name(role, 'role'))}\n")
    lines.append(f"mind: {json.dumps(read_mind(mind) if mind else 'extractive', ensure_ascii=False)}\n")
    text = "".join(lines)
    config = validate(AgentConfig, parse(text, path))
    if not config.outside:
        with suppress(MissingKey):
            open_mind(config.mind, root=hive.layout.root)
    try:
        fs.create(path, text)
    except FileExistsError:
        raise UserError(
            f"there is an agent {name!r} already", location=os.fspath(path), remedy="choose another name"
        ) from None
    hive.mail.ensure(name)
    return name


def read_mind(text: str) -> str | dict[str, Any]:
    """Return the value of `mind:` for the text of the option --mind: the text itself, or a mapping if the text is a YAML mapping.

    Raises UserError.
    """
    return parse(text, "--mind").values if ": " in text or text.startswith("{") else text


_GONE_AFTER_S = 1.0  # an editor removes a file for a moment while it saves


@frozen
class AgentChanges:
    """Changes of the agents that a supervisor runs: new agents, agents with changed settings, and agents whose file was
    removed.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


class AgentFiles:
    """The settings in agents/ that are in force. `problems` has, for each agent whose file is not used, the reason."""

    def __init__(self, hive: Parts, names: Collection[str] | None = None) -> None:
        """Take the hive's current settings. If `names` are given, changes of all other agents are ignored."""
        self.hive = hive
        self._only = names
        self._seen = _signature(hive.layout)
        self._folder_time, self._must_reread = -1, False
        self._configs = dict(hive.agents)
        self._missing_since: dict[str, float] = {}
        self.problems: dict[str, str] = {}

    def for_hive(self, hive: Parts) -> AgentFiles:
        """Return a copy of this state for the `Parts` of another process."""
        clone = copy(self)
        clone.hive = hive
        return clone

    @property
    def needs_reading(self) -> bool:
        """True if the folder agents/ has changed, or must be read again. Costs a stat.

        A file that is changed in place does not change the folder; only the file watcher notices it.
        """
        try:
            folder_time = os.stat(self.hive.layout.agents).st_mtime_ns
        except OSError:
            return False
        if folder_time == self._folder_time and not self._must_reread and not self._missing_since:
            return False
        self._folder_time = folder_time
        return True

    def read_changes(self) -> AgentChanges | None:
        """Read agents/ and return the changes. Return None if no file has changed, or if a changed file may still be
        written."""
        signature = _signature(self.hive.layout)
        if signature is None or (signature == self._seen and not self._missing_since):
            return None
        seen = self._seen or {}
        self._must_reread = not all(self._is_whole(name) for name, mark in signature.items() if seen.get(name) != mark)
        if self._must_reread:
            return None
        self._seen = signature
        loaded_files = self.hive.read_agents()
        old_problems, self.problems = self.problems, {name: str(error) for name, error in loaded_files.problems.items()}
        new_configs = {
            name: config for name, config in self._configs.items() if loaded_files.problem_of(name) is not None
        }
        retained = {}
        for name, config in loaded_files.configs.items():
            new_configs[name] = config
            if (name in old_problems or config != self._configs.get(name)) and not config.outside:
                try:
                    preflight(self.hive, name)
                except UserError as error:
                    self.problems[name] = str(error)
                    del new_configs[name]
                    if name in self._configs:
                        retained[name] = new_configs[name] = self._configs[name]
        self.hive.keep_agents(retained)
        moment, old_configs = time.monotonic(), self._configs
        self._missing_since = {
            name: self._missing_since.get(name, moment) for name in old_configs if name not in new_configs
        }
        for name, missing_since in [*self._missing_since.items()]:
            if moment - missing_since < _GONE_AFTER_S:
                new_configs[name] = old_configs[name]
            else:
                del self._missing_since[name]
        self._configs = new_configs
        new_agents, old_agents = self._supervised(new_configs), self._supervised(old_configs)
        return AgentChanges(
            tuple(name for name in new_agents if name not in old_agents),
            tuple(name for name in old_agents if name in new_agents and new_agents[name] != old_agents[name]),
            tuple(name for name in old_agents if name not in new_agents),
        )

    def has_file(self, name: str) -> bool:
        """Check whether the agent has a file, valid or not."""
        return name in self._configs or self.hive.agent_files.problem_of(name) is not None

    def _supervised(self, configs: Mapping[str, AgentConfig]) -> dict[str, AgentConfig]:
        """Return the agents in `configs` that a supervisor runs."""
        names = configs if self._only is None else self._only
        return {name: config for name, config in configs.items() if name in names and not config.outside}

    def _is_whole(self, name: str) -> bool:
        try:
            file = os.open(self.hive.layout.agents / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # gone or unreadable: reading it reports the error
            return True
        try:
            return is_settled(file, self.hive.config.settle_ms, datetime.now(UTC))
        finally:
            os.close(file)


def _signature(layout: Layout) -> dict[str, tuple[int, int, int]] | None:
    """Return the inode, size and time of each file in agents/, or None if the folder does not exist."""
    try:
        with os.scandir(layout.agents) as entries:
            files = [
                (entry.name, entry.stat())
                for entry in entries
                if entry.name.endswith((".yaml", ".yml")) and entry.is_file()
            ]
    except OSError:
        return None
    return {name: (status.st_ino, status.st_size, status.st_mtime_ns) for name, status in files}
