"""An agent's process, from its first moment to its last."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

from hivemind.fs import HeldLock, open_own, set_aside
from hivemind.masking import harmless, mask
from hivemind.presence.identity import HiveGone, take_name
from hivemind.presence.parts import Parts
from hivemind.private import keep_keys_private
from hivemind.swarm.life import Life
from hivemind.swarm.preflight import preflight

__all__ = ["log_to", "open_log", "output_to", "run_agent", "start_logging"]

DONE, FAILED, WRONG_USE = 0, 1, 2
_LOG_BYTES = 5_000_000
_log = logging.getLogger(__name__)


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
    return DONE


def log_to(path: Path) -> None:
    """Send this process's output and log to a file; a file of over 5 MB becomes `<name>.1` first."""
    output_to(path)
    start_logging()


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
