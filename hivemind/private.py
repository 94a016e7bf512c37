"""Hide the API keys in a process's environment from the programs that it runs.

A command runs as the same user as its agent, and may read `/proc/PID/environ`, the environment with which the agent was
started, and `/proc/PID/mem`, the agent's memory. So an agent's process overwrites its environ file and closes its
memory. Without keys in the environment the process stays open, so it can be debugged as usual.
"""

from __future__ import annotations

import os

from hivemind.masking import secret_names
from hivemind.reaper import PR_SET_DUMPABLE, prctl

_ENV_START, _ENV_END = 47, 48  # fields after the name in /proc/self/stat; see proc(5)


def keep_keys_private() -> None:
    """Hide the keys in this process and its forks. `os.environ` stays unchanged.

    Programs that the process starts get the environment that they are given, and are readable again.
    """
    names = secret_names()
    if names:
        _overwrite({os.fsencode(name) for name in names})
        prctl(PR_SET_DUMPABLE, 0)


def _overwrite(names: set[bytes]) -> None:
    """Overwrite the values of the variables `names` in /proc/self/environ by asterisks, if there is a /proc."""
    import ctypes

    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    for name in names:
        os.environb[name] = os.environb[name]  # moves the value that getenv() returns
    address = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in names:
            ctypes.memset(address + len(name) + 1, ord("*"), len(value))
        address += len(entry) + 1
