"""The supervisor: starts agents, starts them again when they die or hang, ends them in order (spec 1).

It holds nothing that the others need: agents work without it, and its own death only makes them end. It keeps the hive's
one watcher, whose events ring the agents' doorbells.
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

from hivemind.errors import HivemindError
from hivemind.fs.database import settle_log
from hivemind.fs.doorbell import Doorbell
from hivemind.fs.sockets import readable
from hivemind.layout import EXCHANGE
from hivemind.presence.identity import bury, bury_dead, check_here, hold
from hivemind.presence.parts import Parts
from hivemind.presence.status import read_status
from hivemind.presence.watching import SUPERVISOR, HiveWatch, supervisor_lock
from hivemind.swarm.absence import return_removed, return_tasks
from hivemind.swarm.agent_files import AgentFiles
from hivemind.swarm.due import DueWork
from hivemind.swarm.nursery import Nursery, RunAgent

_log = logging.getLogger(__name__)
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 5.0
_DEATHS_IN_A_ROW = 3  # and somebody should know
_SETTLED_S = 60.0  # who has lived so long is well
_LOOK_S = 1.0  # how often it looks whether the hive is still there


@dataclass(slots=True)
class _Child:
    """What the supervisor knows of one agent's process; times are monotonic seconds. `ended` says why it is not started
    again: a person has stopped it, or its file was taken away."""

    name: str
    pid: int = 0
    start_at: float | None = 0.0
    delay_s: float = _FIRST_DELAY_S
    steps_finished: int = 0
    started_at: float = 0.0
    deaths: int = 0
    beat_ns: int = 0
    beat_seen: float = 0.0
    ended: Literal["stopped", "removed"] | None = None


class Supervisor:
    """Runs the swarm of one hive until it is told to end, or until `done` says that nothing is left to do."""

    def __init__(
        self, hive: Parts, files: AgentFiles, names: Collection[str], *, warm: Callable[[], None], run_agent: RunAgent
    ) -> None:
        """Take the hive's supervisor lock and fork the nursery. `files` is followed while it runs.

        Raises HeldLock if another process holds it. Call it while this process has one thread and nothing open.
        """
        self._hive = hive
        self._lock = supervisor_lock(hive.layout.locks)
        hold(self._lock, hive.layout, "this hive is up already", "hivemind down ends it", what="hivemind up")
        self._nursery_parts = (warm, run_agent)
        self._nursery = Nursery(warm, run_agent)
        self._files = files
        self._due = DueWork(hive.layout, at_once=hive.config.retention.is_set)
        self._children = {name: _Child(name) for name in names}
        if hive.linked.is_linked:
            self._children[EXCHANGE] = _Child(EXCHANGE)
        self._stop_stopped()
        self._watch: HiveWatch | None = None
        self._bell: Doorbell | None = None
        self._stop = False
        self._ready = False
        self._looked = time.monotonic()

    @property
    def pids(self) -> dict[str, int]:
        """The processes that live now, by agent."""
        return {name: child.pid for name, child in self._children.items() if child.pid and name != EXCHANGE}

    @property
    def names(self) -> tuple[str, ...]:
        """The agents that it keeps running."""
        return tuple(name for name, child in self._children.items() if child.ended is None and name != EXCHANGE)

    @property
    def is_telling(self) -> bool:
        """Whether something that is due is being done, or should be."""
        return self._due.busy or self._due.left_s <= 0

    def stop(self) -> None:
        """Have `run` end the swarm in order. May be called from a signal's callback."""
        self._stop = True

    def run(self, tick: Callable[[], bool], tick_s: float | None) -> None:
        """Keep the swarm running; returns once it has ended.

        `tick` is called after everything that happens and every `tick_s` seconds (None: only then); the swarm ends when
        it returns True. SIGINT and SIGTERM end it too. Raises HiveGone, once all have ended; before any is started UserError
        or OSError for a journal that cannot be read.
        """
        wake, wake_end = os.pipe()
        os.set_blocking(wake_end, False)
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in (signal.SIGINT, signal.SIGTERM)}
        old_wakeup = signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        try:
            with contextlib.closing(Doorbell(self._hive.layout.doorbells, SUPERVISOR)) as self._bell:
                self._watch = HiveWatch(self._hive)
                self._note()
                try:
                    self._hive.journal.view(lambda _: None)  # with one that cannot be read every agent would be stuck
                    self._return_removed()
                    while not self._stop:
                        check_here(self._lock, self._hive.layout)
                        self._step(wake, tick_s)
                        if self._ready and tick():
                            break
                finally:
                    self._watch.close()
                    self._end()
                    self._due.close()
                    self._settle_databases()
        finally:
            signal.set_wakeup_fd(old_wakeup)
            for number, callback in before.items():
                signal.signal(number, callback)
            os.close(wake)
            os.close(wake_end)
            self._lock.release()

    # one turn of the loop

    def _step(self, wake: int, tick_s: float | None) -> None:
        assert self._bell is not None
        timeout = self._next_moment(tick_s)
        watched: list[Any] = [wake, self._nursery.socket, self._bell]
        ready = readable(watched, timeout)
        if wake in ready:
            os.read(wake, 4096)
        if self._bell in ready:
            self._bell.wait(0)
        if self._nursery.socket in ready:
            self._hear()
        if self._ready:
            self._stop_stopped()
            self._follow_files()
            self._follow_link()
            self._start_due()
            self._kill_hung()
            check_here(self._lock, self._hive.layout)
            assert self._watch is not None
            written, self._watch.schedule_written = self._watch.schedule_written, False
            self._due.look(written)

    def _next_moment(self, tick_s: float | None) -> float:
        """Seconds until something is due: a restart, a look for hung agents, a tick."""
        now = time.monotonic()
        due = [_LOOK_S, self._hive.config.hang_after / 3, self._due.left_s]
        due += [child.start_at - now for child in self._children.values() if child.start_at is not None and self._ready]
        if tick_s is not None:
            due.append(tick_s)
        return max(0.0, min(due))

    def _note(self) -> None:
        assert self._watch is not None
        dying = {
            child.name: f"has died {child.deaths} times in a row: what hivemind up prints says why (.hive/logs/swarm.log)"
            for child in self._children.values()
            if child.deaths >= _DEATHS_IN_A_ROW
        }
        problems = {**self._files.problems, **dying}
        self._lock.write_holder(what="hivemind up", watching=self._watch.described, problems=problems)

    def _stop_stopped(self) -> None:
        """End whom a person has stopped, start again whom one has started."""
        try:
            stopped = set(os.listdir(self._hive.layout.stopped))
        except OSError:  # nobody was ever stopped
            stopped = set()
        for child in self._children.values():
            if child.name in stopped and child.ended is None:
                child.ended, child.start_at = "stopped", None
                self._tell(child, signal.SIGTERM)
            elif child.ended == "stopped" and child.name not in stopped:
                child.ended, child.delay_s = None, _FIRST_DELAY_S
                if not child.pid:
                    child.start_at = time.monotonic()

    def _follow_files(self) -> None:
        """Start who is new in agents/, start again who has changed, after the turn; give back what those have who are gone."""
        assert self._watch is not None
        written, self._watch.agents_written = self._watch.agents_written, False
        if not written and not self._files.must_look:
            return
        problems = self._files.problems
        changes = self._files.look()
        if changes is None:
            return
        check_here(self._lock, self._hive.layout)  # and not another hive in its place
        if self._files.problems != problems:
            for why in self._files.problems.values():
                _log.warning("an agent goes on as it was: %s", why)
            self._note()
        if not (changes.new or changes.changed or changes.removed):
            return
        self._nursery.warm()  # it reads the files as they are now
        for name in (*changes.new, *changes.changed, *changes.removed):
            _log.info("agents/ has changed: %s", name)
        for name in changes.new:
            child = self._children.setdefault(name, _Child(name))
            child.ended, child.start_at = None, None if child.pid else time.monotonic()
            self._watch.add(name)
        for name in changes.changed:
            self._tell(self._children[name], signal.SIGUSR1)
        for name in changes.removed:
            self._children[name].ended, self._children[name].start_at = "removed", None
            self._tell(self._children[name], signal.SIGUSR1)
        if changes.removed:
            self._return_removed()

    def _follow_link(self) -> None:
        """Run the process that links hives for as long as this one is linked: a stat."""
        child = self._children.get(EXCHANGE)
        linked = self._hive.linked.is_linked
        if linked and (child is None or child.ended is not None):
            child = self._children.setdefault(EXCHANGE, _Child(EXCHANGE))
            child.ended, child.start_at = None, None if child.pid else time.monotonic()
        elif not linked and child is not None and child.ended is None:
            child.ended, child.start_at = "removed", None
            if child.pid:
                self._tell(child, signal.SIGTERM)
            else:
                self._return_removed()

    def _tell(self, child: _Child, number: int) -> None:
        if child.pid:
            self._nursery.signal(child.name, number)

    def _return_removed(self) -> None:
        """Give back what agents have in hand that have neither a file nor a process."""
        self._children = {name: one for name, one in self._children.items() if one.ended != "removed" or one.pid}
        try:
            return_removed(self._hive, lambda name: name in self._children or self._files.has_file(name))
        except (HivemindError, OSError) as error:
            _log.warning("what removed agents had in hand is not returned: %s", error)

    def _hear(self) -> None:
        reports = self._nursery.reports()
        if reports is None:
            self._nursery_died()
            return
        for report in reports:
            if "ready" in report:
                self._ready = True
            elif "started" in report:
                child = self._children[report["started"]]
                child.steps_finished = 0  # its status counts from its own start
                child.pid, child.beat_seen, child.beat_ns = report["pid"], time.monotonic(), 0
                child.started_at = child.beat_seen
                if child.ended is not None:  # meanwhile
                    self._tell(child, signal.SIGTERM)
            elif "exited" in report:
                self._exited(self._children[report["exited"]], died=report["status"] != 0)
            elif "unborn" in report:
                _log.warning("%s cannot be started: %s; tried again", report["unborn"], report["why"])
                if self._children[report["unborn"]].ended is None:
                    self._later(self._children[report["unborn"]])

    def _later(self, child: _Child) -> None:
        """Start it again after its pause, which doubles."""
        child.start_at = time.monotonic() + child.delay_s
        child.delay_s = min(_LONGEST_DELAY_S, child.delay_s * 2)

    def _exited(self, child: _Child, *, died: bool = False) -> None:
        child.pid = 0
        self._bury(child.name)
        status = read_status(self._hive.layout.agent_state(child.name), child.name)
        finished = status.steps_finished if status else 0
        if finished > child.steps_finished:
            child.delay_s, child.deaths = _FIRST_DELAY_S, 0
        child.steps_finished = finished
        child.deaths += died
        if child.deaths >= _DEATHS_IN_A_ROW:
            self._note()
        if child.ended is None:
            self._later(child)
        elif child.ended == "removed":
            self._return_removed()

    def _nursery_died(self) -> None:
        """Somebody killed the nursery: its agents end by themselves; start a new one and them again."""
        self._nursery.close()
        assert self._watch is not None
        self._watch.close()  # its threads must not be there when the new nursery is forked
        self._ready = False
        self._nursery = Nursery(*self._nursery_parts)
        self._watch = HiveWatch(self._hive)
        for child in [*self._children.values()]:
            self._exited(child)

    def _start_due(self) -> None:
        now = time.monotonic()
        due = [child for child in self._children.values() if child.start_at is not None and child.start_at <= now]
        for child in due:
            child.start_at = None
        self._nursery.start([child.name for child in due])

    def _kill_hung(self) -> None:
        """Kill agents whose heartbeat has stood still for `hang_after` of our own, monotonic time."""
        now, limit = time.monotonic(), self._hive.config.hang_after
        if now - self._looked < limit / 20:  # not after each ring: it is a look at a file for every agent
            return
        slept, self._looked = now - self._looked > limit, now
        for child in self._children.values():
            if not child.pid:
                continue
            if slept:  # this process was stopped itself (Ctrl-Z), and so perhaps were they: everyone gets a new start
                child.beat_seen = now
            try:
                beat = os.stat(self._hive.layout.agent_state(child.name) / "heartbeat").st_mtime_ns
            except OSError:  # not there, or its folder is none: no sign of life
                beat = 0
            if child.deaths and now - child.started_at > _SETTLED_S:
                child.deaths = 0
                self._note()
            if beat != child.beat_ns:
                child.beat_ns, child.beat_seen = beat, now
            elif now - child.beat_seen > limit:
                self._nursery.signal(child.name, signal.SIGKILL)
                child.beat_seen = now
        self._bury_others()

    def _bury_others(self) -> None:
        """Agents that it has not started (members from outside, `agent run`) end without a word, too: free their leases."""
        others = [name for name in self._hive.agents if name not in self._children]
        try:
            bury_dead(self._hive.journal, self._hive.layout, others, by="supervisor")
            return_tasks(self._hive)
        except (HivemindError, OSError) as error:  # looked at again; their next start would write it as well
            _log.warning("who has died is not written: %s", error)

    def _end(self) -> None:
        """Have the nursery end every agent, within seconds; then bury who died without a word."""
        self._nursery.close()
        for name in self._children:
            self._bury(name)

    def _settle_databases(self) -> None:
        """Agents end without closing their databases: write their logs into them."""
        layout = self._hive.layout
        for path in (layout.documents_db, layout.graphs_db, layout.memory_db):
            try:
                settle_log(path)
            except sqlite3.Error as error:  # who opens it next reads the log too, or restores the database
                _log.warning("%s: its log stays beside it: %s", path, error)

    def _bury(self, name: str) -> None:
        """Write that it has died, if there is a journal to write it into; else its next start will."""
        if not self._lock.is_current():
            return
        try:
            bury(self._hive.journal, self._hive.layout, name, by="supervisor")
        except (HivemindError, OSError) as error:
            _log.warning("that %s has died is not written: %s", name, error)
