"""What agents share that all compare vectors."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from hivemind.embedding import warm
warm()
assert "numpy" in sys.modules
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no /proc to count threads in")
@pytest.mark.parametrize("said", [None, "2"])
def test_a_parent_that_is_warmed_has_numpy_and_one_thread(said: str | None) -> None:
    pytest.importorskip("numpy")
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environ |= {} if said is None else {"OPENBLAS_NUM_THREADS": said}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.split() == ["1", str(said)]
