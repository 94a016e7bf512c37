"""The MCP server, through which an external program works in a hive as one of the hive's agents."""

from __future__ import annotations

from hivemind.mcp_server.serve import serve_http, serve_stdio

__all__ = ["serve_http", "serve_stdio"]
