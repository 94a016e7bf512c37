from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from hivemind.exchange.schema import SCHEMA
from tests.exchange.hives import LinkedHive
from tests.postgres import Server

RIGHTS = """
    CREATE ROLE hives;
    GRANT USAGE ON SCHEMA hivemind_exchange TO hives;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hivemind_exchange TO hives;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA hivemind_exchange TO hives;
"""
"""Return the grants of the manual's chapter on several machines."""


@pytest.fixture
def url_of(postgres: Server, database: str) -> Iterator[Callable[[str], str]]:
    """The URL by which a hive of that name is linked: with a separate role that has the rights in the manual."""
    with linked_roles(postgres, database) as url:
        yield url


@contextmanager
def linked_roles(postgres: Server, database: str) -> Iterator[Callable[[str], str]]:
    """Make the tables, and a role for each name that is asked for; drop the roles at the end."""
    hives = []
    with psycopg.connect(database, autocommit=True) as connection:
        SCHEMA.prepare(connection, database)
        connection.execute(RIGHTS.encode())

        def url(name: str) -> str:
            hives.append(name)
            connection.execute(f"CREATE ROLE {name} LOGIN IN ROLE hives".encode())
            return postgres.url(database.rpartition("/")[2], user=name)

        yield url
        connection.execute("DROP OWNED BY hives")
        for name in ("hives", *hives):
            connection.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def pair(tmp_path: Path, url_of: Callable[[str], str]) -> Iterator[tuple[LinkedHive, LinkedHive]]:
    hives = LinkedHive(tmp_path / "berlin", "berlin"), LinkedHive(tmp_path / "munich", "munich")
    for hive in hives:
        hive.command("link", url_of(hive.name))
    yield hives
    for hive in hives:
        hive.stop(kill=True)


@pytest.fixture
def third(tmp_path: Path, url_of: Callable[[str], str]) -> Iterator[LinkedHive]:
    """One more hive, `paris`."""
    paris = LinkedHive(tmp_path / "paris", "paris")
    paris.command("link", url_of("paris"))
    yield paris
    paris.stop(kill=True)
