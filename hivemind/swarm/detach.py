"""A process in a new session; its starter waits until it is up (`hivemind up --detach`)."""

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
from hivemind.swarm.process import open_log, redirect_output, start_logging

DetachedWork = Callable[[Callable[[], None]], int]
"""The main function of the detached process. It calls its argument once the process is up, and returns the exit status."""


@frozen
class DetachedSwarm:
    """The started process. If it ended before it was up, `error` is the reason, and `status` is the exit status to use."""

    pid: int
    error: str | None = None
    status: int = 0


def detach(work: DetachedWork, log: Path) -> DetachedSwarm:
    """Run `work` in a new session without a terminal, with its output in `log`. Return once `work` is up or has ended.

    Call it while this process has one thread and no open file that two processes must not share. Raises OSError if the
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
        if os.fork():  # only the leader of a session can get a terminal
            os._exit(0)
        _run_detached(work, log, answer_end)
    os.close(answer_end)
    os.waitpid(child, 0)
    with open(answer, "rb") as file:
        line = file.readline()
        if not line:
            return DetachedSwarm(0, f"the swarm ended before it was up; {log} says why", FAILED)
        report = json.loads(line)
        if "error" in report:
            file.read()  # ends with the process, which holds the hive's lock until then
    return DetachedSwarm(report["pid"], report.get("error"), report.get("status", 0))


def _run_detached(work: DetachedWork, log: Path, answer: int) -> NoReturn:
    """Run `work` as the detached process, and write to the descriptor `answer` once it is up or has failed. This function never
    returns.
    """
    is_unanswered = True

    def report_start(**fields: object) -> None:
        nonlocal is_unanswered
        if is_unanswered:
            is_unanswered = False
            os.write(answer, json.dumps({"pid": os.getpid(), **fields}).encode() + b"\n")
            if "error" not in fields:
                os.close(answer)

    status = FAILED
    try:
        null_device = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null_device, 0)
        os.close(null_device)
        redirect_output(log)
        start_logging()
        os.chdir("/")
        status = work(report_start)
    except Exception as error:  # the boundary of a process: to the log, and in one line to the waiting starter
        line, status = exit_line(error)
        if isinstance(error, UserError):
            sys.stderr.write(f"hivemind: {line}\n")
        else:
            traceback.print_exc()
        report_start(
            error=line if isinstance(error, HivemindError | OSError) else f"{line}; {log} says more", status=status
        )
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
