"""hivemind down: end the swarm in order, and wait for it."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from hivemind.cli.hive_of import layout_of
from hivemind.cli.output import print_json, say, warn
from hivemind.cli.parser import Commands, Parser, add_command, add_json

if TYPE_CHECKING:
    from hivemind.layout import Layout

__all__ = ["add_to"]


def add_to(commands: Commands, common: Parser) -> None:
    parser = add_command(
        commands,
        common,
        "down",
        run,
        "end the swarm in order",
        about="Asks the supervisor to end and waits until it has. Agents finish or leave their current action, give\n"
        "their leases back and end within 5 seconds; their tasks go on from disk with the next `hivemind up`.",
        examples="  hivemind down\n  hivemind down --timeout 30",
    )
    parser.add_argument("--timeout", type=_seconds, default=15.0, metavar="S", help="how long to wait (default: 15)")
    add_json(parser)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def run(arguments: argparse.Namespace) -> int:
    from hivemind.swarm.shutdown import end_swarm

    layout = layout_of(arguments)
    ended = end_swarm(layout, timeout_s=arguments.timeout)
    if ended is None or ended.over:
        _end_embedding(layout)
    if arguments.json:
        pid, over = (None, True) if ended is None else (ended.pid, ended.over)
        print_json({"pid": pid, "ended": over})
        return 0 if over else 1
    if ended is None:
        say(f"Nothing is up in {layout.root}." if layout.state.is_dir() else _no_state(layout))
        return 0
    if not ended.over:
        warn(
            f"process {ended.pid} has not ended within {arguments.timeout:g} s; look with ps -p {ended.pid}, wait, or kill it"
        )
        return 1
    say(f"The swarm of {layout.root} has ended (process {ended.pid}).")
    return 0


def _no_state(layout: Layout) -> str:
    return (
        f"{layout.root} has no .hive: nothing is up there. What was up when it was moved or removed ends by itself, mostly "
        "within a second."
    )


def _end_embedding(layout: Layout) -> None:
    """End the process that embeds, so that nothing of the hive runs any more; a command that still needs it starts it anew."""
    from hivemind.embedding import end_service

    with contextlib.suppress(OSError):  # another user's: it ends by itself a minute after its last client
        end_service(layout.embedder)
