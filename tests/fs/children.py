"""Real processes for tests: a child that runs Python code, and may be told to die at a crash point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start_child(code: str, *args: object, crash_at: str | None = None) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": os.fspath(ROOT)}
    environ.pop("HIVEMIND_CRASH_AT", None)
    if crash_at:
        environ["HIVEMIND_CRASH_AT"] = crash_at
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_child(code: str, *args: object, crash_at: str | None = None) -> str:
    """What the child printed; it must have died at the crash point if there is one, and ended well otherwise."""
    child = start_child(code, *args, crash_at=crash_at)
    printed, _ = child.communicate(timeout=60)
    assert child.returncode == (-signal.SIGKILL if crash_at else 0), (crash_at, child.returncode)
    return printed
