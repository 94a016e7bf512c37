"""Processes of their own for the tests: the same code, another process, killed or stopped where a test says so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.program import Python

PRELUDE = """
import os, signal, sys, time
from hivemind.coordination import *
from hivemind.fs import set_durability
from tests.durability import relaxed
journal = Journal(relaxed(sys.argv[1]), **eval(os.environ.get("JOURNAL", "{}")))
steps, leases = Steps(journal), StepLeases(journal)
def say(word):
    print(word, flush=True)
"""


def start(code: str, folder: Path, *args: str, crash: str | None = None) -> subprocess.Popen[str]:
    """A process that runs `code` after PRELUDE; `crash` is the crash point that kills it."""
    environ = {**os.environ, "HIVEMIND_CRASH_AT": crash or ""}
    return Python(
        ["-c", PRELUDE + code, str(folder), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )


def run(code: str, folder: Path, *args: str, crash: str | None = None) -> tuple[int, str]:
    """(exit status, what it printed) of a process that has ended. Raises AssertionError if it ended with a traceback."""
    child = start(code, folder, *args, crash=crash)
    out, err = child.communicate(timeout=60)
    assert "Traceback" not in err, err
    return child.returncode, out
