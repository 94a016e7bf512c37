"""A rehearsal: what an agent does at its start, done beforehand in the agents' parent, in a hive that is thrown away.

A forked process shares memory with its parent until it writes there, and in Python looking at an object for the first
time writes: lookups are cached, code is specialised, patterns are compiled. What the parent has done, its children find
done, in memory that they share.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hivemind.agent.agent import Agent
from hivemind.config import HiveConfig
from hivemind.layout import Layout
from hivemind.presence.identity import announce, farewell, take_name
from hivemind.presence.parts import Parts

__all__ = ["rehearse"]

_NAME = "rehearsal"
_TIMES = 8  # so often Python runs a function before it specialises its code


def rehearse(open_hive: Callable[[Path], Parts], config: HiveConfig) -> None:
    """Be an agent that finds nothing to do, a few times over. Leaves no file, thread or lock. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="hivemind-rehearsal-", ignore_cleanup_errors=True) as folder:
        layout = Layout.at(folder)
        layout.agents.mkdir()
        layout.agent_config(_NAME).touch()
        layout.config.write_text(f"durability: relaxed\nencoding: {config.encoding}\naccess: {config.access}\n")
        for _ in range(_TIMES):
            _live(open_hive(layout.root))


def _live(hive: Parts) -> None:
    lock = take_name(hive.layout, _NAME)
    incarnation = announce(hive.journal, _NAME, 0)
    agent = Agent(hive, _NAME, incarnation)
    agent.scheduler.holding.resume()
    agent.status.beat()
    agent.cycle()
    agent.memory.save()
    agent.status.update(state="idle")
    agent.close()
    farewell(hive.journal, _NAME, incarnation, by="itself")
    lock.release()
    hive.tasks.close()
    hive.journal.close()
