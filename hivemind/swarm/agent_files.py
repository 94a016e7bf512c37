"""What changes in agents/ while the swarm is up: new files, changed ones, files that were taken away (README.md).

A file that says something that cannot be had (a key that is none, a mind that is not installed) changes nothing: the agent
goes on as it was. One that somebody is writing is read once it is whole.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping
from copy import copy
from datetime import UTC, datetime

from hivemind import fs
from hivemind.config import AgentConfig, check_agent_name
from hivemind.errors import UserError
from hivemind.frontmatter import parse, validate
from hivemind.frozen import frozen
from hivemind.fs import is_settled
from hivemind.layout import Layout
from hivemind.minds import open_mind
from hivemind.names import check_name
from hivemind.presence.parts import Parts
from hivemind.swarm.preflight import preflight


def add_agent(hive: Parts, name: str, *, role: str | None = None, mind: str | None = None) -> str:
    """Write agents/<name>.yaml, make the mailbox, and give the name as it stands in the hive.

    Raises UserError for a bad name, role or mind and for a name that an agent has already; then nothing is written.
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
    lines.append(f"mind: {json.dumps('extractive' if mind is None else mind, ensure_ascii=False)}\n")
    text = "".join(lines)
    config = validate(AgentConfig, parse(text, path))
    if not config.outside:
        open_mind(config.mind, root=hive.layout.root)
    try:
        fs.create(path, text, durable=hive.config.durable)
    except FileExistsError:
        raise UserError(
            f"there is an agent {name!r} already", location=os.fspath(path), remedy="choose another name"
        ) from None
    hive.mail.ensure(name)
    return name


_GONE_AFTER_S = 1.0  # an editor takes a file away for a moment while it saves


@frozen
class AgentChanges:
    """Agents that a supervisor runs: those that are new, those whose file says something else, those without a file."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


class AgentFiles:
    """What the files in agents/ say, as far as it can be had. `problems`: why a file is not followed, by its agent."""

    def __init__(self, hive: Parts, only: Collection[str] | None = None) -> None:
        """With `only` no other agents are looked after."""
        self.hive = hive
        self._only = only
        self._seen = _signature(hive.layout)
        self._time, self._again = -1, False
        self._configs = dict(hive.agents)
        self._gone: dict[str, float] = {}
        self.problems: dict[str, str] = {}

    def of(self, hive: Parts) -> AgentFiles:
        """The same knowledge, for another object that stands for the same hive in another process."""
        other = copy(self)
        other.hive = hive
        return other

    @property
    def must_look(self) -> bool:
        """Whether agents/ itself has changed, or shall be looked at again; a file that was changed in place only a watcher
        of files tells of. Costs a stat."""
        try:
            changed = os.stat(self.hive.layout.agents).st_mtime_ns
        except OSError:
            return False
        if changed == self._time and not self._again and not self._gone:
            return False
        self._time = changed
        return True

    def look(self) -> AgentChanges | None:
        """Read agents/ if a file there has changed and is whole, or has been away for long enough; None if nothing has."""
        now = _signature(self.hive.layout)
        if now is None or (now == self._seen and not self._gone):
            return None
        seen = self._seen or {}
        self._again = not all(self._is_whole(name) for name, mark in now.items() if seen.get(name) != mark)
        if self._again:
            return None
        self._seen = now
        found = self.hive.read_agents()
        unready, self.problems = self.problems, {name: str(error) for name, error in found.aside.items()}
        wanted = {name: config for name, config in self._configs.items() if found.why_aside(name) is not None}
        kept = {}
        for name, config in found.known.items():
            wanted[name] = config
            if (name in unready or config != self._configs.get(name)) and not config.outside:
                try:
                    preflight(self.hive, [name])
                except UserError as error:
                    self.problems[name] = str(error)
                    del wanted[name]
                    if name in self._configs:
                        kept[name] = wanted[name] = self._configs[name]
        self.hive.keep_agents(kept)
        moment, before = time.monotonic(), self._configs
        self._gone = {name: self._gone.get(name, moment) for name in before if name not in wanted}
        for name, since in [*self._gone.items()]:
            if moment - since < _GONE_AFTER_S:
                wanted[name] = before[name]
            else:
                del self._gone[name]
        self._configs = wanted
        runs, ran = self._run(wanted), self._run(before)
        return AgentChanges(
            tuple(name for name in runs if name not in ran),
            tuple(name for name in ran if name in runs and runs[name] != ran[name]),
            tuple(name for name in ran if name not in runs),
        )

    def has_file(self, name: str) -> bool:
        """Whether there is a file for that agent, whatever it says."""
        return name in self._configs or self.hive.agent_files.why_aside(name) is not None

    def _run(self, configs: Mapping[str, AgentConfig]) -> dict[str, AgentConfig]:
        """Those of them that a supervisor runs."""
        wanted = configs if self._only is None else self._only
        return {name: config for name, config in configs.items() if name in wanted and not config.outside}

    def _is_whole(self, name: str) -> bool:
        try:
            file = os.open(self.hive.layout.agents / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # gone, or not to be read: said when it is
            return True
        try:
            return is_settled(file, self.hive.config.settle_ms, datetime.now(UTC))
        finally:
            os.close(file)


def _signature(layout: Layout) -> dict[str, tuple[int, int, int]] | None:
    """Which files lie in agents/, and which version of each; None without the folder."""
    try:
        with os.scandir(layout.agents) as entries:
            files = [
                (one.name, one.stat()) for one in entries if one.name.endswith((".yaml", ".yml")) and one.is_file()
            ]
    except OSError:
        return None
    return {name: (found.st_ino, found.st_size, found.st_mtime_ns) for name, found in files}
