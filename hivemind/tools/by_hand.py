"""Tools in the hands of a person at a command line: the same schemas and handlers that minds and MCP clients use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hivemind.config import AgentConfig
from hivemind.presence.heartbeat import Heartbeat
from hivemind.presence.parts import Parts
from hivemind.taskrun.focus import Focus
from hivemind.tools.registry import MEMBER_TOOLS, TOOLS
from hivemind.tools.session import Session
from hivemind.tools.tool import Tool, ToolProblem

__all__ = ["known_tool", "use_by_hand"]

_BEAT_S = 1.0


def known_tool(name: str) -> Tool:
    """The tool of that name. Raises ToolProblem naming those that there are."""
    found = TOOLS.get(name) or MEMBER_TOOLS.get(name)
    if found is None:
        raise ToolProblem(f"there is no tool {name!r}", mend=f"tools: {', '.join(sorted({*TOOLS, *MEMBER_TOOLS}))}")
    return found


def use_by_hand(hive: Parts, agent: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Use a tool once, for an agent or `human`, with nothing in focus: what needs a task in focus says so.

    A person may use any tool: the agent's `tools:` bind its mind. Raises UserError, and what the tool raises.
    """
    pulse = Heartbeat(lambda: None, _BEAT_S)
    session = Session(
        hive=hive, agent=agent, config=hive.agents.get(agent, AgentConfig()), focus=Focus(""), pulse=pulse, lifeline=None,
        stopping=lambda: False,
    )  # fmt: skip
    try:
        return known_tool(name).call(session, arguments)
    finally:
        pulse.close()
