"""An agent's process, from start to end."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path

from hivemind.agent.agent import Agent
from hivemind.agent.stop_request import StopRequest
from hivemind.errors import HivemindError, is_disk_full
from hivemind.fs import Lock, open_regular, set_aside
from hivemind.fs.doorbell import ring
from hivemind.fs.sockets import wait_for_input
from hivemind.masking import mask, strip_controls
from hivemind.minds import warm_mind
from hivemind.presence.identity import HiveGone, check_hive_exists, journal_exit, journal_start
from hivemind.presence.parts import Parts
from hivemind.presence.service import run_named
from hivemind.presence.status import StatusFile, read_status
from hivemind.presence.watching import SUPERVISOR, SharedWatch
from hivemind.private import keep_keys_private
from hivemind.swarm.preflight import preflight
from hivemind.swarm.task_return import return_tasks
from hivemind.taskrun.waits import DISK_FULL

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0
_STUCK_TRIES = 3  # fewer failures in a row may be a short lack of files or room, and are not reported
_log = logging.getLogger(__name__)


class AgentProcess:
    """The process of the agent `name`, which holds the agent's `lock`. It runs until `stop`, or until `lifeline` closes."""

    def __init__(self, hive: Parts, name: str, lock: Lock, *, lifeline: int | None = None) -> None:
        self._hive, self._name, self._lock = hive, name, lock
        self._stop_request = StopRequest(lifeline, hive.layout.deadline, hive.layout.stopped / name)
        self._folder = hive.layout.agent_state(name)
        self._incarnation = 0
        self._agent: Agent | None = None
        self._tries = 0
        self._interrupted_task: str | None = None
        self._watchman = SharedWatch(hive) if lifeline is None else None

    def stop(self) -> None:
        """Make `run` return after the current action. May be called from a signal handler."""
        (self._agent or self._stop_request).stop()

    def finish(self) -> None:
        """Make `run` return after the current turn. May be called from a signal handler."""
        self._stop_request.finish()

    def run(self) -> None:
        """Run the agent, and run it again after an error that a person can correct. Raises HiveGone if the hive is gone."""
        try:
            while not self._stop_request.is_set():
                start_time = time.monotonic()
                self._check_hive()
                try:
                    self._run_agent()
                except HiveGone:
                    raise
                except (HivemindError, OSError) as error:
                    self._tries = 1 if time.monotonic() - start_time > _LONGEST_PAUSE_S else self._tries + 1
                    self._wait_out(error)
        finally:
            if self._watchman is not None:
                self._watchman.close()
            if self._incarnation and self._lock.is_current():
                journal_exit(self._hive.journal, self._name, self._incarnation, by="itself")

    def _run_agent(self) -> None:
        self._make_folder()
        if not self._incarnation:
            last_status = read_status(self._folder, self._name)
            if last_status is not None and last_status.state == "working":  # the last process died in a turn
                self._interrupted_task = last_status.task
            self._incarnation = journal_start(self._hive.journal, self._name, os.getpid())
        self._between_turns()
        warm_mind(self._hive.agents[self._name].mind)  # without its client, the agent claims no task
        agent = Agent(
            self._hive,
            self._name,
            self._incarnation,
            stop_request=self._stop_request,
            on_idle=self._between_turns,
            check=self._check_hive,
        )
        try:
            self._agent = agent
            if not self._stop_request.is_set():
                agent.scheduler.active_tasks.resume(self._interrupted_task)
                if self._interrupted_task is not None:
                    agent.learn_late(self._interrupted_task)
                self._interrupted_task = None
                agent.run()
        finally:
            self._agent = None
            if self._lock.is_current():
                agent.close()
            else:
                agent.pulse.close()

    def _check_hive(self) -> None:
        check_hive_exists(self._lock, self._hive.layout)

    def _between_turns(self) -> None:
        """Run the hive's watcher and move the tasks of absent members back to the inbox, unless a supervisor does both."""
        if self._watchman is not None:
            self._watchman.take_over()
            return_tasks(self._hive)

    def _make_folder(self) -> None:
        if os.path.lexists(self._folder) and not self._folder.is_dir():
            _log.warning("%s is not a folder: kept as %s", self._folder, set_aside(self._folder).name)
        self._folder.mkdir(parents=True, exist_ok=True)

    def _wait_out(self, error: Exception) -> None:
        """Report an error and wait, with heartbeats, for a pause that grows with each error in a row."""
        full = is_disk_full(error)
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._tries - 1, 10))
        _log.warning("%s cannot continue (next try in %g s): %s", self._name, pause, error)
        problem = DISK_FULL if full else " ".join(str(error).split()) if self._tries >= _STUCK_TRIES else None
        if self._tries == _STUCK_TRIES and self._stop_request.lifeline is None:
            sys.stderr.write(f"hivemind: {self._name} cannot continue until this is fixed: {problem}\n")
        status = StatusFile(self._folder, self._name)
        until = time.monotonic() + pause
        while not self._stop_request.is_set() and (remaining_s := until - time.monotonic()) > 0:
            self._check_hive()
            with contextlib.suppress(OSError):  # the disk may be full
                state = "waiting" if full else "stuck" if problem else "starting"
                has_changed = status.update(state=state, incarnation=self._incarnation, problem=problem)
                status.beat()
                if has_changed:
                    ring(self._hive.layout.doorbells, SUPERVISOR)
            wait_for_input(self._stop_request.descriptors, min(remaining_s, self._hive.config.hang_after / 3))


_LOG_BYTES = 5_000_000


def run_agent(hive: Parts, name: str, *, lifeline: int | None = None) -> int:
    """Run the agent `name` in this process until it is asked to end. Return 0, or 2 if another process holds the name.

    The agent ends cleanly after SIGTERM or SIGINT, or when `lifeline` closes (the parent has its other end); after SIGUSR1 it
    first finishes its turn. Without a `lifeline`, also run the hive's watcher if no other process does, and raise UserError for
    an unknown agent, mind or tool. (With a `lifeline`, the supervisor has checked these.)
    """
    if lifeline is None:
        preflight(hive, name)
        keep_keys_private()

    def work(lock: Lock) -> None:
        process = AgentProcess(hive, name, lock, lifeline=lifeline)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: process.stop())
        signal.signal(signal.SIGUSR1, lambda *_: process.finish())
        process.run()

    return run_named(hive, name, work)


def redirect_output(path: Path) -> None:
    """Redirect standard output and standard error to a file. A file over 5 MB is renamed to `<name>.1` first."""
    file = open_log(path)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def open_log(path: Path) -> int:
    """Open a log for appending and return its descriptor. A log over 5 MB becomes `<name>.1`. Anything but a file is
    set aside."""
    if path.exists() and not path.is_file():
        _log.warning("%s: is not a file; it is kept as %s", path, set_aside(path).name)
    elif path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    file = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.set_blocking(file, True)
    return file


def start_logging() -> None:
    """Log to standard error, also in the processes that are forked from this one."""
    logging.root.handlers.clear()  # not closed: their descriptors belonged to the parent, and may belong to other files by now
    logging.basicConfig(level=logging.INFO)
    for handler in logging.root.handlers:
        handler.setFormatter(_Masking("%(asctime)s %(levelname)s %(name)s: %(message)s"))


class _Masking(logging.Formatter):
    """Masks secrets and removes control characters in messages and tracebacks, since people read logs on terminals."""

    def format(self, record: logging.LogRecord) -> str:
        return strip_controls(mask(super().format(record)))
