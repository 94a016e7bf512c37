"""`hivemind up`: a supervisor and its agents, until they are told to end or nothing is left to do."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from hivemind.embedding import preload as warm_vectors
from hivemind.errors import HivemindError, system_error
from hivemind.frozen import frozen
from hivemind.layout import EXCHANGE, Layout
from hivemind.minds import warm_mind
from hivemind.presence.identity import take_over
from hivemind.presence.parts import Parts
from hivemind.private import keep_keys_private
from hivemind.swarm.agent_files import AgentFiles
from hivemind.swarm.idle import survey
from hivemind.swarm.preflight import preflight, preflight_all, root_problems
from hivemind.swarm.process import output_to, run_agent, start_logging
from hivemind.swarm.supervisor import Supervisor
from hivemind.tasks import why_failed
from hivemind.tasks.form import TaskForm
from hivemind.tools import TOOLS

# Agents need these at their first look at knowledge; imported in the parent, their memory is shared.
_READERS = ("hivemind.documents.knowledge", "hivemind.presence.linked", "markdown_it")
_log = logging.getLogger(__name__)
_QUIET_S = 0.2
_TICK_S = 0.25
_TICKS_APART_S = 0.05  # a hundred agents that start at once are not a hundred pictures
_SHARE = 8  # `on_tick` may take one part in about so many of the time


@frozen
class SwarmResult:
    """How a run ended: tasks by what became of them since it began; `interrupted` if it was told to end before idle."""

    done: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    parked: tuple[tuple[str, str], ...]
    interrupted: bool

    @property
    def exit_status(self) -> int:
        """0 all done, 1 any failed, 3 some parked (spec 1, *Agents and the swarm*)."""
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
) -> SwarmResult:
    """Run the agents `names` (default: all) of a hive; returns when they have ended.

    Call it in a process with one thread that has opened nothing of the hive yet: agents are forked. `on_ready` is called
    once all have been started, `on_tick` after what happens, four to twenty times a second, less often if it is slow.
    With `from_other_machine` one that a machine which is gone had up is taken over.
    `exchange` is the process of a linked hive that carries tasks and mail (`hivemind.exchange`).
    Raises HeldLock if the hive is up, UserError as `preflight` and `preflight_all` do.
    """
    hive = open_hive()
    files = AgentFiles(hive, names)
    running, aside = preflight_all(hive) if names is None else (list(names), {})
    preflight(hive, names or ())
    files.problems = {name: str(error) for name, error in aside.items()}
    for why in dict.fromkeys(files.problems.values()):  # replicas have one between them
        _log.warning("an agent is set aside: %s", why)
    for error in root_problems(hive):
        _log.warning("%s", error)
    keep_keys_private()
    shared = open_hive()  # what the agents are forked with; this process opens nothing of it
    theirs = files.of(shared)

    def agent_main(name: str, lifeline: int) -> int:
        try:
            output_to(shared.layout.logs / f"{name}.log")
        except OSError as error:  # a full disk: the supervisor starts it again, ever less often
            _log.warning("%s: %s", name, system_error(error))
            return 1
        theirs.look()
        if name == EXCHANGE and exchange is not None:
            start_logging()
            return exchange(shared, lifeline)
        return run_agent(shared, name, lifeline=lifeline)

    if from_other_machine:
        take_over(hive.layout)
    supervisor = Supervisor(hive, files, running, warm=_Warming(shared, theirs), run_agent=agent_main)
    run = _SwarmRun(hive, supervisor, until_idle, on_tick, on_ready)
    supervisor.run(run.tick, _TICK_S if until_idle or on_tick else None)
    return run.result()


class _Warming:
    """What the agents' parent does before it forks them: load, look at what the hive is, read its journal.

    Nothing stays open. A second call finds all of it done, but for what is new in the journal.
    """

    def __init__(self, hive: Parts, files: AgentFiles) -> None:
        self._hive = hive
        self._files = files

    def __call__(self) -> None:
        hive = self._hive
        start_logging()
        self._files.look()
        hive.count_tokens.warm()
        TaskForm.model_rebuild()
        for module in _READERS:
            importlib.import_module(module)
        minds = {str(config.mind): config.mind for config in hive.agents.values()}
        for mind in minds.values():
            warm_mind(mind)
        for tool in TOOLS.values() if minds.keys() - {"extractive", "mcp"} else ():  # who works by rule is told of none
            tool.schema()
        try:
            if hive.embedder is not None:
                warm_vectors()
            _log.debug("warm: %d agents, %d events", len(hive.agents), hive.journal.seq)
        except (HivemindError, OSError) as error:  # every agent will meet it too, and be started again later
            _log.warning("%s", error)


class _SwarmRun:
    """What is looked at while the swarm runs: whether all is quiet."""

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
        self._ended_before = _ended(hive.layout)
        self._next_tick = float("-inf")
        self._quiet_since: tuple[float, int] | None = None
        self._parked: tuple[tuple[str, str], ...] = ()
        self._idle = False

    def tick(self) -> bool:
        """Call `on_tick`; True once the swarm has been idle for a moment and nothing moved meanwhile."""
        if self._on_ready is not None and len(self._supervisor.pids) == len(self._supervisor.names):
            self._on_ready()
            self._on_ready = None
        now = time.monotonic()
        if self._on_tick is not None and now >= self._next_tick:
            self._on_tick()
            done = time.monotonic()
            self._next_tick = done + max(_TICKS_APART_S, _SHARE * (done - now))
        return self._until_idle and self._is_idle(now)

    def _is_idle(self, now: float) -> bool:
        found = survey(self._hive, self._supervisor.names)
        self._parked = found.parked
        seq = self._hive.journal.seq
        if found.busy or self._supervisor.is_telling or self._quiet_since is None or self._quiet_since[1] != seq:
            self._quiet_since = None if found.busy else (now, seq)
            return False
        self._idle = now - self._quiet_since[0] >= _QUIET_S
        return self._idle

    def result(self) -> SwarmResult:
        layout, parked = self._hive.layout, self._parked if self._idle else ()
        ended = sorted(_ended(layout) - self._ended_before)
        done = tuple(name for place, name, _ in ended if place == "done")
        failed = [name for place, name, _ in ended if place == "failed"]
        why = tuple((name, why_failed(layout.failed / name) or "see error.md") for name in failed)
        return SwarmResult(done, why, parked, interrupted=self._until_idle and not self._idle)


def _ended(layout: Layout) -> set[tuple[str, str, int]]:
    """Which tasks are done or failed: the place, the name, and the inode of the file that says so, of a retry another one."""
    found = set()
    for folder, end in ((layout.done, "result.md"), (layout.failed, "error.md")):
        for path in folder.iterdir():
            with suppress(FileNotFoundError, NotADirectoryError):  # a folder that a person is moving, or a stray file
                found.add((folder.name, path.name, (path / end).stat().st_ino))
    return found
