"""hivemind up: the swarm, in the foreground with a live picture, or detached."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hivemind.cli.hive_of import layout_of, listed
from hivemind.cli.output import print_json, say, warn
from hivemind.cli.parser import Commands, Parser, add_command, add_json
from hivemind.cli.picture import picture_lines
from hivemind.cli.reader import reader_may_go
from hivemind.cli.screen import Screen
from hivemind.cli.text import is_terminal, one_line
from hivemind.layout import Layout

if TYPE_CHECKING:
    from hivemind.config import TokenBudget
    from hivemind.hive import Hive
    from hivemind.swarm.swarm import SwarmPicture, SwarmResult

__all__ = ["add_to"]

INTERRUPTED = 130
_FREE = ("extractive", "mcp")
"""Minds that use up no tokens of the hive's."""


def add_to(commands: Commands, common: Parser) -> None:
    parser = add_command(
        commands,
        common,
        "up",
        run,
        "start the swarm",
        about="Runs all agents under a supervisor until Ctrl-C or `hivemind down`, with a live picture on a terminal.\n"
        "With --until-idle it ends when no agent can do anything more: exit status 0 if every task is done, 1 if any\n"
        "failed, 3 if some are parked (they wait for a person, a time, a provider, another task), 130 if it was told to\n"
        "end before that.",
        examples="  hivemind up\n  hivemind up --until-idle\n  hivemind up --detach && hivemind status",
    )
    parser.add_argument("--until-idle", action="store_true", help="end when nothing is left to do")
    parser.add_argument("--detach", action="store_true", help="run in the background; its log is .hive/logs/swarm.log")
    parser.add_argument("--agents", action="append", metavar="NAME[,NAME]", help="only these agents (default: all)")
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="start although another machine had the hive up and never said that it ended: that machine is gone",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    # Nothing of the hive is opened here: run_swarm forks its agents from this process as it is now.
    layout = layout_of(arguments)
    _look_at_settings(layout, arguments.json)
    if arguments.detach:
        return _detached(arguments, layout)
    drawn = is_terminal() and not arguments.json
    with _live(layout) if drawn else contextlib.nullcontext() as on_tick:
        result = _swarm(arguments, layout, on_tick=on_tick)
    return _tell(result, arguments)


def _look_at_settings(layout: Layout, json: bool) -> None:
    """Take the umask that hive.yaml says; say which agents are set aside, and what those that cost something may use up."""
    from hivemind.hive import Hive

    hive = Hive.look(layout.root)
    for error in hive.agent_files.aside.values():
        warn(f"an agent is set aside: {error}")
    costly = {name: agent for name, agent in hive.agents.items() if agent.mind not in _FREE}
    if costly and not json:
        tasks = sorted({_bound(agent.budget.task) for agent in costly.values()})
        say(
            f"Budgets: a task {' or '.join(tasks)}, all agents together {_bound(hive.config.budget.day)} a day (hive.yaml)."
        )


def _bound(budget: TokenBudget) -> str:
    tokens = "any number of tokens" if budget.tokens is None else f"{budget.tokens:,} tokens"
    return tokens if budget.money is None else f"{tokens} and {budget.money:g} in money"


def _swarm(
    arguments: argparse.Namespace,
    layout: Layout,
    *,
    on_tick: Callable[[SwarmPicture], None] | None = None,
    on_ready: Callable[[], None] | None = None,
) -> SwarmResult:
    from hivemind.hive import Hive
    from hivemind.swarm.swarm import run_swarm

    def open_hive() -> Hive:
        return Hive.open(layout.root)

    names = listed(arguments.agents) if arguments.agents else None
    return run_swarm(
        open_hive,
        names=names,
        until_idle=arguments.until_idle,
        on_tick=on_tick,
        on_ready=on_ready,
        rehearse_in=Hive.open,
        from_other_machine=arguments.take_over,
    )


@contextlib.contextmanager
def _live(layout: Layout) -> Iterator[Callable[[SwarmPicture], None]]:
    """Draw the swarm in place; what it logs meanwhile goes to a file, not through the picture."""
    from hivemind.swarm.overview import TaskCounts

    counts = TaskCounts(layout)
    with _errors_to(layout.logs / "swarm.log"), Screen() as screen:

        def draw(picture: SwarmPicture) -> None:
            tasks = counts.now()
            screen.draw(lambda columns, rows: picture_lines(picture, tasks, layout.root, columns, rows))

        yield draw


@contextlib.contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Standard error goes to a file meanwhile, for the agents' parent too.

    The descriptor is turned round rather than logging given a file of its own: what is forked closes every descriptor but
    the first three, and a file that logging believes to be open would be another one by then.
    """
    from hivemind.swarm.process import open_log

    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    terminal = os.dup(2)
    file = open_log(log)
    os.dup2(file, 2)
    os.close(file)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)


def _detached(arguments: argparse.Namespace, layout: Layout) -> int:
    from hivemind.swarm.detach import detach

    layout.logs.mkdir(parents=True, exist_ok=True)
    log = layout.logs / "swarm.log"

    def work(ready: Callable[[], None]) -> int:
        return _tell(_swarm(arguments, layout, on_ready=ready), arguments)

    started = detach(work, log)
    if started.error is not None:
        warn(started.error)
        return started.status
    if arguments.json:
        print_json({"pid": started.pid, "log": log})
    else:
        say(f"The swarm of {layout.root} is up: process {started.pid}, log {layout.relative(log)}.")
        say("hivemind status shows it, hivemind down ends it.")
    return 0


def _tell(result: SwarmResult, arguments: argparse.Namespace) -> int:
    """Say what became of the tasks; gives the exit status."""
    with reader_may_go():
        if arguments.json:
            print_json(_record(result))
        else:
            _tell_people(result, arguments.until_idle)
    if result.interrupted:
        return INTERRUPTED
    return result.exit_status if arguments.until_idle else 0


def _record(result: SwarmResult) -> dict[str, Any]:
    return {
        "done": list(result.done),
        "failed": [{"task": task, "why": why} for task, why in result.failed],
        "parked": [{"task": task, "why": why} for task, why in result.parked],
        "interrupted": result.interrupted,
    }


def _tell_people(result: SwarmResult, idle: bool) -> None:
    for task in result.done:
        say(f"done    {task}: tasks/done/{task}/result.md")
    for task, why in result.failed:
        say(f"failed  {task}: {one_line(why)} (tasks/failed/{task}/error.md)")
    for task, why in result.parked:
        say(f"parked  {task}: {one_line(why)}")
    counts = f"{len(result.done)} done, {len(result.failed)} failed, {len(result.parked)} parked"
    say(f"The swarm was told to end: {counts}." if result.interrupted else f"The swarm has ended: {counts}.")
    if idle and not (result.done or result.failed or result.parked or result.interrupted):
        say("No task was there to be done: hivemind task add TEXT gives it one.")
