"""Coding agents as minds: profiles of the programs, the readers of their protocols, and the MCP server that passes their calls
to the agent's process."""
