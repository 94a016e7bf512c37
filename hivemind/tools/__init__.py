"""The tools that minds, the command line and MCP clients call."""

from __future__ import annotations

from hivemind.tools.registry import MEMBER_TOOLS, PROFILES, TOOLS, TOOLSETS, allowed_tools
from hivemind.tools.tool import Arguments, Tool, ToolProblem
from hivemind.tools.tool_context import MemberTasks, ToolContext

__all__ = [
    "MEMBER_TOOLS",
    "PROFILES",
    "TOOLS",
    "TOOLSETS",
    "Arguments",
    "MemberTasks",
    "Tool",
    "ToolContext",
    "ToolProblem",
    "allowed_tools",
]
