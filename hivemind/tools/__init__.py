"""The tools that minds, the command line and MCP clients call."""

from __future__ import annotations

from hivemind.tools.registry import MEMBER_TOOLS, PROFILES, TOOLS, TOOLSETS, allowed_tools
from hivemind.tools.session import MemberTasks, Session
from hivemind.tools.tool import Arguments, Tool, ToolProblem

__all__ = [
    "MEMBER_TOOLS",
    "PROFILES",
    "TOOLS",
    "TOOLSETS",
    "Arguments",
    "MemberTasks",
    "Session",
    "Tool",
    "ToolProblem",
    "allowed_tools",
]
