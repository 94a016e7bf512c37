"""The ACP server, through which an editor uses a hive as a coding agent."""

from __future__ import annotations

from hivemind.acp_server.serve import serve

__all__ = ["serve"]
