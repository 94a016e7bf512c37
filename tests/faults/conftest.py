"""One warm process for all trials of a test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.subject import Warm


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    process = Warm()
    yield process
    process.close()
