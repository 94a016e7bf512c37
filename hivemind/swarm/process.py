"""An agent's process, from its first moment to its last."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path

from hivemind.agent.agent import Agent
from hivemind.agent.stop_signal import StopSignal
from hivemind.errors import WRONG_USE, HivemindError, is_disk_full
from hivemind.fs import HeldLock, Lock, open_own, set_aside
from hivemind.fs.doorbell import ring
from hivemind.fs.sockets import readable
from hivemind.masking import harmless, mask
from hivemind.presence.identity import HiveGone, announce, check_here, farewell, take_name
from hivemind.presence.parts import Parts
from hivemind.presence.status import StatusFile, read_status
from hivemind.presence.watching import SUPERVISOR, Watchman
from hivemind.private import keep_keys_private
from hivemind.swarm.absence import return_tasks
from hivemind.swarm.preflight import preflight
from hivemind.taskrun.waits import DISK_FULL

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0
_STUCK_AFTER = 3  # what is over by then was a moment's want of files or room, and nobody need be told
_log = logging.getLogger(__name__)


class Life:
    """One process's life as the agent `name`, whose `lock` it holds. `run` lasts until `stop`, or until `lifeline` closes."""

    def __init__(self, hive: Parts, name: str, lock: Lock, *, lifeline: int | None = None) -> None:
        self._hive, self._name, self._lock = hive, name, lock
        self._stop_signal = StopSignal(lifeline)
        self._folder = hive.layout.agent_state(name)
        self._incarnation = 0
        self._agent: Agent | None = None
        self._tries = 0
        self._lost: str | None = None
        self._watchman = Watchman(hive) if lifeline is None else None

    def stop(self) -> None:
        """End after the current action. May be called from a signal's callback."""
        self._stop_signal.stop()
        if self._agent is not None:
            self._agent.stop()

    def finish(self) -> None:
        """End after the current turn. May be called from a signal's callback."""
        self._stop_signal.finish()
        if self._agent is not None:
            self._agent.finish()

    def run(self) -> None:
        """Be the agent; be it anew after what a person can mend. Raises HiveGone."""
        try:
            while not self._stop_signal.is_set():
                began = time.monotonic()
                self._check_here()
                try:
                    self._live()
                except HiveGone:
                    raise
                except (HivemindError, OSError) as error:
                    self._tries = 1 if time.monotonic() - began > _LONGEST_PAUSE_S else self._tries + 1
                    self._stuck(error)
        finally:
            if self._watchman is not None:
                self._watchman.close()
            if self._incarnation and self._lock.is_current():
                farewell(self._hive.journal, self._name, self._incarnation, by="itself")

    def _live(self) -> None:
        self._make_folder()
        if not self._incarnation:
            self._lost = _died_over(self._folder, self._name)
            self._incarnation = announce(self._hive.journal, self._name, os.getpid())
        self._rest()
        agent = Agent(
            self._hive,
            self._name,
            self._incarnation,
            lifeline=self._stop_signal.lifeline,
            on_idle=self._rest,
            check=self._check_here,
        )
        try:
            self._agent = agent
            if not self._stop_signal.is_set():
                agent.scheduler.active_tasks.resume(self._lost)
                self._lost = None
                agent.run()
        finally:
            self._agent = None
            if self._lock.is_current():
                agent.close()
            else:
                agent.pulse.close()

    def _check_here(self) -> None:
        check_here(self._lock, self._hive.layout)

    def _rest(self) -> None:
        """Without a supervisor: see to the watching, and to what members have left."""
        if self._watchman is not None:
            self._watchman.take_over()
            return_tasks(self._hive)

    def _make_folder(self) -> None:
        if os.path.lexists(self._folder) and not self._folder.is_dir():
            _log.warning("%s is no folder: kept as %s", self._folder, set_aside(self._folder).name)
        self._folder.mkdir(parents=True, exist_ok=True)

    def _stuck(self, error: Exception) -> None:
        """Say what is in the way, and rest for a while, alive."""
        full = is_disk_full(error)
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._tries - 1, 10))
        _log.warning("%s cannot go on (again in %g s): %s", self._name, pause, error)
        told = DISK_FULL if full else " ".join(str(error).split()) if self._tries >= _STUCK_AFTER else None
        if self._tries == _STUCK_AFTER and self._stop_signal.lifeline is None:
            sys.stderr.write(f"hivemind: {self._name} cannot go on until this is mended: {told}\n")
        status = StatusFile(self._folder, self._name)
        until = time.monotonic() + pause
        while not self._stop_signal.is_set() and (left := until - time.monotonic()) > 0:
            self._check_here()
            with contextlib.suppress(OSError):  # the want of room may be what it is stuck in
                state = "waiting" if full else "stuck" if told else "starting"
                changed = status.update(state=state, incarnation=self._incarnation, problem=told)
                status.beat()
                if changed:
                    ring(self._hive.layout.doorbells, SUPERVISOR)
            readable(self._stop_signal.descriptors, min(left, self._hive.config.hang_after / 3))


def _died_over(folder: Path, name: str) -> str | None:
    """The task that the last process had in focus, if it ended in the middle of a turn."""
    last = read_status(folder, name)
    return last.task if last is not None and last.state == "working" else None


_LOG_BYTES = 5_000_000


def run_agent(hive: Parts, name: str, *, lifeline: int | None = None) -> int:
    """Be the agent `name` until told to end; gives the exit status (0, or 2 if the name is held).

    SIGTERM and SIGINT end it in order, SIGUSR1 does after its turn; so does the closing of `lifeline`, a descriptor that
    the parent holds the other end of. Without a supervisor it also keeps the hive's watcher, if no other process does.
    Raises UserError, without one, for an unknown agent, mind or tool; a supervisor has looked before.
    """
    if lifeline is None:
        preflight(hive, [name])
        keep_keys_private()
    try:
        name_lock = take_name(hive.layout, name)
    except HeldLock as held:
        sys.stderr.write(f"hivemind: {held}\n")
        return WRONG_USE
    life = Life(hive, name, name_lock, lifeline=lifeline)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: life.stop())
    signal.signal(signal.SIGUSR1, lambda *_: life.finish())
    try:
        life.run()
    except HiveGone as gone:
        sys.stderr.write(f"hivemind: {gone}\n")
        return WRONG_USE
    finally:
        name_lock.release()
    return 0


def output_to(path: Path) -> None:
    """Send standard output and standard error to a file; a file of over 5 MB becomes `<name>.1` first."""
    file = open_log(path)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def open_log(path: Path) -> int:
    """A descriptor to append to a log with. A log of over 5 MB becomes `<name>.1`; what is no file is set aside, and said."""
    if path.exists() and not path.is_file():
        _log.warning("%s: is no file; it is kept as %s", path, set_aside(path).name)
    elif path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    file = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.set_blocking(file, True)
    return file


def start_logging() -> None:
    """Log to standard error, wherever that leads; what is forked from here does so too."""
    logging.root.handlers.clear()  # not closed: their descriptors were the parent's, and are someone else's by now
    logging.basicConfig(level=logging.INFO)
    for handler in logging.root.handlers:
        handler.setFormatter(_Masking("%(asctime)s %(levelname)s %(name)s: %(message)s"))


class _Masking(logging.Formatter):
    """Masks what a message, an exception or its traceback tells, and makes it harmless: logs are read on terminals."""

    def format(self, record: logging.LogRecord) -> str:
        return harmless(mask(super().format(record)))
