"""The supervisor: starts agents, restarts them when they die or hang, and shuts them down.

An agent can also run without a supervisor; it needs none of the supervisor's data. Agents that the supervisor started end when
it dies. The supervisor has the hive's only file watcher. Its events ring the agents' doorbells.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

from hivemind.agent.stop_request import remaining_s
from hivemind.errors import HivemindError, UserError
from hivemind.fs.database import settle_log
from hivemind.fs.doorbell import Doorbell
from hivemind.fs.sockets import wait_for_input
from hivemind.landing.process import needs_lander
from hivemind.layout import EXCHANGE, LANDING, METRICS, TELEMETRY
from hivemind.presence.identity import check_hive_exists, hold_lock, journal_death, record_deaths
from hivemind.presence.parts import Parts
from hivemind.presence.status import read_status
from hivemind.presence.watching import SUPERVISOR, HiveWatch, supervisor_lock
from hivemind.swarm.agent_files import AgentFiles
from hivemind.swarm.due import DueWork
from hivemind.swarm.fork_server import ForkServer, RunAgent
from hivemind.swarm.task_return import return_removed, return_tasks

_log = logging.getLogger(__name__)
_SERVICES = (EXCHANGE, LANDING, METRICS, TELEMETRY)  # processes without a mind
_MIN_DELAY_S = 0.1
_MAX_DELAY_S = 5.0
_MAX_FAILED_STARTS = 5
_UP_OUTPUT = "look at the output of hivemind up: of a service in journalctl, after --detach in .hive/logs/swarm.log"
_REPORTED_DEATHS = 3  # then status shows a problem
_STABLE_S = 60.0  # after this time the count of deaths is reset
_CHECK_S = 1.0  # how often it checks that the hive still exists


@dataclass(slots=True)
class _Child:
    """The state of one agent's process; times are monotonic seconds. `end_reason` is set if the agent is not to be
    restarted: a person has stopped it, or its file was removed."""

    name: str
    pid: int = 0
    start_at: float | None = 0.0
    delay_s: float = _MIN_DELAY_S
    steps_finished: int = 0
    started_at: float = 0.0
    deaths: int = 0
    status: int = 0
    beat_ns: int = 0
    beat_seen: float = 0.0
    end_reason: Literal["stopped", "removed"] | None = None

    @property
    def death(self) -> str:
        """The way in which the last process ended: `Killed`, `exit status 1`."""
        return signal.strsignal(-self.status) or "" if self.status < 0 else f"exit status {self.status}"


class Supervisor:
    """Runs the swarm of one hive until it is asked to end, or until `tick` says that all work is done."""

    def __init__(
        self, hive: Parts, files: AgentFiles, names: Collection[str], *, warm: Callable[[], None], run_agent: RunAgent,
        services: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Take the hive's supervisor lock and fork the fork server. `run` then follows the changes in `files`.

        `names` are the agents to run, `services` further processes to run, such as the exporter of traces. `warm` and `run_agent`
        are as for ForkServer. Raises LockBusy if another process holds the lock. Call it while this process has one thread and no
        open files.
        """
        self._hive = hive
        self._lock = supervisor_lock(hive.layout.locks)
        hold_lock(self._lock, hive.layout, "this hive is up already", "hivemind down ends it", what="hivemind up")
        self._fork_server_parts = (warm, run_agent)
        self._fork_server = ForkServer(warm, run_agent)
        self._files = files
        self._due = DueWork(hive.layout, at_once=hive.config.retention.is_set)
        self._children = {name: _Child(name) for name in (*names, *services)}
        if hive.linked_hives.is_linked:
            self._children[EXCHANGE] = _Child(EXCHANGE)
        if needs_lander(hive):
            self._children[LANDING] = _Child(LANDING)
        self._apply_stops()
        self._watch: HiveWatch | None = None
        self._bell: Doorbell | None = None
        self._stop = False
        self._ready = False
        self._failed_starts = 0
        self._last_check = time.monotonic()

    @property
    def pids(self) -> dict[str, int]:
        """The pids of the running processes, by agent."""
        return {name: child.pid for name, child in self._children.items() if child.pid and name not in _SERVICES}

    @property
    def names(self) -> tuple[str, ...]:
        """The agents that the supervisor keeps running."""
        return tuple(
            name for name, child in self._children.items() if child.end_reason is None and name not in _SERVICES
        )

    @property
    def is_dispatching(self) -> bool:
        """True while a process does due work, or should be started to do it."""
        return self._due.is_busy or self._due.remaining_s <= 0

    def stop(self) -> None:
        """Make `run` shut down the swarm. May be called from a signal handler."""
        self._stop = True

    def run(self, tick: Callable[[], bool], tick_s: float | None) -> None:
        """Keep the swarm running, and return once it has ended.

        `tick` is called after each event and every `tick_s` seconds (None: only after events). When `tick` returns
        True, the swarm ends. SIGINT and SIGTERM end the swarm too. Raises UserError or OSError before the first start
        if the journal cannot be read, UserError if the fork server cannot start, and HiveGone after the last agent has ended.
        """
        wake, wake_end = os.pipe()
        os.set_blocking(wake_end, False)
        old_handlers = {
            number: signal.signal(number, lambda *_: self.stop()) for number in (signal.SIGINT, signal.SIGTERM)
        }
        old_wakeup = signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        try:
            with contextlib.closing(Doorbell(self._hive.layout.doorbells, SUPERVISOR)) as self._bell:
                self._watch = HiveWatch(self._hive)
                self._write_record()
                try:
                    self._hive.journal.view(lambda _: None)  # if it cannot be read, no agent could work
                    self._return_removed()
                    while not self._stop:
                        check_hive_exists(self._lock, self._hive.layout)
                        self._run_once(wake, tick_s)
                        if self._ready and tick():
                            break
                finally:
                    self._watch.close()
                    self._end()
                    self._due.close()
                    self._settle_databases()
        finally:
            signal.set_wakeup_fd(old_wakeup)
            for number, callback in old_handlers.items():
                signal.signal(number, callback)
            os.close(wake)
            os.close(wake_end)
            self._lock.release()

    # One turn of the loop

    def _run_once(self, wake: int, tick_s: float | None) -> None:
        assert self._bell is not None
        timeout = self._timeout_s(tick_s)
        descriptors: list[Any] = [wake, self._fork_server.socket, self._bell]
        ready = wait_for_input(descriptors, timeout)
        if wake in ready:
            os.read(wake, 4096)
        if self._bell in ready:
            self._bell.wait(0)
        if self._fork_server.socket in ready:
            self._read_reports()
        if self._ready:
            self._apply_stops()
            self._follow_files()
            self._follow_link()
            self._start_due()
            self._kill_hung()
            check_hive_exists(self._lock, self._hive.layout)
            assert self._watch is not None
            was_written, self._watch.schedule_written = self._watch.schedule_written, False
            self._due.start_if_due(was_written)

    def _timeout_s(self, tick_s: float | None) -> float:
        """Return the seconds until the next deadline: a restart, a check for hung agents, due work, or a tick `tick_s` seconds
        after the last (None: no tick).
        """
        now = time.monotonic()
        deadlines = [_CHECK_S, self._hive.config.hang_after / 3, self._due.remaining_s]
        deadlines += [
            child.start_at - now for child in self._children.values() if child.start_at is not None and self._ready
        ]
        if tick_s is not None:
            deadlines.append(tick_s)
        return max(0.0, min(deadlines))

    def _write_record(self) -> None:
        assert self._watch is not None
        death_problems = {
            child.name: f"has died {child.deaths} times in a row ({child.death}): {_UP_OUTPUT}"
            for child in self._children.values()
            if child.deaths >= _REPORTED_DEATHS
        }
        problems = {**self._files.problems, **death_problems}
        self._lock.write_holder(what="hivemind up", watching=self._watch.described, problems=problems)

    def _apply_stops(self) -> None:
        """End the agents that a person has stopped, and start agents that a person has allowed to run again."""
        try:
            stopped_names = set(os.listdir(self._hive.layout.stopped))
        except OSError:  # no agent was ever stopped
            stopped_names = set()
        for child in self._children.values():
            if child.name in stopped_names and child.end_reason is None:
                self._retire(child, "stopped", signal.SIGTERM)
            elif child.end_reason == "stopped" and child.name not in stopped_names:
                child.end_reason, child.delay_s = None, _MIN_DELAY_S
                if not child.pid:
                    child.start_at = time.monotonic()

    def _follow_files(self) -> None:
        """Start agents with new files, restart those with changed files after their turn, and end agents without a file."""
        assert self._watch is not None
        was_written, self._watch.agents_written = self._watch.agents_written, False
        if not was_written and not self._files.needs_reading:
            return
        problems = self._files.problems
        changes = self._files.read_changes()
        if changes is None:
            return
        check_hive_exists(self._lock, self._hive.layout)  # and not another hive in its place
        if self._files.problems != problems:
            for problem in self._files.problems.values():
                _log.warning("an agent keeps its old settings: %s", problem)
            self._write_record()
        if not (changes.new or changes.changed or changes.removed):
            return
        self._fork_server.warm()  # it reads the new files
        for name in changes.new:
            self._employ(name)
            self._watch.add(name)
        for name in changes.changed:
            self._signal(self._children[name], signal.SIGUSR1)
        for name in changes.removed:
            self._retire(self._children[name], "removed", signal.SIGUSR1)
        for name in (*changes.new, *changes.changed, *changes.removed):
            _log.info("agents/ has changed: %s", name)  # after the signals: who reads it knows that the agent was told
        if changes.removed:
            self._return_removed()

    def _follow_link(self) -> None:
        """Run the exchange process while the hive is linked. Costs a stat."""
        child = self._children.get(EXCHANGE)
        is_linked = self._hive.linked_hives.is_linked
        if is_linked and (child is None or child.end_reason is not None):
            self._employ(EXCHANGE)
        elif not is_linked and child is not None and child.end_reason is None:
            self._retire(child, "removed", signal.SIGTERM)
            if not child.pid:
                self._return_removed()

    def _employ(self, name: str) -> None:
        """Start an agent, unless it still runs."""
        child = self._children.setdefault(name, _Child(name))
        child.end_reason, child.start_at = None, None if child.pid else time.monotonic()

    def _retire(self, child: _Child, reason: Literal["stopped", "removed"], number: int) -> None:
        """Send an agent the signal `number`, which ends it. `reason` says why it is not started again."""
        child.end_reason, child.start_at = reason, None
        self._signal(child, number)

    def _signal(self, child: _Child, number: int) -> None:
        if child.pid:
            self._fork_server.signal(child.name, number)

    def _return_removed(self) -> None:
        """Move the tasks of agents that have neither a file nor a process back to the inbox."""
        self._children = {
            name: child for name, child in self._children.items() if child.end_reason != "removed" or child.pid
        }
        try:
            return_removed(self._hive, lambda name: name in self._children or self._files.has_file(name))
        except (HivemindError, OSError) as error:
            _log.warning("the tasks of removed agents cannot be returned: %s", error)

    def _read_reports(self) -> None:
        reports = self._fork_server.reports()
        if reports is None:
            self._replace_fork_server()
            return
        for report in reports:
            if "ready" in report:
                self._ready = True
            elif "started" in report:
                child = self._children[report["started"]]
                child.steps_finished = 0  # its status starts counting at zero
                child.pid, child.beat_seen, child.beat_ns = report["pid"], time.monotonic(), 0
                child.started_at = child.beat_seen
                if child.end_reason is not None:  # meanwhile
                    self._signal(child, signal.SIGTERM)
            elif "exited" in report:
                self._handle_exit(self._children[report["exited"]], report["status"])
            elif "unborn" in report:
                _log.warning("%s cannot be started: %s; the supervisor tries again", report["unborn"], report["why"])
                if self._children[report["unborn"]].end_reason is None:
                    self._delay_start(self._children[report["unborn"]])

    def _delay_start(self, child: _Child) -> None:
        """Plan a restart of the agent after its current pause, and double the pause."""
        child.start_at = time.monotonic() + child.delay_s
        child.delay_s = min(_MAX_DELAY_S, child.delay_s * 2)

    def _handle_exit(self, child: _Child, exit_status: int = 0) -> None:
        child.pid, child.status = 0, exit_status
        self._record_death(child.name)
        status = read_status(self._hive.layout.agent_state(child.name), child.name)
        step_count = status.steps_finished if status else 0
        if step_count > child.steps_finished:
            child.delay_s, child.deaths = _MIN_DELAY_S, 0
        child.steps_finished = step_count
        child.deaths += exit_status != 0
        if child.deaths >= _REPORTED_DEATHS:
            self._write_record()
        if child.end_reason is None:
            self._delay_start(child)
        elif child.end_reason == "removed":
            self._return_removed()

    def _replace_fork_server(self) -> None:
        """Start a new fork server and all agents again: the old fork server was killed, and its agents end without it.

        Raises UserError if several in a row have ended before they were ready.
        """
        self._failed_starts = 0 if self._ready else self._failed_starts + 1
        if self._failed_starts == _MAX_FAILED_STARTS:
            raise UserError(
                f"the process that starts the agents has ended {_MAX_FAILED_STARTS} times before it was ready",
                remedy=_UP_OUTPUT,
            )
        self._fork_server.close()
        assert self._watch is not None
        self._watch.close()  # its threads must not run while the new fork server is forked
        self._ready = False
        self._fork_server = ForkServer(*self._fork_server_parts)
        self._watch = HiveWatch(self._hive)
        for child in [*self._children.values()]:
            self._handle_exit(child)

    def _start_due(self) -> None:
        now = time.monotonic()
        due_children = [
            child for child in self._children.values() if child.start_at is not None and child.start_at <= now
        ]
        for child in due_children:
            child.start_at = None
        self._fork_server.start([child.name for child in due_children])

    def _kill_hung(self) -> None:
        """Kill agents without a heartbeat for `hang_after` seconds, by this process's monotonic clock."""
        now, limit = time.monotonic(), self._hive.config.hang_after
        if now - self._last_check < limit / 20:  # not after each event: it costs a stat for every agent
            return
        was_suspended, self._last_check = now - self._last_check > limit, now
        for child in self._children.values():
            if not child.pid:
                continue
            if was_suspended:  # this process was suspended (Ctrl-Z), perhaps the agents too: restart their clocks
                child.beat_seen = now
            try:
                beat = os.stat(self._hive.layout.agent_state(child.name) / "heartbeat").st_mtime_ns
            except OSError:  # missing or unreadable counts as no heartbeat
                beat = 0
            if child.deaths and now - child.started_at > _STABLE_S:
                child.deaths = 0
                self._write_record()
            if beat != child.beat_ns:
                child.beat_ns, child.beat_seen = beat, now
            elif now - child.beat_seen > limit:
                _log.warning("%s has shown no sign of life for %g s and is killed", child.name, limit)
                self._fork_server.signal(child.name, signal.SIGKILL)
                child.beat_seen = now
        self._record_other_deaths()

    def _record_other_deaths(self) -> None:
        """Free the leases of dead agents that the supervisor has not started (members, `agent run`)."""
        other_agents = [name for name in self._hive.agents if name not in self._children]
        try:
            record_deaths(self._hive.journal, self._hive.layout, other_agents, by="supervisor")
            return_tasks(self._hive)
        except (HivemindError, OSError) as error:  # checked again later; the agent's next start records it as well
            _log.warning("deaths of agents cannot be recorded: %s", error)

    def _end(self) -> None:
        """Let the fork server end every agent within seconds, or by the deadline of `hivemind down`. Then record the deaths of
        agents that did not end cleanly."""
        deadline = self._hive.layout.deadline
        self._fork_server.close(remaining_s(deadline))
        deadline.unlink(missing_ok=True)
        for name in self._children:
            self._record_death(name, "did not end in time")

    def _settle_databases(self) -> None:
        """Write the databases' logs into the databases, because agents do not close their databases."""
        layout = self._hive.layout
        for path in (layout.documents_db, layout.graphs_db, layout.memory_db):
            try:
                settle_log(path)
            except sqlite3.Error as error:  # the next reader reads the log too, or restores the database
                _log.warning("%s: the log next to it was not written into it: %s", path, error)

    def _record_death(self, name: str, reason: str | None = None) -> None:
        """Log an agent's death and record it in the journal. If that fails, the agent's next start records it.

        `reason` defaults to the way in which its process ended.
        """
        if not self._lock.is_current():
            return
        try:
            child = self._children[name]
            reason = reason or (child.death if child.status else "unknown")
            if journal_death(self._hive.journal, self._hive.layout, name, by="supervisor", reason=reason):
                _log.warning("%s has died: %s", name, reason)
        except (HivemindError, OSError) as error:
            _log.warning("the death of %s cannot be recorded: %s", name, error)
