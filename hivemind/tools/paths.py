"""Tools that reserve paths, so that two agents never edit one file at the same time (spec 7, *Files*)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from hivemind.coordination import Reservations
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool

__all__ = ["PATH_TOOLS"]


class Reserve(Arguments):
    paths: list[str] = Field(min_length=1, max_length=64, description="globs from the hive's root: knowledge/boats/**")
    shared: bool = Field(False, description="others may reserve them as shared, too")
    reason: str = ""


class Release(Arguments):
    reservation: int | None = Field(None, description="its number; default: all of yours")


@tool()
def reserve(session: Session, arguments: Reserve) -> dict[str, Any]:
    """Reserve paths before you edit them: refused if any path could be one that another agent has reserved."""
    held = Reservations(session.hive.journal)
    made = held.reserve(session.agent, arguments.paths, shared=arguments.shared, reason=arguments.reason or None)
    return {"reservation": made.id, "paths": list(made.patterns), "shared": made.shared}


@tool()
def release(session: Session, arguments: Release) -> dict[str, Any]:
    """Give reserved paths back. What you do not give back ends with you."""
    held = Reservations(session.hive.journal)
    if arguments.reservation is None:
        return {"released": held.release_all(session.agent)}
    if not held.release(arguments.reservation, session.agent):
        raise ToolProblem(f"you hold no reservation {arguments.reservation}")
    return {"released": 1}


PATH_TOOLS = (reserve, release)
