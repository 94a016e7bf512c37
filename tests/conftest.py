"""What every test run needs, however it was started."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import database, postgres
from tests.program import warm

__all__ = ["database", "postgres"]  # fixtures, for all tests

# A run in the background of a shell inherits SIGINT as ignored, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in each run: one that fails has a cause in the change. HYPOTHESIS_PROFILE=default hunts for others.
# How long one takes is no matter of tests: on a busy machine a process may wait for long.
settings.register_profile(
    "repeated", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeated"))

# No test starts an embedding process by accident; the tests of it name their embedder.
os.environ["HIVEMIND_EMBEDDER"] = "none"


def pytest_collection_finish() -> None:
    """What is loaded by now stays: a collection need not look through it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _cooled() -> Iterator[None]:
    """The process that commands are forked from ends with the tests."""
    yield
    if warm.cache_info().currsize:
        warm().close()


@pytest.fixture(autouse=True, scope="module")
def _collected() -> Iterator[None]:
    """What a module's tests opened and dropped is closed at its end: cycles would keep their files open for a long time."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def language_models() -> None:
    """Skips a test where the extra `models` is not installed. Does not import it: that takes seconds."""
    if not all(map(find_spec, ("pydantic_ai", "openai", "anthropic", "google.genai"))):
        pytest.skip("the extra `models` is not installed")
