"""Child processes for tests. They run Python code and can be killed at a crash point."""

from __future__ import annotations

import os
import signal
import subprocess

from tests.program import Python


def start_child(code: str, *args: object, crash_at: str | None = None) -> subprocess.Popen[str]:
    environ = {**os.environ, "HIVEMIND_CRASH_AT": crash_at or ""}
    return Python(["-c", code, *map(str, args)], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_child(code: str, *args: object, crash_at: str | None = None) -> str:
    """Run a child and return its output. It must die at the crash point, or exit with 0 if there is none."""
    child = start_child(code, *args, crash_at=crash_at)
    stdout, _ = child.communicate(timeout=60)
    assert child.returncode == (-signal.SIGKILL if crash_at else 0), (crash_at, child.returncode)
    return stdout
