"""Keys in a process's environment, kept from the programs that it runs (spec 7, *Commands*: environment without secrets).

A command has the same user as its agent, and may read what the system shows a user of his processes: `/proc/PID/environ` is
the environment that a process was started with, `/proc/PID/mem` all that it knows. So whoever may run commands writes over
the first and shuts the second. Where no key is set, nothing is done: such a process can be looked into as usual.
"""

from __future__ import annotations

import os

from hivemind.guard import PR_SET_DUMPABLE, prctl
from hivemind.masking import secret_names

_ENV_START, _ENV_END = 47, 48  # of what follows the name in /proc/self/stat; see proc(5)


def keep_keys_private() -> None:
    """Hide what this process, and what is forked from it, knows of keys. `os.environ` stays as it is.

    Programs that it starts get what they are given, and can be read again.
    """
    names = secret_names()
    if names:
        _overwrite({os.fsencode(name) for name in names})
        prctl(PR_SET_DUMPABLE, 0)


def _overwrite(names: set[bytes]) -> None:
    """Put stars for the values of these variables where the system shows them. (Where there is no /proc: nothing.)"""
    import ctypes

    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    for name in names:
        os.environb[name] = os.environb[name]  # getenv() finds it elsewhere from now on
    address = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in names:
            ctypes.memset(address + len(name) + 1, ord("*"), len(value))
        address += len(entry) + 1
