"""Where a store's entries lie: the same tests run over a file and over PostgreSQL."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    """A path of a database that is not there yet, and the URL of an empty one."""
    return tmp_path / "memory.db" if request.param == "sqlite" else request.getfixturevalue("database")
