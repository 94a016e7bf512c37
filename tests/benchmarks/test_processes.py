"""What the system says of processes: real ones."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.processes import children, family, processor_s, share_mb

PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"


def test_a_family_is_a_process_with_all_that_came_of_it():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        (child,) = children(parent.pid)
        assert family(parent.pid) == [parent.pid, child]
        assert child in family(os.getpid())
        assert 0.5 < share_mb(child) < 500
        assert 0 < processor_s([child]) < 60
        parent.communicate(b"\n")


def test_processor_time_grows_with_what_is_done():
    before = processor_s([os.getpid()])
    assert any(sum(range(200_000)) and processor_s([os.getpid()]) > before for _ in range(1_000))
