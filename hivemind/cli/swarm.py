"""Create a hive, start and end its swarm, show its state."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hivemind.cli.command import INTERRUPTED, Arg, CommandOutput, command
from hivemind.cli.open_hive import caller, find_layout, open_hive, open_read_only, split_lists, without_hive
from hivemind.cli.output import ask, print_line, table_lines, warn
from hivemind.cli.screen import Screen
from hivemind.cli.text import is_terminal, natural_key, one_line
from hivemind.errors import HivemindError, UserError
from hivemind.names import slug

if TYPE_CHECKING:
    from hivemind.config import TokenBudget
    from hivemind.hive import Hive
    from hivemind.layout import Layout
    from hivemind.longterm.postgres import ServerStatus
    from hivemind.presence.parts import Parts
    from hivemind.swarm.overview import AgentOverview, Overview
    from hivemind.swarm.shutdown import ShutdownReport
    from hivemind.swarm.swarm import SwarmResult
    from hivemind.tasks import ScheduledTask
    from hivemind.web.snapshot import Need

_FREE_MINDS = ("extractive", "mcp")
"""Minds that use none of the hive's tokens."""
_COLUMNS = ("agent", "state", "pid", "task", "step", "unread", "tokens_since_start", "last_action")
_COST_COLUMNS = (*_COLUMNS[:-1], "cost", _COLUMNS[-1])
# of needs with messages that name no command
_SHOW_COMMANDS = {"letter": "hivemind mail read human ", "failed": "hivemind task show "}
_MAX_LINES = 20  # lines per heading


@command("init", without_hive)
def init(
    hive_path: str | None,
    path: str | None = None,
    folder: str | None = None,
    *,
    for_: Literal["git"] | None = None,
    mind: str | None = None,
    workspace: str | None = None,
) -> CommandOutput:
    """Create a hive in a folder.

    Creates the folders with a README in each, three agents with mailboxes and a short ROM.
    Existing files are not changed. With --for git the agents are a lead, two coders and a reviewer that use the coding
    agents installed on this machine, and each task has a separate worktree.

    arguments:
      PATH  the folder (default: --hive, or this one); with --for git the repository
      HIVE  with --for git: the hive's folder (default: --hive, or REPOSITORY-hive next to the repository)
      --for KIND  git: for a git repository
      --mind MIND  with --for git: the mind of its agents, as 'agent:claude' or 'command:PROGRAM ARGUMENTS' (default: the
          coding agents that are installed)
      --workspace NAME  the domain of mail addresses and the hive's name among linked hives; cannot be changed later
          (default: the folder's name)

    examples:
      hivemind init my-hive
      hivemind init --for git my-repository
    """
    from hivemind.hive import Hive

    if for_ == "git":
        return _init_for_git(Path(path or ".").resolve(), folder or hive_path, mind, workspace)
    if (unexpected := folder or mind) is not None:
        raise UserError(f"unexpected argument {unexpected!r}", remedy="a second folder and --mind need --for git")
    root = Path(path or hive_path or ".").resolve()
    hive = Hive.init(root, workspace=workspace or slug(root.name, "hive"))
    lines = (
        f"Created {hive.layout.root} with the agents {', '.join(hive.agents)}; its workspace is {hive.config.workspace}.",
        "Next, in that folder: copy your documents into knowledge/, hivemind task add 'A question?', hivemind up --until-idle",
    )
    return CommandOutput({"hive": hive.layout.root, "agents": list(hive.agents)}, lines)


def _init_for_git(repository: Path, hive_path: str | None, mind: str | None, workspace: str | None) -> CommandOutput:
    from hivemind.hive import Hive
    from hivemind.layout import Layout
    from hivemind.sandbox import has_sandbox
    from hivemind.swarm.for_git import chosen_mind, files_for_git, find_programs
    from hivemind.swarm.project_check import find_check
    from hivemind.taskrun.worktree import check_repository

    layout = Layout.at(hive_path or repository.with_name(f"{repository.name}-hive"))
    programs = find_programs() if mind is None else [chosen_mind(mind, layout.root)]
    workspace = workspace or slug(layout.root.name, "hive")
    check_repository(repository)
    project = find_check(repository)
    is_confirmed = project.check is not None and _is_confirmed(
        f"{project.source} names a check: {one_line(project.check)}\nIt runs code of the repository, which agents change. "
        "Must it pass before work lands?"
    )
    files = files_for_git(layout, repository, programs, project, is_confirmed=is_confirmed)
    hive = Hive.init(layout.root, replacements=files, workspace=workspace)
    minds = {
        name: agent.mind["agent"] if mind is None and isinstance(agent.mind, dict) else mind
        for name, agent in hive.agents.items()
    }
    trial = "hivemind agent try lead 'Say hello.'; " if hive.agent_files.get("lead").runs_program else ""
    lines = [
        f"Created a hive in {layout.root} for {repository}: {', '.join(f'{name} ({mind})' for name, mind in minds.items())}.",
        *(str(program.access_problem) for program in programs if program.access_problem is not None),
        *(["bubblewrap does not run here: these programs will have all your rights."] if not has_sandbox() else []),
        _check_line(project.check, is_confirmed),
        f"Next: cd {layout.root}; {trial}hivemind task add --role lead '...'; hivemind up",
    ]
    return CommandOutput({"hive": layout.root, "repository": repository, "agents": minds}, lines)


def _check_line(check: str | None, is_confirmed: bool) -> str:
    if check is None:
        return "No check was found, so branches land without one: hive.yaml says where to write it."
    return f"{'Check' if is_confirmed else 'Not confirmed, and commented out in hive.yaml: check'}: {one_line(check)}"


def _is_confirmed(question: str) -> bool:
    """Ask a person at the terminal; without a terminal the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    ask(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@command("up", find_layout)
def up(
    layout: Layout,
    *,
    until_idle: bool = False,
    detach: bool = False,
    agents: list[str] | None = None,
    take_over: bool = False,
    metrics: str | None = None,
    print_unit: bool = False,
    json: bool,
) -> CommandOutput | int:
    """Start the swarm.

    Runs all agents under a supervisor until Ctrl-C or `hivemind down`, with a live view on a terminal.
    With --until-idle the swarm ends when all agents are idle: exit status 0 if every task is done, 1 if any failed, 3 if
    some are parked (they wait for a person, a time, a provider, another task), 130 if a person ended the swarm earlier.

    arguments:
      --until-idle  end when all work is done
      --detach  run in the background; its log is .hive/logs/swarm.log
      --agents AGENT[,AGENT]  only these agents (default: all)
      --take-over  start although the hive was up on another machine that has not reported its end; use it only if that
          machine is gone
      --metrics [IP:]PORT  answer /metrics (for Prometheus), /healthz and /readyz there; on another address than 127.0.0.1 with
          the token in .hive/metrics.token
      --print-unit  print a systemd unit that runs this hive as a user service, instead of starting it

    examples:
      hivemind up
      hivemind up --until-idle
      hivemind up --detach && hivemind status
      hivemind up --print-unit
    """
    if print_unit:
        from hivemind.swarm.unit import unit

        text = unit(layout, split_lists(agents) if agents else (), metrics)
        return CommandOutput({"unit": text}, [text.rstrip("\n")])
    # Do not open the hive here: run_swarm forks its agents from this process.
    _apply_settings(layout, json)

    serve_metrics = None if metrics is None else _metrics_process(metrics)

    def run(**callbacks: Callable[..., None]) -> CommandOutput:
        from hivemind.hive import Hive
        from hivemind.swarm.overview import search_gap
        from hivemind.swarm.swarm import run_swarm

        result = run_swarm(
            lambda: Hive.open(layout.root),
            names=split_lists(agents) if agents else None,
            until_idle=until_idle,
            from_other_machine=take_over,
            exchange=_run_exchange,
            metrics=serve_metrics,
            **callbacks,
        )
        status = INTERRUPTED if result.interrupted else result.exit_status if until_idle else 0
        record = {
            "done": list(result.done),
            "failed": _reason_records(result.failed),
            "parked": _reason_records(result.parked),
            "interrupted": result.interrupted,
            "active": result.active_count,
        }
        hive = Hive.look(layout.root)
        unanswered = dict[str, str]()
        for task in result.done:
            with contextlib.suppress(UserError):  # archived or deleted meanwhile
                if note := hive.tasks.get(task).unanswered:
                    unanswered[task] = note
        record["unanswered"] = _reason_records([*unanswered.items()])
        gap = search_gap(hive) if result.done else ""
        return CommandOutput(record, _result_lines(result, until_idle, unanswered, gap), status)

    if detach:
        return _start_detached(layout, lambda ready: run(on_ready=ready).show(json))
    if json or not is_terminal():
        return run()
    with _live_screen(layout) as draw:
        return run(on_tick=draw)


def _metrics_process(text: str) -> Callable[[Parts, int], int]:
    """Parse the address of the process that answers a monitoring system, and return its main function. Raises UserError
    if it could not listen there."""
    from hivemind.web.metrics_server import MetricsAddress, run_metrics

    address = MetricsAddress.parse(text)
    address.listen().close()
    return lambda hive, lifeline: run_metrics(hive, lifeline, address)


def _run_exchange(hive: Parts, lifeline: int) -> int:
    from hivemind.exchange.process import run_exchange  # imports the PostgreSQL client only in this process

    return run_exchange(hive, lifeline)


def _apply_settings(layout: Layout, json: bool) -> None:
    """Apply the settings of hive.yaml, such as its umask. Warn about agents whose files are invalid, and print the budgets."""
    from hivemind.hive import Hive

    hive = Hive.look(layout.root)
    for error in hive.agent_files.problems.values():
        warn(f"an agent is set aside: {error}")
    costly_agents = {name: agent for name, agent in hive.agents.items() if agent.mind not in _FREE_MINDS}
    if costly_agents and not json:
        tasks = " or ".join(sorted({_budget_text(agent.budget.task) for agent in costly_agents.values()}))
        print_line(
            f"Budgets: a task {tasks}, all agents together {_budget_text(hive.config.budget.day)} a day (hive.yaml)."
        )


def _budget_text(budget: TokenBudget) -> str:
    tokens = "any number of tokens" if budget.tokens is None else f"{budget.tokens:,} tokens"
    return tokens if budget.money is None else f"{tokens} and {budget.money:g} in money"


@contextlib.contextmanager
def _live_screen(layout: Layout) -> Iterator[Callable[[], None]]:
    """Show a live view of the swarm. Log lines go to a file meanwhile, because they would destroy the view."""
    from hivemind.cli.top import up_lines
    from hivemind.hive import Hive
    from hivemind.web.snapshot import take_snapshot

    hive = Hive.look(layout.root)
    with _redirect_stderr(layout.logs / "swarm.log"), Screen() as screen:

        def draw() -> None:
            with contextlib.suppress(HivemindError, OSError):  # a failed reading does not end the swarm
                screen.draw(partial(up_lines, take_snapshot(hive)))

        yield draw


@contextlib.contextmanager
def _redirect_stderr(log: Path) -> Iterator[None]:
    """Redirect standard error to a file, also for processes that are forked meanwhile.

    Redirects descriptor 2, because a forked process closes all descriptors except the first three. The descriptor of an
    open log file could belong to a different file in that process.
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


def _start_detached(layout: Layout, work: Callable[[Callable[[], None]], int]) -> CommandOutput | int:
    from hivemind.presence.watching import agent_problems
    from hivemind.swarm.detach import detach

    layout.logs.mkdir(parents=True, exist_ok=True)
    log = layout.logs / "swarm.log"
    detached_process = detach(work, log)
    if detached_process.error is not None:
        warn(detached_process.error)
        return detached_process.status
    for name, problem in agent_problems(layout.locks).items():
        warn(f"{name} is set aside: {problem}")
    lines = (
        f"The swarm of {layout.root} is up: process {detached_process.pid}, log {layout.relative(log)}.",
        "hivemind status shows it, hivemind down ends it.",
    )
    return CommandOutput({"pid": detached_process.pid, "log": log}, lines)


def _reason_records(pairs: Sequence[tuple[str, str]], subject_key: str = "task") -> list[dict[str, str]]:
    return [{subject_key: subject, "why": reason} for subject, reason in pairs]


def _result_lines(
    result: SwarmResult, until_idle: bool, unanswered: Mapping[str, str], search_gap: str
) -> Iterator[str]:
    for task in result.done:
        note = f"{unanswered[task]}: " if task in unanswered else ""
        yield f"done    {task}: {note}tasks/done/{task}/result.md"
    yield from (f"failed  {task}: {one_line(reason)} (tasks/failed/{task}/error.md)" for task, reason in result.failed)
    yield from (f"parked  {task}: {one_line(reason)}" for task, reason in result.parked)
    counts = f"{len(result.done)} done, {len(result.failed)} failed, {len(result.parked)} parked"
    counts += f", {result.active_count} active, which the next hivemind up continues" if result.active_count else ""
    yield f"The swarm {'was told to end' if result.interrupted else 'has ended'}: {counts}."
    if search_gap:
        yield search_gap
    if until_idle and not (result.done or result.failed or result.parked or result.interrupted):
        yield "There were no tasks: hivemind task add TEXT adds one."


@command("down", find_layout)
def down(layout: Layout, *, timeout: Annotated[float, Arg(maximum=1000000.0)] | None = None) -> CommandOutput:
    """End the swarm, and let its agents finish what they are doing.

    Asks the supervisor to end and waits for it. Agents finish or drop their current action, release their leases
    and end within 5 seconds; the next `hivemind up` continues their tasks from disk. A running command gets SIGTERM after
    3 seconds, or with --timeout S after S - 2 seconds.

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
    report = end_swarm(layout, timeout_s=timeout)
    if report.pid is not None:
        line = f"The swarm of {layout.root} has ended (process {report.pid})."
    elif layout.state.is_dir():
        line = f"Nothing is up in {layout.root}."
    else:
        line = (
            f"{layout.root} has no .hive: no swarm is up there. A swarm ends when its hive is moved or removed, "
            "mostly within a second."
        )
    return shutdown_output(report, line)


def shutdown_output(report: ShutdownReport, line: str, **extra_fields: str) -> CommandOutput:
    """Return `line` as output if the process has ended. If it still runs, print a warning, and return exit status 1."""
    if not report.is_over:
        warn(f"process {report.pid} has not ended in time; ps -p {report.pid} shows it; wait, or kill it")
    record = {**extra_fields, "pid": report.pid, "ended": report.is_over}
    return CommandOutput(record, [line] * report.is_over, int(not report.is_over))


@command("due", open_hive)
def due(hive: Hive) -> CommandOutput:
    """Do all periodic work that is due, once; a running swarm does it automatically.

    Drops the due tasks of tasks/schedule/, notifies people of tasks that are done, failed or parked (`notify:` in
    hive.yaml), and archives old files once a day (`retention:`). For a hive without a supervisor, call due from cron.

    examples:
      hivemind due
    """
    from hivemind.swarm.due import do_due

    report = do_due(hive)
    lines = [
        *(f"dropped {task}" for task in report.dropped),
        *(f"notified by {notifier}" for notifier in report.notified),
    ]
    if report.archived is not None:
        lines.append(f"{report.archived}.")
    archived = None if report.archived is None else asdict(report.archived)
    record = {"dropped": list(report.dropped), "told": list(report.notified), "archived": archived, "next": report.next}
    next_due = "" if report.next is None else f"; due again at {report.next:%Y-%m-%d %H:%M:%S} UTC"
    return CommandOutput(record, [*lines, f"{len(report.dropped)} dropped, {len(report.notified)} notified{next_due}."])


@command("status", open_read_only, for_agents=True)
def status(hive: Hive, *, all_: bool = False) -> CommandOutput:
    """Show which agents are up, what each one does, and the state of the tasks.

    arguments:
      --all  show all linked hives, in the state that they last reported

    examples:
      hivemind status
      hivemind status --json | jq '.agents[] | select(.state == "working")'
    """
    if all_:
        return _linked_hives_output(hive)
    from hivemind.swarm.overview import overview as hive_overview
    from hivemind.tasks import TaskState
    from hivemind.web.snapshot import needs_of

    active, server = hive.tasks.list(TaskState.ACTIVE), _memory_server(hive)
    overview = hive_overview(hive, active)
    needs = [*needs_of(hive, overview, active)]
    extra_fields = {
        "waiting": _reason_records(overview.waiting),
        "parked": _reason_records(overview.parked),
        "needs_you": [
            {"kind": need.kind, "id": need.about, "title": need.title, "what": need.message} for need in needs
        ],
        "left": _reason_records(overview.left),
        "mail_waits": _reason_records(overview.mail_waits, "agent"),
        "memory": None if server is None else asdict(server),
    }
    return CommandOutput(asdict(overview) | extra_fields, _status_lines(overview, server, needs))


def _memory_server(hive: Hive) -> ServerStatus | None:
    """Return the status of the PostgreSQL server with the hive's memories; None if they are in a file."""
    if hive.config.memory is None:
        return None
    from hivemind.longterm.postgres import server_status

    return server_status(hive.config.memory)


def _linked_hives_output(hive: Hive) -> CommandOutput:
    from hivemind.exchange.link import hive_overviews, open_exchange

    with open_exchange(hive.layout) as connection:
        hives = hive_overviews(connection)
    rows = [
        {
            "hive": row["hive"],
            "seen": None if row["problem"] else f"{row['seen_s']} s ago",
            "agents": row["problem"] or ", ".join(f"{name} {state}" for name, state in row["agents"].items()),
            **row["tasks"],
        }
        for row in hives
    ]
    columns = ("hive", "seen", "inbox", "active", "done", "failed", "agents")
    return CommandOutput(hives, table_lines(rows, columns, empty="No hive is linked."))


def _status_lines(overview: Overview, server: ServerStatus | None, needs: Sequence[Need]) -> Iterator[str]:
    from hivemind.swarm.overview import how_freed

    supervisor, counts = overview.supervisor, overview.tasks
    hint = ": hivemind up starts it" if overview.has_state else ", and there is no .hive (not yet, or it was removed)"
    names = ", ".join(sorted(overview.unboxed, key=natural_key))
    parked = f" ({counts['parked']} parked)" if counts["parked"] else ""
    for title, text in (
        ("Hive", f"{overview.hive} (workspace {overview.workspace})"),
        ("Swarm", f"not up{hint}" if supervisor is None else f"process {supervisor.get('pid', '?')}, up since "
         f"{supervisor.get('since', '?')}"),
        ("Settings", "hive.yaml has changed since then: hivemind down, then hivemind up, applies it"
         if supervisor is not None and overview.has_new_settings else None),
        ("Disk", "disk full: all work is suspended until there is space" if overview.disk_full else None),
        ("Watching", overview.watching),
        ("Search", overview.search),
        ("Memory", None if server is None else server.summary()),
        ("Exchange", overview.exchange),
        ("Landing", overview.landing),
        ("Traces", overview.telemetry),
        ("Boxes", names and f"bubblewrap does not run here: the programs of {names} have all your rights (hivemind doctor)"),
        ("Tasks", f"{counts['inbox']} waiting, {counts['active']} active{parked}, {counts['done']} done, "
         f"{counts['failed']} failed"),
        ("Your mail", f"{overview.human_unread} unread"),
    ):  # fmt: skip
        if text:
            yield f"{title:10} {one_line(text)}"
    yield ""
    columns = _COST_COLUMNS if any(agent.money or agent.unpriced for agent in overview.agents) else _COLUMNS
    empty = "There are no agents: hivemind agent add NAME adds one."
    yield from table_lines(
        map(_agent_row, sorted(overview.agents, key=lambda agent: natural_key(agent.name))), columns, empty=empty
    )
    leases = sorted(overview.leases, key=lambda lease: natural_key(lease.step_id))
    running = {agent.name for agent in overview.agents if agent.pid is not None}
    leased = [
        (lease.step_id, f"{lease.holder_agent_id}; freed by: {how_freed(lease, runs=lease.holder_agent_id in running)}")
        for lease in leases
    ]
    reasons = dict(overview.parked)  # of a question: with the command that answers it
    needs_rows = [
        (
            f"{_SHOW_COMMANDS.get(need.kind, '')}{need.about}",
            ("" if slug(need.title, need.about) == need.about else f'"{need.title}": ')
            + reasons.pop(need.about, need.message),
        )
        for need in needs
    ]
    for title, rows, full_command in (
        ("Needs you", needs_rows, "top"),
        ("Mail waits", overview.mail_waits, "status --json"),
        ("Left", overview.left, "status --json"),
        ("Comes again", [(planned.name, _next_run(planned)) for planned in overview.schedule], "status --json"),
        ("Leased", leased, "lease list"),
        ("Parked", [*reasons.items()], "task list"),
        ("Waiting", overview.waiting, "task list"),
    ):
        yield from _titled_lines(title, rows, full_command)


def _next_run(scheduled_task: ScheduledTask) -> str:
    if scheduled_task.problem is not None or scheduled_task.next is None:
        return scheduled_task.problem or "never again"
    return f"next at {scheduled_task.next:%a %Y-%m-%d %H:%M} UTC ({scheduled_task.every})"


def _titled_lines(title: str, rows: Sequence[tuple[str, str]], full_command: str) -> Iterator[str]:
    """Yield a title and a line per row. After `_MAX_LINES` rows, yield a line with `full_command`, which shows them all."""
    if rows:
        yield f"\n{title}:"
    yield from (f"  {one_line(name)}: {one_line(text)}" for name, text in rows[:_MAX_LINES])
    if len(rows) > _MAX_LINES:
        yield f"  … and {len(rows) - _MAX_LINES} more: hivemind {full_command}"


def _agent_row(agent: AgentOverview) -> dict[str, Any]:
    """Return an agent's table row. Its cost is `?` if no price is known, `0.0123+?` if only some prices are."""
    known_cost = f"{agent.money:.4f}" if agent.money or not agent.unpriced else ""
    cost = known_cost + (("+?" if known_cost else "?") if agent.unpriced else "")
    tokens = f"{agent.tokens:,}" + (f" ({agent.budget:,} a day)" if agent.budget is not None else "")
    tokens += f" ({agent.cached:,} cached)" if agent.cached else ""
    return {**asdict(agent), "agent": agent.name, "tokens_since_start": tokens, "cost": cost}
