"""Coding agents as minds: profiles of the programs, and the MCP server that passes their calls to the agent's process."""

from __future__ import annotations

from hivemind.minds.agents.mind import AgentMind, last_line
from hivemind.minds.agents.profile import SHIPPED, AgentProgram, OutputLine, Profile, program_config

__all__ = ["SHIPPED", "AgentMind", "AgentProgram", "OutputLine", "Profile", "last_line", "program_config"]
