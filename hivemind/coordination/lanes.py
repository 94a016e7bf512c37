"""Lanes: parallel drafts within one graph, kept from getting in each other's way (seed 002, *Lanes vs branches*)."""

from __future__ import annotations

from hivemind.coordination.agents import check_agent
from hivemind.coordination.errors import CoordinationError

__all__ = ["SHARED", "check_lane", "lane_of", "lane_visible"]

SHARED = "shared"
_AGENT = "agent/"


def lane_of(agent_id: str | None) -> str:
    """The lane that an agent drafts in; without an agent, the shared one."""
    return SHARED if agent_id is None else _AGENT + check_agent(agent_id)


def check_lane(lane: object) -> str:
    """The lane in its one form: `shared` or `agent/<id>`. Raises CoordinationError (`INVALID_LANE`)."""
    text = lane.strip().lower() if isinstance(lane, str) else ""
    if text == SHARED:
        return SHARED
    if text.startswith(_AGENT):
        return lane_of(text.removeprefix(_AGENT))
    raise CoordinationError(
        f"{lane!r} is no lane", code="INVALID_LANE", mend=f"a lane is {SHARED} or {_AGENT}<agent_id>"
    )


def lane_visible(lane: str | None, agent_id: str | None, all_lanes: bool = False, drafts: str | None = None) -> bool:
    """Whether what lies in `lane` (None: shared) is shown: shared and one's own; everything with `all_lanes`. `drafts` is
    the lane that the agent drafts in, if not in the one of its name.

    Apply it before any limit, so that another's drafts cannot starve a view.
    """
    if all_lanes or lane is None or lane == SHARED:
        return True
    return agent_id is not None and lane in (lane_of(agent_id), drafts)
