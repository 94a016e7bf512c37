"""Hives to measure in: a new one, and its swarm."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hivemind.fs import set_durability
from hivemind.layout import Layout

__all__ = ["new_hive", "placed", "up"]
_P = TypeVar("_P")


def new_hive(agent: str, durability: str = "relaxed", knowledge: str = "") -> Layout:
    """A hive in the temporary folder, with one agent's file (`w.yaml`) and, where there is a text, a file of knowledge."""
    layout = Layout.at(tempfile.mkdtemp(prefix="hive-"))
    for folder in (layout.agents, layout.knowledge):
        folder.mkdir()
    layout.config.write_text(f"durability: {durability}\n")
    layout.agent_config("w").write_text(agent)
    if knowledge:
        (layout.knowledge / "pumps.md").write_text(knowledge)
    return layout


def placed(place: _P, *, durable: bool = False) -> _P:
    """Set whether this process flushes what it writes to a folder, a file or a database's URL, and return it."""
    set_durability(str(place), durable=durable)
    return place


@contextmanager
def up(root: Path, *words: str) -> Iterator[int]:
    """Start a hive's swarm by `python -m hivemind up`, or by another module and its words; yield its process id."""
    command = [sys.executable, "-m", *(words or ("hivemind", "--hive", str(root), "up"))]
    swarm = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield swarm.pid
    finally:
        swarm.terminate()
        swarm.wait(300)
