"""Who acts, and in which lane: parallel drafts within one graph, kept apart (spec 3, *Lanes, publish, branches*)."""

from __future__ import annotations

from functools import lru_cache

from hivemind.coordination.errors import CoordinationError
from hivemind.errors import UserError
from hivemind.names import check_name


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
