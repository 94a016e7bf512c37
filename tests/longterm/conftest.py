"""Stores for the same tests over a file and over PostgreSQL."""

from __future__ import annotations

import pytest

from hivemind.embedding import HashingEmbedder
from hivemind.longterm import open_store


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    """A path of a database that is not there yet, and the URL of an empty one."""
    return tmp_path / "memory.db" if request.param == "sqlite" else request.getfixturevalue("database")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def lasting(request):
    """A store for all tests of a module, which may empty it (`emptied`): a new database takes a tenth of a second."""
    server = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    url = ":memory:" if server is None else server.new_database()
    with open_store(url, HashingEmbedder()) as store:
        yield store
    if server is not None:
        server.drop_database(url)


def emptied(store):
    """The store without what other tests have left in it."""
    with store.database.write() as sql:
        for table in ("entries", "namespaces", "users"):
            sql.execute(f"DELETE FROM {table}")
    return store
