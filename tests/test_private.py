"""What other processes of the same user can find out of a process that holds keys."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hivemind.reaper import prctl

KEY = "plain-but-secret-17"
KEYS = {"BOAT_TOKEN": KEY, "SECOND_KEY": KEY, "HARMLESS": "seen"}
HOLDS = """
import os, sys
from hivemind.private import keep_keys_private
keep_keys_private()
again = os.popen("printf %s $BOAT_TOKEN").read()
print(os.environ["BOAT_TOKEN"] == os.environ["SECOND_KEY"] == again == sys.argv[1], flush=True)
sys.stdin.read()
"""
PR_CAPBSET_DROP = 24
THAT_READ_ALL = (19, 21, 38)  # SYS_PTRACE, SYS_ADMIN, PERFMON


def as_a_user() -> None:
    """Root with all capabilities may read everything of everyone; there is nothing to shut then."""
    for capability in THAT_READ_ALL:
        prctl(PR_CAPBSET_DROP, capability)


@contextmanager
def holder(code: str = HOLDS) -> Iterator[int]:
    """The pid of a process that has keys."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, KEY], env={**os.environ, **KEYS}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, preexec_fn=as_a_user,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "True\n"  # it still knows them, and so does what it starts
        yield process.pid
    finally:
        process.communicate()


def refusals(pid: int) -> list[str]:
    """The files of a process that another of the same user may not open."""
    tries = "import sys\nfor name in ('environ', 'mem'):\n try: open(f'/proc/{sys.argv[1]}/{name}', 'rb').close()\n"
    tries += " except PermissionError: print(name)"
    reader = [sys.executable, "-c", tries, str(pid)]
    done = subprocess.run(reader, capture_output=True, text=True, check=True, preexec_fn=as_a_user)
    return done.stdout.split()


def test_keys_do_not_stand_in_the_environment_that_the_system_shows() -> None:
    with holder() as pid:
        shown = subprocess.run(["cat", f"/proc/{pid}/environ"], capture_output=True, check=False).stdout
    assert KEY.encode() not in shown
    assert not shown or b"HARMLESS=seen" in shown


def test_who_holds_keys_cannot_be_looked_into() -> None:
    with holder() as pid:
        assert refusals(pid) == ["environ", "mem"]
    with holder(HOLDS.replace("keep_keys_private()\n", "", 1)) as pid:
        assert "environ" not in refusals(pid)


def test_without_keys_nothing_is_done() -> None:
    code = "from hivemind.private import keep_keys_private; keep_keys_private(); import sys; print('ctypes' in sys.modules)"
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=True)
    assert done.stdout == "False\n"
