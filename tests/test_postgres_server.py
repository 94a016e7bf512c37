"""The server that tests start: it runs as nobody in particular, keeps what it acknowledged, and leaves nothing behind."""

from __future__ import annotations

import pytest

from tests.postgres import Server

psycopg = pytest.importorskip("psycopg")


def test_a_server_that_is_killed_keeps_what_it_acknowledged_and_is_gone_with_its_folder_at_the_end():
    with Server() as server:
        url = server.new_database()
        with psycopg.connect(url) as connection:
            connection.execute("CREATE EXTENSION vector")
            connection.execute("CREATE TABLE kept AS SELECT '[1,2]'::vector AS v")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT v <=> '[1,2]' FROM kept").fetchall() == [(0.0,)]
    assert not server.folder.exists()


def test_each_test_has_a_database_of_its_own(database):
    with psycopg.connect(database) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        ).fetchone() == (0,)
