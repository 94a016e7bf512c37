from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.swarm.conftest import hive  # noqa: F401 - a fixture
from tests.telemetry.collector import Collector, collector


@pytest.fixture
def receiver() -> Iterator[Collector]:
    with collector() as server:
        yield server
