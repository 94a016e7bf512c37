"""The command line: parse arguments, call other packages, print the output."""

from __future__ import annotations

from hivemind.cli.main import main

__all__ = ["main"]
