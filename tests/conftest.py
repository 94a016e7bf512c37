"""Settings of every test run, however it was started."""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import database, postgres
from tests.program import warm

__all__ = ["database", "postgres"]  # fixtures, for all tests

# A run in the background of a shell inherits SIGINT as ignored, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in each run: a failure has its cause in the change. HYPOTHESIS_PROFILE=default hunts for others.
# Tests do not judge durations: on a busy machine a process may wait for long.
settings.register_profile(
    "repeated", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeated"))

# Cycles wait for a module's end (below): looking for them after each 700 new objects takes an eighth of the collection's time.
gc.set_threshold(50_000)

# No test starts an embedding process by accident; the tests of it name their embedder.
os.environ["HIVEMIND_EMBEDDER"] = "none"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Of a whole run each worker imports another part of the tests first: in a new checkout pytest rewrites and compiles each
    module, and a worker that comes to it later has that from the disk."""
    worker = getattr(session.config, "workerinput", None)
    if worker and session.config.args == session.config.getini("testpaths"):
        number = int(worker["workerid"].removeprefix("gw"))
        names = [".".join(path.with_suffix("").parts) for path in sorted(Path("tests").rglob("test_*.py"))]
        for first in range(number, number + worker["workercount"]):
            for name in names[first % worker["workercount"] :: worker["workercount"]]:
                with suppress(Exception, pytest.skip.Exception):  # the collection meets it again, and tells of it
                    importlib.import_module(name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deal out the slow tests: each worker begins with its share of them, since at the end the others would wait for them."""
    workers = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = [item for item in items if not item.get_closest_marker("slow")]
    size = -(-len(others) // workers)
    items[:] = [
        item
        for worker in range(workers)
        for item in (*slow[worker::workers], *others[worker * size : (worker + 1) * size])
    ]


def pytest_collection_finish() -> None:
    """Freeze loaded objects: a collection need not look through them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _cooled() -> Iterator[None]:
    """The process that commands are forked from ends with the tests."""
    yield
    if warm.cache_info().currsize:
        warm().close()


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return a folder that the first worker has filled for all of them; a test that changes it takes a copy."""
    top = tmp_path_factory.getbasetemp()
    top = top.parent if "PYTEST_XDIST_WORKER" in os.environ else top

    def folder(name: str, fill: Callable[[Path], object]) -> Path:
        with open(top / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (top / f"{name}.filled").exists():
                (top / name).mkdir()
                fill(top / name)
                (top / f"{name}.filled").touch()
        return top / name

    return folder


@pytest.fixture(autouse=True, scope="module")
def _collected() -> Iterator[None]:
    """Close at a module's end the files that its tests dropped: cycles would keep their files open for a long time. What
    stays, libraries for the most part, the next collection need not look through."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def language_models() -> None:
    """Skips a test where the extra `models` is not installed. Does not import it: that takes seconds."""
    if not all(map(find_spec, ("pydantic_ai", "openai", "anthropic", "google.genai"))):
        pytest.skip("the extra `models` is not installed")
