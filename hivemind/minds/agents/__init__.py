"""Coding agents as minds: profiles of the programs, and the MCP server that hands their calls to the agent that runs them."""

from __future__ import annotations

from hivemind.minds.agents.mind import AgentMind, last_line
from hivemind.minds.agents.profile import SHIPPED, AgentProgram, Line, Profile, program_config

__all__ = ["SHIPPED", "AgentMind", "AgentProgram", "Line", "Profile", "last_line", "program_config"]
