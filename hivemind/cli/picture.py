"""The live picture of a swarm (`hivemind up` on a terminal): its lines, and how they are redrawn in place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from hivemind.cli.output import table
from hivemind.cli.text import fit, natural, one_line, terminal_size

if TYPE_CHECKING:
    from hivemind.presence.status import AgentStatus
    from hivemind.swarm.swarm import SwarmPicture

__all__ = ["Screen", "keyboard_alone", "picture_lines", "tokens_of"]

_HEADS = ("AGENT", "STATE", "TASK", "STEP", "MAIL", "TOKENS", "LAST ACTION")
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_TO_LINE_END, _TO_SCREEN_END = "\x1b[K", "\x1b[J"
_HOME = "\x1b[H"
_FRAME = 6  # title, counts, empty line, heads, "and more", the line about Ctrl-C
_FIRST = {"working": 0, "starting": 1, "waiting": 1, "stopping": 2}


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


def tokens_of(used: int, budget: int | None, cached: int = 0) -> str:
    """`1,200 of 100,000`, or `1,200` where there is no budget; and how many a provider's cache had."""
    told = f"{used:,}" if budget is None else f"{used:,} of {budget:,}"
    return f"{told} ({cached:,} cached)" if cached else told


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


class Screen:
    """A part of the terminal, from the cursor down. What stands there last stays when it is left, save the last line.

    Between two drawings the terminal is in its usual state: a kill -9 or a Ctrl-Z leaves nothing to be restored. A Ctrl-C
    makes the terminal drop what it has not shown yet, the end of a drawing included, so leaving restores the state again.
    The size is read anew each time; a terminal that was resized may have folded the old lines in ways that nobody can
    tell, so it is cleared then.
    """

    def __init__(self) -> None:
        self._drawn: list[str] = []
        self._size = terminal_size()

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:  # the last line was a hint for as long as it went on; what the terminal echoed (^C) goes too
            sys.stdout.write(f"{_WRAP}\x1b[1A\r{_TO_SCREEN_END}")
            sys.stdout.flush()

    def draw(self, render: Callable[[int, int], Sequence[str]]) -> None:
        """Show the lines that `render(columns, rows)` gives, which must fit, instead of those before."""
        size = terminal_size()
        lines = list(render(size[0], max(1, size[1] - 1)))  # the last row is the cursor's
        if lines == self._drawn and size == self._size:
            return
        back = f"\x1b[{len(self._drawn)}A\r" if self._drawn else "\r"
        start = back if size == self._size else _HOME + _TO_SCREEN_END
        shown = "".join(f"{line}{_TO_LINE_END}\n" for line in lines)
        sys.stdout.write(_NO_WRAP + start + shown + _TO_SCREEN_END + _WRAP)
        sys.stdout.flush()
        self._drawn, self._size = lines, size


@contextmanager
def keyboard_alone() -> Iterator[int]:
    """Standard input key by key, on a screen of its own; the terminal is as it was when this is left."""
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    sys.stdout.write("\x1b[?1049h\x1b[?25l\x1b[H")
    try:
        tty.setcbreak(file)
        yield file
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
