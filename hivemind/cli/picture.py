"""The live picture of a swarm as lines of text (`hivemind up` on a terminal)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind.cli.output import table
from hivemind.cli.text import fit, natural, one_line

if TYPE_CHECKING:
    from hivemind.presence.status import AgentStatus
    from hivemind.swarm.swarm import SwarmPicture

__all__ = ["picture_lines", "tokens_of"]

_HEADS = ("AGENT", "STATE", "TASK", "STEP", "MAIL", "TOKENS", "LAST ACTION")
_FRAME = 6  # title, counts, empty line, heads, "and more", the line about Ctrl-C
_FIRST = {"working": 0, "starting": 1, "stopping": 2}


def picture_lines(picture: SwarmPicture, tasks: Mapping[str, int], root: Path, columns: int, rows: int) -> list[str]:
    """The picture in at most `rows` lines of at most `columns`; agents at work come first if not all of them fit."""
    shown, hidden = _chosen(picture.agents, picture.pids, max(1, rows - _FRAME))
    lines = [
        f"hivemind  {_clock(picture.seconds)}  {len(picture.pids)} of {len(picture.agents)} agents up"
        f"  watching: {one_line(picture.watching)}  {root}",
        f"tasks: {tasks['inbox']} waiting, {tasks['active']} active, {tasks['done']} done, {tasks['failed']} failed",
        "",
        *table([_HEADS, *(_row(agent, picture.pids) for agent in shown)], columns),
    ]
    if hidden:
        lines.append(f"… and {hidden} more")
    return [fit(line, columns) for line in [*lines, "Ctrl-C ends the swarm in order."]][:rows]


def tokens_of(used: int, budget: int | None) -> str:
    """`1,200 of 100,000`, or `1,200` where there is no budget."""
    return f"{used:,}" if budget is None else f"{used:,} of {budget:,}"


def _chosen(agents: tuple[AgentStatus, ...], pids: Mapping[str, int], room: int) -> tuple[list[AgentStatus], int]:
    """(agents to show by name, how many are left out): all if there is room, else those at work before the idle."""
    if len(agents) <= room:
        return sorted(agents, key=lambda agent: natural(agent.name)), 0
    busiest = sorted(
        agents, key=lambda agent: (agent.name not in pids, _FIRST.get(agent.state, 3), natural(agent.name))
    )
    return sorted(busiest[:room], key=lambda agent: natural(agent.name)), len(agents) - room


def _row(agent: AgentStatus, pids: Mapping[str, int]) -> tuple[str, ...]:
    """What an agent says of itself, if it is the process that says so."""
    pid = pids.get(agent.name)
    if pid is None or pid != agent.pid:
        return (agent.name, "down" if pid is None else "starting", *["-"] * (len(_HEADS) - 2))
    task, step, action = (one_line(text or "-") for text in (agent.task, agent.step, agent.last_action))
    return (agent.name, agent.state, task, step, str(agent.unread), tokens_of(agent.tokens, agent.budget), action)


def _clock(seconds: float) -> str:
    """`0:07`, `12:34`, `1:02:03`."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"
