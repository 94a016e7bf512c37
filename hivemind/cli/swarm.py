"""The swarm: made, started, shown, ended."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hivemind.cli.command import INTERRUPTED, Answer, Arg, command
from hivemind.cli.opening import anywhere, caller, layout_of, listed, look_at, open_hive
from hivemind.cli.output import say, table_lines, warn
from hivemind.cli.screen import Screen
from hivemind.cli.text import is_terminal, natural, one_line
from hivemind.errors import HivemindError, UserError
from hivemind.names import slug

if TYPE_CHECKING:
    from hivemind.config import TokenBudget
    from hivemind.hive import Hive
    from hivemind.layout import Layout
    from hivemind.longterm.postgres import ServerStatus
    from hivemind.presence.parts import Parts
    from hivemind.swarm.overview import AgentNow, Overview
    from hivemind.swarm.shutdown import Ended
    from hivemind.swarm.swarm import SwarmResult
    from hivemind.tasks import Scheduled
    from hivemind.web.snapshot import Need

_FREE = ("extractive", "mcp")
"""Minds that use up no tokens of the hive's."""
_COLUMNS = ("agent", "state", "pid", "task", "step", "unread", "tokens", "last_action")
_COST = (*_COLUMNS[:-1], "cost", _COLUMNS[-1])
_SHOWN_BY = {"letter": "mail read human", "failed": "task show"}  # the other needs stand under headings of their own
_SHOWN = 20  # so many leases, and tasks that do not go on, are named


@command("init", anywhere)
def init(
    at: str | None,
    path: str | None = None,
    folder: str | None = None,
    *,
    for_: Literal["git"] | None = None,
    workspace: str | None = None,
) -> Answer:
    """Make a hive in a folder.

    Makes the folders with a README in each, three agents with their mailboxes, a short ROM and the manual.
    Files that are there already stay as they are. With --for git the agents are a lead, two coders and a reviewer,
    run by the coding agents that are found on this machine, and each task is worked on in a worktree of its own.

    arguments:
      PATH  the folder (default: --hive, or this one); with --for git the repository
      HIVE  with --for git: the folder (default: --hive, or REPOSITORY-hive beside the repository)
      --for KIND  git: for a git repository
      --workspace NAME  the right side of its mail addresses, and its name among linked hives; it stays (default: the
          folder's name)

    examples:
      hivemind init my-hive
      hivemind init --for git my-repository
    """
    from hivemind.hive import Hive

    if for_ == "git":
        return _init_for_git(Path(path or ".").resolve(), folder or at, workspace)
    if folder is not None:
        raise UserError(f"what is {folder!r}?", mend="a second folder is named with --for git alone")
    root = Path(path or at or ".").resolve()
    hive = Hive.init(root, workspace=workspace or slug(root.name, "hive"))
    lines = (
        f"A hive in {hive.layout.root}, with the agents {', '.join(hive.agents)}; its workspace is {hive.config.workspace}.",
        'Next, in that folder: hivemind task add "What is a lease?" and hivemind up --until-idle',
    )
    return Answer({"hive": hive.layout.root, "agents": list(hive.agents)}, lines)


def _init_for_git(repository: Path, at: str | None, workspace: str | None) -> Answer:
    from hivemind.hive import Hive
    from hivemind.layout import Layout
    from hivemind.swarm.for_git import files_for_git, find_programs

    layout = Layout.at(at or repository.with_name(f"{repository.name}-hive"))
    programs = find_programs()
    workspace = workspace or slug(layout.root.name, "hive")
    hive = Hive.init(layout.root, files_for_git(layout, repository, programs), workspace)
    minds = {name: agent.mind["agent"] for name, agent in hive.agents.items() if isinstance(agent.mind, dict)}
    lines = [
        f"A hive in {layout.root} for {repository}: {', '.join(f'{name} ({mind})' for name, mind in minds.items())}.",
        *(str(one.missing) for one in programs if one.missing is not None),
        f"Next: cd {layout.root}; hivemind agent try lead 'Say hello.'; hivemind task add --role lead '...'; hivemind up",
    ]
    return Answer({"hive": layout.root, "repository": repository, "agents": minds}, lines)


@command("up", layout_of)
def up(
    layout: Layout,
    *,
    until_idle: bool = False,
    detach: bool = False,
    agents: list[str] | None = None,
    take_over: bool = False,
    print_unit: bool = False,
    json: bool,
) -> Answer | int:
    """Start the swarm.

    Runs all agents under a supervisor until Ctrl-C or `hivemind down`, with a live picture on a terminal.
    With --until-idle it ends when no agent can do anything more: exit status 0 if every task is done, 1 if any
    failed, 3 if some are parked (they wait for a person, a time, a provider, another task), 130 if it was told to
    end before that.

    arguments:
      --until-idle  end when nothing is left to do
      --detach  run in the background; its log is .hive/logs/swarm.log
      --agents AGENT[,AGENT]  only these agents (default: all)
      --take-over  start although another machine had the hive up and never said that it ended: that machine is
          gone
      --print-unit  start nothing; print a unit for systemd that keeps this hive up as a service of yours

    examples:
      hivemind up
      hivemind up --until-idle
      hivemind up --detach && hivemind status
      hivemind up --print-unit
    """
    if print_unit:
        from hivemind.swarm.unit import unit

        return Answer({"unit": (text := unit(layout, listed(agents) if agents else ()))}, [text.rstrip("\n")])
    # Nothing of the hive is opened here: run_swarm forks its agents from this process as it is now.
    _look_at_settings(layout, json)

    def run(**seen: Callable[..., None]) -> Answer:
        from hivemind.hive import Hive
        from hivemind.swarm.swarm import run_swarm

        result = run_swarm(
            lambda: Hive.open(layout.root),
            names=listed(agents) if agents else None,
            until_idle=until_idle,
            from_other_machine=take_over,
            exchange=_carry,
            **seen,
        )
        status = INTERRUPTED if result.interrupted else result.exit_status if until_idle else 0
        return Answer(_result(result), _result_lines(result, until_idle), status)

    if detach:
        return _detached(layout, lambda ready: run(on_ready=ready).tell(json))
    if json or not is_terminal():
        return run()
    with _live(layout) as draw:
        return run(on_tick=draw)


def _carry(hive: Parts, lifeline: int) -> int:
    from hivemind.exchange.process import run_exchange  # its client of PostgreSQL is loaded where it is needed

    return run_exchange(hive, lifeline)


def _look_at_settings(layout: Layout, json: bool) -> None:
    """Take the umask that hive.yaml says; say which agents are set aside, and what those that cost something may use up."""
    from hivemind.hive import Hive

    hive = Hive.look(layout.root)
    for error in hive.agent_files.aside.values():
        warn(f"an agent is set aside: {error}")
    costly = {name: agent for name, agent in hive.agents.items() if agent.mind not in _FREE}
    if costly and not json:
        tasks = " or ".join(sorted({_bound(agent.budget.task) for agent in costly.values()}))
        say(f"Budgets: a task {tasks}, all agents together {_bound(hive.config.budget.day)} a day (hive.yaml).")


def _bound(budget: TokenBudget) -> str:
    tokens = "any number of tokens" if budget.tokens is None else f"{budget.tokens:,} tokens"
    return tokens if budget.money is None else f"{tokens} and {budget.money:g} in money"


@contextlib.contextmanager
def _live(layout: Layout) -> Iterator[Callable[[], None]]:
    """Draw the swarm in place; what it logs meanwhile goes to a file, not through the picture."""
    from hivemind.cli.top import up_lines
    from hivemind.hive import Hive
    from hivemind.web.snapshot import look

    hive = Hive.look(layout.root)
    with _errors_to(layout.logs / "swarm.log"), Screen() as screen:

        def draw() -> None:
            with contextlib.suppress(HivemindError, OSError):  # what cannot be looked at now does not end the swarm
                screen.draw(partial(up_lines, look(hive)))

        yield draw


@contextlib.contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Standard error goes to a file meanwhile, for the agents' parent too.

    The descriptor is redirected rather than logging given a file of its own: a forked process closes every descriptor but
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


def _detached(layout: Layout, work: Callable[[Callable[[], None]], int]) -> Answer | int:
    from hivemind.presence.watching import agent_problems
    from hivemind.swarm.detach import detach

    layout.logs.mkdir(parents=True, exist_ok=True)
    log = layout.logs / "swarm.log"
    started = detach(work, log)
    if started.error is not None:
        warn(started.error)
        return started.status
    for name, why in agent_problems(layout.locks).items():
        warn(f"{name} is set aside: {why}")
    lines = (
        f"The swarm of {layout.root} is up: process {started.pid}, log {layout.relative(log)}.",
        "hivemind status shows it, hivemind down ends it.",
    )
    return Answer({"pid": started.pid, "log": log}, lines)


def _result(result: SwarmResult) -> dict[str, Any]:
    return {
        "done": list(result.done),
        "failed": _reasons(result.failed),
        "parked": _reasons(result.parked),
        "interrupted": result.interrupted,
    }


def _reasons(pairs: Sequence[tuple[str, str]], name: str = "task", told: str = "why") -> list[dict[str, str]]:
    return [{name: one, told: why} for one, why in pairs]


def _result_lines(result: SwarmResult, until_idle: bool) -> Iterator[str]:
    yield from (f"done    {task}: tasks/done/{task}/result.md" for task in result.done)
    yield from (f"failed  {task}: {one_line(why)} (tasks/failed/{task}/error.md)" for task, why in result.failed)
    yield from (f"parked  {task}: {one_line(why)}" for task, why in result.parked)
    counts = f"{len(result.done)} done, {len(result.failed)} failed, {len(result.parked)} parked"
    yield f"The swarm {'was told to end' if result.interrupted else 'has ended'}: {counts}."
    if until_idle and not (result.done or result.failed or result.parked or result.interrupted):
        yield "No task was there to be done: hivemind task add TEXT gives it one."


@command("down", layout_of)
def down(layout: Layout, *, timeout: Annotated[float, Arg(most=1000000.0)] = 15.0) -> Answer:
    """End the swarm in order.

    Asks the supervisor to end and waits until it has. Agents finish or leave their current action, give
    their leases back and end within 5 seconds; their tasks go on from disk with the next `hivemind up`.

    arguments:
      --timeout S  how long to wait, in seconds (default: 15)

    examples:
      hivemind down
      hivemind down --timeout 30
    """
    from hivemind.layout import HUMAN
    from hivemind.swarm.shutdown import end_swarm

    if caller(layout) != HUMAN:
        raise UserError("an agent's command cannot end the swarm that it runs in: each `up` would run it again")
    ended = end_swarm(layout, timeout_s=timeout)
    if ended.pid is not None:
        line = f"The swarm of {layout.root} has ended (process {ended.pid})."
    elif layout.state.is_dir():
        line = f"Nothing is up in {layout.root}."
    else:
        line = (
            f"{layout.root} has no .hive: nothing is up there. What was up when it was moved or removed ends by itself, "
            "mostly within a second."
        )
    return told_end(ended, timeout, line)


def told_end(ended: Ended, timeout_s: float, line: str, **whose: str) -> Answer:
    """The line if it is over; else standard error is told what to do."""
    if not ended.over:
        warn(f"process {ended.pid} has not ended within {timeout_s:g} s; look with ps -p {ended.pid}, wait, or kill it")
    return Answer(
        {**whose, "pid": ended.pid, "ended": ended.over}, [line] if ended.over else (), 0 if ended.over else 1
    )


@command("due", open_hive)
def due(hive: Hive) -> Answer:
    """Do once what is due, as a swarm that is up does by itself.

    Drops the tasks of tasks/schedule/ whose time has come, tells people of tasks that are done, failed or parked
    (`notify:` in hive.yaml), and once a day archives what is old (`retention:`). For a hive without a supervisor:
    call it from cron.

    examples:
      hivemind due
    """
    from hivemind.swarm.due import do_due

    done = do_due(hive)
    lines = [*(f"dropped {task}" for task in done.dropped), *(f"told by {one}" for one in done.told)]
    if done.archived is not None:
        lines.append(f"{done.archived}.")
    archived = None if done.archived is None else asdict(done.archived)
    record = {"dropped": list(done.dropped), "told": list(done.told), "archived": archived, "next": done.next}
    then = "" if done.next is None else f"; due again at {done.next:%Y-%m-%d %H:%M:%S} UTC"
    return Answer(record, [*lines, f"{len(done.dropped)} dropped, {len(done.told)} told{then}."])


@command("status", look_at, agents=True)
def status(hive: Hive, *, all_: bool = False) -> Answer:
    """Show who is up, what each agent does, how the tasks stand.

    arguments:
      --all  all linked hives, as they last told the exchange

    examples:
      hivemind status
      hivemind status --json | jq '.agents[] | select(.state == "working")'
    """
    if all_:
        return _all_hives(hive)
    from hivemind.web.snapshot import look

    snapshot, server = look(hive), _memory_server(hive)
    now = snapshot.overview
    needs = [need for need in snapshot.needs if need.kind in _SHOWN_BY]
    named = {
        "waiting": _reasons(now.waiting),
        "parked": _reasons(now.parked),
        "needs_you": [{"kind": need.kind, "id": need.about, "what": need.what} for need in needs],
        "left": _reasons(now.left),
        "mail_waits": _reasons(now.mail_waits, "agent"),
        "memory": None if server is None else asdict(server),
    }
    return Answer(asdict(now) | named, _status_lines(now, server, needs))


def _memory_server(hive: Hive) -> ServerStatus | None:
    """The database of a hive that keeps its memories in one."""
    if hive.config.memory is None:
        return None
    from hivemind.longterm.postgres import server_status

    return server_status(hive.config.memory)


def _all_hives(hive: Hive) -> Answer:
    from hivemind.exchange.link import hives_now, open_exchange

    with open_exchange(hive.layout) as connection:
        found = hives_now(connection)
    rows = [
        {
            "hive": one["hive"],
            "seen": None if one["problem"] else f"{one['seen_s']} s ago",
            "agents": one["problem"] or ", ".join(f"{name} {state}" for name, state in one["agents"].items()),
            **one["tasks"],
        }
        for one in found
    ]
    columns = ("hive", "seen", "inbox", "active", "done", "failed", "agents")
    return Answer(found, table_lines(rows, columns, empty="No hive is linked."))


def _status_lines(now: Overview, server: ServerStatus | None, needs: Sequence[Need]) -> Iterator[str]:
    from hivemind.swarm.overview import how_freed

    yield f"Hive       {now.hive} (workspace {now.workspace})"
    if now.supervisor is not None:
        yield f"Swarm      process {now.supervisor.get('pid', '?')}, up since {now.supervisor.get('since', '?')}"
    else:
        why = ": hivemind up starts it" if now.has_state else ", and there is no .hive here (yet, or any more)"
        yield f"Swarm      not up{why}"
    if now.disk_full:
        yield "Disk       disk full: all work rests; make room, and it goes on"
    if now.watching:
        yield f"Watching   {one_line(now.watching)}"
    yield f"Search     {now.search}"
    if server is not None:
        yield f"Memory     {one_line(server.told())}"
    if now.exchange is not None:
        yield f"Exchange   {one_line(now.exchange)}"
    counts = now.tasks
    active = f"{counts['active']} active" + (f" ({counts['parked']} parked)" if counts["parked"] else "")
    yield f"Tasks      {counts['inbox']} waiting, {active}, {counts['done']} done, {counts['failed']} failed"
    yield f"Your mail  {now.human_unread} unread"
    yield ""
    columns = _COST if any(agent.money or agent.unpriced for agent in now.agents) else _COLUMNS
    empty = "There are no agents: hivemind agent add NAME makes one."
    yield from table_lines(
        map(_agent_row, sorted(now.agents, key=lambda agent: natural(agent.name))), columns, empty=empty
    )
    leases = sorted(now.leases, key=lambda lease: natural(lease.step_id))
    running = {agent.name for agent in now.agents if agent.pid is not None}
    leased = [
        (one.step_id, f"{one.holder_agent_id}; freed by: {how_freed(one, runs=one.holder_agent_id in running)}")
        for one in leases
    ]
    for title, named, rest in (
        ("Needs you", [(f"hivemind {_SHOWN_BY[need.kind]} {need.about}", need.what) for need in needs], "top"),
        ("Stuck", [(agent.name, agent.problem) for agent in now.agents if agent.problem], "status --json"),
        ("Mail waits", now.mail_waits, "status --json"),
        ("Left", now.left, "status --json"),
        ("Comes again", [(one.name, _when(one)) for one in now.schedule], "status --json"),
        ("Leased", leased, "lease list"),
        ("Parked", now.parked, "task list"),
        ("Waiting", now.waiting, "task list"),
    ):
        yield from _named_lines(title, named, rest)


def _when(one: Scheduled) -> str:
    if one.problem is not None:
        return one.problem
    return "never again" if one.next is None else f"next at {one.next:%a %Y-%m-%d %H:%M} UTC ({one.every})"


def _named_lines(title: str, named: Sequence[tuple[str, str]], rest: str) -> Iterator[str]:
    """What stands beside each name; `rest` is the command that shows those that are left out here."""
    if named:
        yield f"\n{title}:"
    yield from (f"  {one_line(name)}: {one_line(told)}" for name, told in named[:_SHOWN])
    if len(named) > _SHOWN:
        yield f"  … and {len(named) - _SHOWN} more: hivemind {rest}"


def _agent_row(agent: AgentNow) -> dict[str, Any]:
    """An agent as a row of a table; its cost is `?` where no price is known, `0.0123+?` where that is so of a part."""
    known = f"{agent.money:.4f}" if agent.money or not agent.unpriced else ""
    cost = known + (("+?" if known else "?") if agent.unpriced else "")
    tokens = f"{agent.tokens:,}" + (f" of {agent.budget:,}" if agent.budget is not None else "")
    tokens += f" ({agent.cached:,} cached)" if agent.cached else ""
    return {**asdict(agent), "agent": agent.name, "tokens": tokens, "cost": cost}
