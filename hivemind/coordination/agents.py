"""The identity that coordination goes by: `agent_id` (spec 3, *Lanes, publish, branches*)."""

from __future__ import annotations

from functools import lru_cache

from hivemind.coordination.errors import CoordinationError
from hivemind.errors import UserError
from hivemind.names import check_name

__all__ = ["check_agent"]


def check_agent(agent_id: object) -> str:
    """The agent_id trimmed and lower-cased: 1 to 64 characters, first a letter or digit, then those and `. _ -`.

    Raises CoordinationError (`INVALID_AGENT_ID`).
    """
    if not isinstance(agent_id, str):
        raise CoordinationError(f"{agent_id!r} is no agent_id", code="INVALID_AGENT_ID", mend="give the agent's name")
    return _checked(agent_id)


@lru_cache(maxsize=4096)
def _checked(agent_id: str) -> str:
    try:
        return check_name(agent_id, "agent_id")
    except UserError as error:
        raise CoordinationError(error.what, code="INVALID_AGENT_ID", mend=error.mend) from None
