"""What agents share that all compare vectors."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from hivemind.embedding import preload
preload()
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


SEARCHES = """
import sqlite3, sys
from hivemind.embedding import VECTORS, VectorTable, pack, preload, put_vectors
preload()
sql, vectors = sqlite3.connect(":memory:", isolation_level=None), VectorTable()
for statement in VECTORS:
    sql.execute(statement)
loaded = set(sys.modules)
for sign in (1.0, -1.0):
    put_vectors(sql, "m", [(at * 1000, at, pack([sign, float(at)], 2)) for at in range(500)])
    print(*(key for key, _ in vectors.nearest(sql, "m", pack([sign, 0.0], 2), 2, range(3, 99))))
print(*set(sys.modules) - loaded)
"""


def test_who_searches_and_follows_many_changes_loads_nothing_of_its_own() -> None:
    pytest.importorskip("numpy")
    found = subprocess.run([sys.executable, "-c", SEARCHES], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.splitlines() == ["3000 4000", "3000 4000", ""]
