"""Agent ids and lanes. Lanes separate the drafts of agents that work on one graph."""

from __future__ import annotations

from functools import lru_cache

from hivemind.coordination.errors import CoordinationError
from hivemind.errors import UserError
from hivemind.names import check_name


@lru_cache(maxsize=4096)  # applying an event calls it
def check_agent(agent_id: object) -> str:
    """Return the agent_id, trimmed and in lower case: 1 to 64 letters, digits, `.`, `_`, `-`; first a letter or digit.

    Raises CoordinationError (`INVALID_AGENT_ID`).
    """
    try:
        return check_name(agent_id, "agent_id")
    except UserError as error:
        raise CoordinationError(error.message, code="INVALID_AGENT_ID", remedy=error.remedy) from None


SHARED_LANE = "shared"
_AGENT_PREFIX = "agent/"


def lane_of(agent_id: str | None) -> str:
    """Return the lane of the agent's drafts; without an agent, the shared lane."""
    return SHARED_LANE if agent_id is None else _AGENT_PREFIX + check_agent(agent_id)


def check_lane(lane: object) -> str:
    """Return the lane in normal form: `shared` or `agent/<id>`. Raises CoordinationError (`INVALID_LANE`)."""
    text = lane.strip().lower() if isinstance(lane, str) else ""
    if text == SHARED_LANE:
        return SHARED_LANE
    if text.startswith(_AGENT_PREFIX):
        return lane_of(text.removeprefix(_AGENT_PREFIX))
    raise CoordinationError(
        f"{lane!r} is not a lane", code="INVALID_LANE", remedy=f"a lane is {SHARED_LANE} or {_AGENT_PREFIX}<agent_id>"
    )


def is_lane_visible(
    lane: str | None, agent_id: str | None, all_lanes: bool = False, draft_lane: str | None = None
) -> bool:
    """Return True if the agent sees entries of `lane` (None: shared).

    An agent sees the shared lane, the lane of its name, and `draft_lane` if it drafts in another lane than its name's.
    With `all_lanes` every lane is visible. Call this before applying a limit, so other agents' drafts do not use it up.
    """
    if all_lanes or lane is None or lane == SHARED_LANE:
        return True
    return agent_id is not None and lane in (lane_of(agent_id), draft_lane)
