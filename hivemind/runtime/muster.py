"""The muster: what agents/*.yaml name is looked at before any agent is started, so that a slip is told once, with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hivemind.boundary import boundary
from hivemind.config import AgentConfig
from hivemind.errors import UserError
from hivemind.frontmatter import parse
from hivemind.layout import Layout
from hivemind.runtime.parts import Parts
from hivemind.runtime.tools import allowed_tools
from hivemind.runtime.usage import open_agents_mind

__all__ = ["muster", "muster_all", "place_of_key"]


def muster_all(hive: Parts) -> tuple[list[str], list[UserError]]:
    """The agents of the hive that can be started, and why each other one cannot: one file must not stop the rest.

    Raises UserError, the first of them, if none can.
    """
    ready: list[str] = []
    aside: dict[str, UserError] = {}
    for name, config in hive.agents.items():
        if not config.outside:
            try:
                muster(hive, [name])
                ready.append(name)
            except UserError as error:
                aside[str(error)] = error  # replicas have one between them
    if aside and not ready:
        raise next(iter(aside.values()))
    return ready, list(aside.values())


def muster(hive: Parts, names: Iterable[str]) -> None:
    """Check the mind and the tools that each of these agents names.

    Raises UserError with file, line, key and how to mend it, for the first that is none; and for a name that is no agent's.
    """
    seen: set[int] = set()
    for name in names:
        config = hive.agent_files.get(name)
        if config.outside:
            raise UserError(f"{name} comes from outside (mind: mcp): hivemind mcp --agent {name} is what it runs")
        if id(config) not in seen:  # replicas have one between them
            seen.add(id(config))
            _check(hive, name, config)


def _check(hive: Parts, name: str, config: AgentConfig) -> None:
    checks: dict[str, Callable[[], Any]] = {
        "mind": lambda: open_agents_mind(config, hive.config, hive.layout),
        "tools": lambda: allowed_tools(config.tools),
    }
    for key, check in checks.items():
        try:
            check()
        except UserError as error:
            what = error.what if error.where is None else f"{error.where}: {error.what}"
            raise UserError(f"{key}: {what}", where=place_of_key(hive.layout, name, key), mend=error.mend) from None


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
