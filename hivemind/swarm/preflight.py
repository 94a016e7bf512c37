"""The preflight: what agents/*.yaml name is looked at before any agent is started, so that a slip is told once, with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hivemind.agent.metering import open_agents_mind
from hivemind.config import AgentConfig, place_of_key
from hivemind.errors import UserError
from hivemind.presence.parts import Parts
from hivemind.taskrun.worktree import check_repository
from hivemind.tools import allowed_tools


def preflight_all(hive: Parts) -> tuple[list[str], dict[str, UserError]]:
    """The agents of the hive that can be started, and why each other one cannot: one file must not stop the rest.

    Raises UserError, the first of them, if none can.
    """
    ready: list[str] = []
    aside: dict[str, UserError] = {}
    for name, config in hive.agents.items():
        if not config.outside:
            try:
                preflight(hive, [name])
                ready.append(name)
            except UserError as error:
                aside[name] = error
    if aside and not ready:
        raise next(iter(aside.values()))
    return ready, aside


def preflight(hive: Parts, names: Iterable[str]) -> None:
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


def root_problems(hive: Parts) -> list[UserError]:
    """What is wrong with the folders under `roots:`: a task that needs one of them would fail."""
    found, config = [], hive.layout.config
    for path, root in zip(hive.config.read_roots(hive.layout), hive.config.roots, strict=True):
        if not path.is_dir():
            found.append(
                UserError(f"roots: {root.path} is no folder", location=config, remedy="correct it, or take it away")
            )
        elif root.worktree:
            try:
                check_repository(path)
            except UserError as error:
                found.append(
                    UserError(f"roots: {error.location}: {error.message}", location=config, remedy=error.remedy)
                )
    return found


def _check(hive: Parts, name: str, config: AgentConfig) -> None:
    checks: dict[str, Callable[[], Any]] = {
        "mind": lambda: open_agents_mind(config, hive.config, hive.layout),
        "tools" if config.tools is not None else "toolset": lambda: allowed_tools(config),
    }
    for key, check in checks.items():
        try:
            check()
        except UserError as error:
            what = error.message if error.location is None else f"{error.location}: {error.message}"
            raise UserError(
                f"{key}: {what}", location=place_of_key(hive.layout, name, key), remedy=error.remedy
            ) from None
