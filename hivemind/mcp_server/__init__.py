"""The MCP server, through which a program outside works in a hive as one of its agents."""

from __future__ import annotations

from hivemind.mcp_server.serve import serve_http, serve_stdio

__all__ = ["serve_http", "serve_stdio"]
