"""`hivemind up`: run a supervisor and its agents until they are asked to end, or until all work is done."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from hivemind.embedding import preload as warm_vectors
from hivemind.errors import HivemindError, system_error
from hivemind.frozen import frozen
from hivemind.landing.process import run_landing
from hivemind.layout import EXCHANGE, LANDING, METRICS, TELEMETRY, Layout
from hivemind.minds import warm_mind
from hivemind.presence.identity import abandon_locks
from hivemind.presence.parts import Parts
from hivemind.presence.status import AgentStatus
from hivemind.private import keep_keys_private
from hivemind.swarm.agent_files import AgentFiles
from hivemind.swarm.preflight import preflight, preflight_all, root_problems
from hivemind.swarm.process import redirect_output, run_agent, start_logging
from hivemind.swarm.supervisor import Supervisor
from hivemind.swarm.until_idle import survey
from hivemind.tasks import TaskState, why_failed
from hivemind.tasks.form import TaskForm
from hivemind.telemetry.process import collector_of, has_sdk, run_telemetry
from hivemind.tools import TOOLS

_log = logging.getLogger(__name__)
_QUIET_S = 0.2
_TICK_S = 0.25
_TICKS_APART_S = 0.05  # when many agents start at once, not every start calls `on_tick`
_SHARE = 8  # `on_tick` may take about one part in so many of the time


@frozen
class SwarmResult:
    """The tasks that ended during a run, or were parked at its end.

    `interrupted` is True if the run ended before the swarm was idle; the next run continues the `active_count` tasks.
    """

    done: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    parked: tuple[tuple[str, str], ...]
    interrupted: bool
    active_count: int = 0

    @property
    def exit_status(self) -> int:
        """The exit status of the command: 1 if a task failed, 3 if none failed but some are parked, 0 in all other cases."""
        if self.failed:
            return 1
        return 3 if self.parked else 0


def run_swarm(
    open_hive: Callable[[], Parts],
    *,
    names: Sequence[str] | None = None,
    until_idle: bool = False,
    on_tick: Callable[[], None] | None = None,
    on_ready: Callable[[], None] | None = None,
    from_other_machine: bool = False,
    exchange: Callable[[Parts, int], int] | None = None,
    metrics: Callable[[Parts, int], int] | None = None,
) -> SwarmResult:
    """Run the agents `names` (default: all) of a hive, and return when they have ended. With `until_idle`, end them when all work
    is done.

    Call it in a process with one thread and no open file of the hive, because agents are forked. `on_ready` is called once all
    agents have started. `on_tick` is called after events, four to twenty times a second, less often if it is slow.
    `from_other_machine` takes over a hive with locks from a machine that is gone. `exchange` is the main function of the
    exchange process of a linked hive (`hivemind.exchange`), `metrics` that of the process that answers a monitoring system
    (`hivemind.web.metrics_server`). Raises LockBusy if the hive is up, and UserError as `preflight` and `preflight_all` do.
    """
    hive = open_hive()
    files = AgentFiles(hive, names)
    running, aside = preflight_all(hive) if names is None else (list(names), {})
    for name in names or ():
        preflight(hive, name)
    files.problems = {name: str(error) for name, error in aside.items()}
    for problem in dict.fromkeys(files.problems.values()):  # replicas share one
        _log.warning("an agent is set aside: %s", problem)
    for error in root_problems(hive.config, hive.layout):
        _log.warning("%s", error)
    keep_keys_private()
    child_hive = open_hive()  # for the forked agents; this process opens none of its files
    child_files = files.for_hive(child_hive)

    def agent_main(name: str, lifeline: int) -> int:
        try:
            redirect_output(child_hive.layout.logs / f"{name}.log")
        except OSError as error:  # a full disk: the supervisor restarts it with growing pauses
            _log.warning("%s: %s", name, system_error(error))
            return 1
        child_files.read_changes()
        service = {EXCHANGE: exchange, METRICS: metrics, LANDING: run_landing, TELEMETRY: run_telemetry}.get(name)
        if service is None:
            return run_agent(child_hive, name, lifeline=lifeline)
        start_logging()
        return service(child_hive, lifeline)

    if from_other_machine:
        abandon_locks(hive.layout)
    services = [] if metrics is None else [METRICS]
    if (collector := collector_of(hive.config)) is not None and has_sdk():
        services.append(TELEMETRY)
    elif collector is not None:
        _log.warning("no traces are sent to %s: pip install 'hivemind-swarm[otel]'", collector)
    warm = partial(_warm_up, child_hive, child_files)
    supervisor = Supervisor(hive, files, running, warm=warm, run_agent=agent_main, services=services)
    run = _SwarmRun(hive, supervisor, until_idle, on_tick, on_ready)
    supervisor.run(run.tick, _TICK_S if until_idle or on_tick else None)
    return run.result()


def _warm_up(hive: Parts, files: AgentFiles) -> None:
    """Do what the agents' parent does before it forks them: read agents/ and the journal, load modules and vocabulary.

    If the hive has only one agent, that agent itself loads what it uses. No file stays open. A second call
    only reads the new part of the journal.
    """
    start_logging()
    files.read_changes()
    try:
        _log.debug("warm: %d agents, %d events", len(hive.agents), hive.journal.seq)
    except (HivemindError, OSError) as error:  # every agent will fail with it too, and is restarted later
        _log.warning("%s", error)
    if len(hive.agents) > 1:
        _load_shared_parts(hive)


def _load_shared_parts(hive: Parts) -> None:
    hive.count_tokens.warm()
    _ = hive.mail, hive.tasks, replace(AgentStatus(""))
    TaskForm.model_rebuild()
    for module in ("hivemind.documents.knowledge", "hivemind.presence.linked", "markdown_it"):  # for the first question
        importlib.import_module(module)
    minds = {str(config.mind): config.mind for config in hive.agents.values()}
    for mind in minds.values():
        with suppress(HivemindError):  # the preflight, or the agent at its start, says so
            warm_mind(mind)
    # Agents without a model need no schemas.
    for tool in TOOLS.values() if minds.keys() - {"extractive", "mcp"} else ():
        tool.schema()
    with suppress(HivemindError):
        if hive.embedder is not None:
            warm_vectors()


class _SwarmRun:
    """Checks, while the swarm runs, whether it is idle, and collects the tasks that ended."""

    def __init__(
        self,
        hive: Parts,
        supervisor: Supervisor,
        until_idle: bool,
        on_tick: Callable[[], None] | None,
        on_ready: Callable[[], None] | None,
    ) -> None:
        self._hive, self._supervisor = hive, supervisor
        self._until_idle, self._on_tick, self._on_ready = until_idle, on_tick, on_ready
        self._outcomes_before = _outcomes(hive.layout)
        self._next_tick = float("-inf")
        self._quiet_since: tuple[float, int] | None = None
        self._parked: tuple[tuple[str, str], ...] = ()
        self._idle = False

    def tick(self) -> bool:
        """Call `on_tick`. Return True once the swarm has been idle for a moment without new events."""
        if self._on_ready is not None and len(self._supervisor.pids) == len(self._supervisor.names):
            self._on_ready()
            self._on_ready = None
        now = time.monotonic()
        if self._on_tick is not None and now >= self._next_tick:
            self._on_tick()
            end_time = time.monotonic()
            self._next_tick = end_time + max(_TICKS_APART_S, _SHARE * (end_time - now))
        return self._until_idle and self._is_idle(now)

    def _is_idle(self, now: float) -> bool:
        activity = survey(self._hive, self._supervisor.names)
        self._parked = activity.parked
        seq = self._hive.journal.seq
        if activity.busy or self._supervisor.is_dispatching or self._quiet_since is None or self._quiet_since[1] != seq:
            self._quiet_since = None if activity.busy else (now, seq)
            return False
        self._idle = now - self._quiet_since[0] >= _QUIET_S
        return self._idle

    def result(self) -> SwarmResult:
        layout, parked = self._hive.layout, self._parked
        active = [] if self._idle else self._hive.tasks.list(TaskState.ACTIVE)
        if not self._idle:
            parked = tuple((task.id, task.parked.reason) for task in active if task.parked is not None)
        new_outcomes = sorted(_outcomes(layout) - self._outcomes_before)
        done = tuple(name for state, name, _ in new_outcomes if state == "done")
        failed_names = [name for state, name, _ in new_outcomes if state == "failed"]
        failures = tuple((name, why_failed(layout.failed / name) or "see error.md") for name in failed_names)
        interrupted, active_count = self._until_idle and not self._idle, sum(task.parked is None for task in active)
        return SwarmResult(done, failures, parked, interrupted, active_count)


def _outcomes(layout: Layout) -> set[tuple[str, str, int]]:
    """Return the ended tasks as (state, name, inode of the result). The inode changes when a task is retried."""
    outcomes = set()
    for folder, file_name in ((layout.done, "result.md"), (layout.failed, "error.md")):
        for path in folder.iterdir():
            # A person is moving the folder, or the entry is not a task.
            with suppress(FileNotFoundError, NotADirectoryError):
                outcomes.add((folder.name, path.name, (path / file_name).stat().st_ino))
    return outcomes
