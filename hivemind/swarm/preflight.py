"""The preflight: check the minds and tools in agents/*.yaml before any agent starts, and report each mistake once, with
its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hivemind.agent.metering import open_agents_mind
from hivemind.config import HiveConfig, key_location
from hivemind.errors import UserError
from hivemind.layout import Layout
from hivemind.presence.parts import Parts
from hivemind.taskrun.worktree import check_repository
from hivemind.tools import allowed_tools


def preflight_all(hive: Parts) -> tuple[list[str], dict[str, UserError]]:
    """Return the agents that can start, and the error of each agent that cannot: one bad file must not stop the others.

    Raises the first UserError if no agent can start.
    """
    ready: list[str] = []
    aside: dict[str, UserError] = {}
    for name, config in hive.agents.items():
        if not config.outside:
            try:
                preflight(hive, name)
                ready.append(name)
            except UserError as error:
                aside[name] = error
    if aside and not ready:
        raise next(iter(aside.values()))
    return ready, aside


def preflight(hive: Parts, name: str) -> None:
    """Check the mind and the tools of an agent.

    Raises UserError with file, line, key and remedy for the first mistake, and for an unknown agent.
    """
    config = hive.agent_files.get(name)
    if config.outside:
        raise UserError(f"{name} is a member (mind: mcp): its program runs hivemind mcp --agent {name}")
    checks: dict[str, Callable[[], Any]] = {
        "mind": lambda: open_agents_mind(config, hive.config, hive.layout),
        "tools" if config.tools is not None else "toolset": lambda: allowed_tools(config),
    }
    for key, check in checks.items():
        try:
            check()
        except UserError as error:
            message = error.message if error.location is None else f"{error.location}: {error.message}"
            raise UserError(
                f"{key}: {message}", location=key_location(hive.layout, name, key), remedy=error.remedy
            ) from None


def root_problems(settings: HiveConfig, layout: Layout) -> Iterator[UserError]:
    """Yield the errors in `roots:` of hive.yaml. A task cannot continue with a broken root."""
    for path, root in zip(settings.read_roots(layout), settings.roots, strict=True):
        if not path.is_dir():
            yield UserError(
                f"roots: {root.path} is not a folder", location=layout.config, remedy="correct it, or remove it"
            )
        elif root.worktree:
            try:
                check_repository(path)
            except UserError as error:
                yield UserError(
                    f"roots: {error.location}: {error.message}", location=layout.config, remedy=error.remedy
                )
