from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exchange.hives import LinkedHive


@pytest.fixture
def pair(tmp_path: Path, database: str) -> Iterator[tuple[LinkedHive, LinkedHive]]:
    made = LinkedHive(tmp_path / "berlin", "berlin"), LinkedHive(tmp_path / "munich", "munich")
    for one in made:
        one.command("link", database)
    yield made
    for one in made:
        one.stop(kill=True)


@pytest.fixture
def third(tmp_path: Path, database: str) -> Iterator[LinkedHive]:
    """One more hive, `paris`."""
    made = LinkedHive(tmp_path / "paris", "paris")
    made.command("link", database)
    yield made
    made.stop(kill=True)
