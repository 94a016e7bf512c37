"""Coding agents as minds: profiles of the programs, the readers of their protocols, and the MCP server that passes their calls
to the agent's process."""

from __future__ import annotations

from hivemind.minds.agents.mind import AgentMind, last_line
from hivemind.minds.agents.profile import SHIPPED, AgentProgram, Profile, program_config
from hivemind.minds.agents.session import ProgramSession

__all__ = ["SHIPPED", "AgentMind", "AgentProgram", "Profile", "ProgramSession", "last_line", "program_config"]
