"""The embedding process, from its first line: `python -m hivemind.embedding.service.process FOLDER KIND`.

It is a new interpreter of a session of its own, so it inherits no lock, no socket and no terminal of whoever started it.
The process that was started ends as soon as the socket accepts (status 0) or there is nothing to be done (another
serves: 0 too); the one that serves is its orphaned child, and nobody's zombie.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
import traceback
from typing import NoReturn

from hivemind.embedding.kinds import open_kind
from hivemind.embedding.service.places import connect, listen, lock_of, log_of
from hivemind.embedding.service.server import Server

__all__ = ["main"]

_TRIES, _TRY_S = 100, 0.05
_NICE = 5  # agents that wait for a disk or a person go first


def main(folder: str, kind: str) -> int:
    """Serve, unless another process does. Returns once there is a socket to connect to; the child goes on."""
    up, up_end = os.pipe()
    if os.fork() == 0:
        os.close(up)
        _be(folder, kind, up_end)
    os.close(up_end)
    return 0 if os.read(up, 1) else 1


def _be(folder: str, kind: str, up: int) -> NoReturn:
    status = 1
    try:
        os.chdir("/")
        lock = lock_of(folder, kind)
        if not lock.acquire(wait=False, what=f"embedding ({kind})"):
            if _is_answered(folder, kind):
                os.write(up, b"+")
            os._exit(0)
        log = os.open(log_of(folder, kind), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.nice(_NICE)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        listening = listen(folder, kind)
        os.write(up, b"+")
        os.close(up)
        _serve(kind, listening)
        status = 0
    except Exception:  # the boundary of a process: what happened stands in its log
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _is_answered(folder: str, kind: str) -> bool:
    """Whether the process that has the lock listens, which may take it a moment."""
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):
            connect(folder, kind, _TRY_S).close()
            return True
        time.sleep(_TRY_S)
    return False


def _serve(kind: str, listening: socket.socket) -> None:
    path = listening.getsockname()
    inode = os.stat(path).st_ino
    try:
        Server(open_kind(kind), listening).serve()
    finally:
        if os.path.lexists(path) and os.lstat(path).st_ino == inode:
            os.unlink(path)
        listening.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
