"""Starting the embedding process, and making an end of one that hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from hivemind.embedding.embedder import EmbedderUnavailable
from hivemind.embedding.service.places import lock_of, log_of
from hivemind.fs.locks import is_here
from hivemind.masking import secret_names

__all__ = ["kill", "start"]

_START_S = 30.0


def start(folder: str, kind: str) -> None:
    """Have a process listen, this one or another's; it loads its model after that. Raises EmbedderUnavailable."""
    command = [sys.executable, "-m", "hivemind.embedding.service.process", folder, kind]
    try:
        os.makedirs(folder, exist_ok=True)
        status = subprocess.run(
            command,
            check=False,
            timeout=_START_S,
            env={name: value for name, value in os.environ.items() if name not in secret_names()},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbedderUnavailable(f"the embedding process does not start ({error})") from None
    if status != 0:
        raise EmbedderUnavailable("the embedding process does not start", where=log_of(folder, kind))


def kill(folder: str, kind: str) -> bool:
    """End the process that holds the lock, without asking it. False if there is none."""
    holder = lock_of(folder, kind).holder()
    pid = (holder or {}).get("pid")
    if not isinstance(pid, int) or not is_here(holder or {}):
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
