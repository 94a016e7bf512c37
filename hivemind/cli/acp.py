"""Let an editor use the hive as a coding agent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hivemind.cli.command import command
from hivemind.cli.open_hive import find_layout
from hivemind.cli.output import warn

if TYPE_CHECKING:
    from hivemind.layout import Layout


@command("acp", find_layout, fixed_format=True)
def acp(layout: Layout) -> None:
    """Let an editor that speaks the Agent Client Protocol use the hive as a coding agent.

    The editor starts this command (Zed, JetBrains, Neovim; knowledge/manual/17-coding-agents.md says how). Each prompt
    becomes a task of the hive, and the swarm works on it. Without a running swarm the task waits, and the editor shows how
    to start one. If the editor ends, its tasks go on; a later session can load them.

    examples:
      hivemind --hive ~/my-hive acp
    """
    from hivemind.acp_server import serve

    if sys.stdin.isatty():
        warn("an editor starts this command and speaks the Agent Client Protocol with it; Ctrl-D ends it")
    serve(layout)
