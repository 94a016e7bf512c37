"""Boxes for what agents run: bubblewrap's command line, and the way to the network for programs in a box."""

from __future__ import annotations

from hivemind.sandbox.bubblewrap import check_sandbox, has_sandbox, sandbox_command
from hivemind.sandbox.hosts import Hosts
from hivemind.sandbox.program_box import BoxSettings, ProgramBox, loopback_urls

__all__ = ["BoxSettings", "Hosts", "ProgramBox", "check_sandbox", "has_sandbox", "loopback_urls", "sandbox_command"]
