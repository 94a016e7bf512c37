"""The hive for MCP clients: a coding agent joins it as one of its agents (spec 7, *MCP*)."""

from __future__ import annotations

from hivemind.mcp_server.serve import serve_http, serve_stdio

__all__ = ["serve_http", "serve_stdio"]
