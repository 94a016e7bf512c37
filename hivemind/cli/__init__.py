"""The command line: parse, call, render; no rules of its own."""

from __future__ import annotations

from hivemind.cli.main import main

__all__ = ["main"]
