"""A process of its own session, whose starter waits until it is up (`hivemind up --detach`)."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from hivemind.errors import FAILED, HivemindError, UserError, exit_line
from hivemind.frozen import frozen
from hivemind.swarm.process import open_log, output_to, start_logging

Work = Callable[[Callable[[], None]], int]
"""What the process does: it is given what to call once it is up, and gives its exit status."""


@frozen
class DetachedSwarm:
    """The process that was started. If it did not come up, `error` says why and `status` is the exit status for it."""

    pid: int
    error: str | None = None
    status: int = 0


def detach(work: Work, log: Path) -> DetachedSwarm:
    """Run `work` in a new session without a terminal, its output in `log`; returns once it is up or has ended.

    Call it while this process has one thread and nothing open that two processes must not share. Raises OSError if the
    log cannot be written.
    """
    os.close(open_log(log))
    answer, answer_end = os.pipe2(os.O_CLOEXEC)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(answer)
        os.setsid()
        if os.fork():  # who is no leader of a session can never get a terminal back
            os._exit(0)
        _be(work, log, answer_end)
    os.close(answer_end)
    os.waitpid(child, 0)
    with open(answer, "rb") as file:
        line = file.readline()
    if not line:
        return DetachedSwarm(0, f"the swarm ended before it was up; {log} says why", FAILED)
    said = json.loads(line)
    return DetachedSwarm(said["pid"], said.get("error"), said.get("status", 0))


def _be(work: Work, log: Path, answer: int) -> NoReturn:
    """The detached process: never returns."""
    waiting = True

    def tell(**more: object) -> None:
        nonlocal waiting
        if waiting:
            waiting = False
            os.write(answer, json.dumps({"pid": os.getpid(), **more}).encode() + b"\n")
            os.close(answer)

    status = FAILED
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        output_to(log)
        start_logging()
        os.chdir("/")
        status = work(tell)
    except Exception as error:  # the boundary of a process: into the log, and in one line to who waits
        line, status = exit_line(error)
        if isinstance(error, UserError):
            sys.stderr.write(f"hivemind: {line}\n")
        else:
            traceback.print_exc()
        tell(error=line if isinstance(error, HivemindError | OSError) else f"{line}; {log} says more", status=status)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
