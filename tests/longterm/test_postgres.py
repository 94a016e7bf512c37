"""Memories on a PostgreSQL server: what it keeps when it dies, who may come in, and what is said when it is away."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hivemind.embedding import HashingEmbedder
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import set_durability
from hivemind.longterm import LongtermError, open_store
from hivemind.longterm.postgres import server_status
from tests.longterm.worker import SHARED
from tests.postgres import Server
from tests.program import Python

_WORKER = Path(__file__).with_name("worker.py")


@pytest.mark.shows("promise: P70")
def test_what_was_acknowledged_stays_when_the_server_is_killed_and_the_store_connects_anew():
    with Server() as server, open_store(server.new_database(), HashingEmbedder()) as store:
        store.put(SHARED, "kept", "what was acknowledged")

        def cut_off() -> None:
            with store.database.write():
                store.put(SHARED, "half", "what was under way")
                server.kill()
                store.put(SHARED, "half", "never")

        with pytest.raises(LongtermError, match="nothing was stored"):
            cut_off()
        with pytest.raises(LongtermError, match="not reachable"):
            store.get(SHARED, "kept")
        server.start()
        assert store.list(SHARED) == ["kept"]
        store.put(SHARED, "more", "after it came back")
        assert store.search(SHARED, "acknowledged")[0].key == "kept"


class Directions:
    """An embedder that gives each text a random direction, always the same."""

    name, dimension = "directions", 384

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [[chance.gauss(0, 1) for _ in range(384)] for chance in map(random.Random, texts)]


def test_a_search_by_meaning_is_one_statement_that_uses_the_index_in_a_large_namespace(database):
    many, few, rope = ("memories", "many"), ("memories", "few"), "boat 7 has a new rope"
    times = [datetime.now(UTC)]
    options = {"similarity_threshold": -1, "clock": lambda: times[-1]}
    with open_store(database, Directions(), **options) as store:
        store.put(few, "rope", {"content": rope, "category": "work"})
        store.put_many(many, {f"x{number}": "what needs no meaning" for number in range(2_000)}, embed=False)
        store.put_many(many, {f"k{number}": f"boat {number} sails" for number in range(20)})
        store.put(many, "gone", {"content": "boat 7 sailed", "expires_at": times[-1] + timedelta(hours=1)})
        times.append(times[-1] + timedelta(hours=2))
        executed = []
        execute = store.database._connection.execute
        store.database._connection.execute = lambda *call, **options: executed.append(call) or execute(*call, **options)
        (nearest,) = store.search(many, "boat 7 sails", limit=1, mode="vector")
        assert (nearest.key, nearest.similarity, len(executed)) == ("k7", pytest.approx(1.0), 1)
        assert "gone" not in [hit.key for hit in store.search(many, "boat 7 sailed", limit=5, mode="vector")]
        assert len(store.search(many, "boat 7 sails", limit=30, mode="vector")) == 20  # compared one by one
        assert [hit.key for hit in store.search(few, "boat 7 sails", limit=1, mode="vector")] == ["rope"]
        (nearest,) = store.search(("memories",), "?", limit=1, mode="vector", prefix=True, category="work")
        assert (nearest.namespace, nearest.key, nearest.content) == (few, "rope", rope)
        assert store.search(("memories", "none"), "boat 7", mode="vector") == []
        assert store.search(many, "boat 7", limit=0, mode="vector") == []


@pytest.mark.shows("promise: P71")
def test_several_processes_count_in_one_entry_and_say_the_same_once(database):
    workers = [Python([_WORKER, database, what, ""]) for what in ("count", "count", "same", "same")]
    assert [worker.wait(timeout=120) for worker in workers] == [0] * 4
    with open_store(database, HashingEmbedder()) as store:
        assert store.get(SHARED, "count").metadata == {"n": 40}
        contents = [entry.content for entry in store.get_many(SHARED, store.list(SHARED))]
        assert len(set(contents)) == len(contents)
        assert store.check() == []


@pytest.mark.parametrize("durable", [True, False])
def test_a_commit_waits_for_the_servers_disk_unless_the_hive_is_relaxed(database, durable):
    set_durability(database, durable=durable)
    with open_store(database, None) as store:
        assert store.database.select("SHOW synchronous_commit", ()) == [("on" if durable else "off",)]


@pytest.mark.shows("promise: P76")
@pytest.mark.parametrize("url", ["postgresql://ann:secret@host/db", "postgresql://host/db?password=secret"])
def test_a_url_with_a_password_is_refused_and_not_shown(url, tmp_path):
    with pytest.raises(UserError, match="contains a password") as refused:
        open_store(url, None)
    assert "secret" not in str(refused.value)


@pytest.mark.shows("promise: P76")
def test_tables_of_another_version_are_refused_and_a_role_without_rights_is_told(database, postgres):
    open_store(database, None).put(SHARED, "k", "x")
    name = database.rpartition("/")[2]
    postgres.execute("CREATE ROLE stranger LOGIN")  # the server is of these tests alone
    with pytest.raises(LongtermError, match="may not do that"):
        open_store(postgres.url(name, "stranger"), None).list(SHARED)
    postgres.execute("UPDATE hivemind_memory.version SET number = 9", name)
    with pytest.raises(UnknownVersion, match="version 9"):
        open_store(database, None).list(SHARED)


def test_people_see_the_columns_of_the_seed(database, postgres):
    with open_store(database, HashingEmbedder()) as store:
        store.put(SHARED, "k", {"content": "tea", "metadata": {"a": [1]}})
    columns = "namespace, key, content, metadata, vector_dims(embedding)"
    rows = postgres.execute(f"SELECT {columns} FROM hivemind_memory.memory", database.rpartition("/")[2])
    assert rows == [(list(SHARED), "k", "tea", {"a": [1]}, 384)]


@pytest.mark.shows("promise: P75")
def test_what_a_database_lacks_is_named_and_the_statement_that_is_told_mends_it(database, postgres):
    name, role = database.rpartition("/")[2], "hive_" + database[-8:]
    url = postgres.url(name, role)

    def mended_problem() -> str:
        (what, mend), *_ = server_status(url).problems
        postgres.execute(mend.rpartition(": ")[2], name)
        return what

    postgres.execute(f"CREATE ROLE {role} LOGIN")
    assert mended_problem() == "has no extension 'vector'"
    assert mended_problem() == f"{role} may not create the schema hivemind_memory"
    assert server_status(url).summary().endswith("entries: 0")
    postgres.execute(f"REVOKE CREATE ON DATABASE {name} FROM {role}")
    with open_store(database, HashingEmbedder()) as store:
        store.put(SHARED, "k", "tea")
    assert mended_problem() == f"{role} may not use the tables of hivemind_memory"
    postgres.execute("DROP INDEX hivemind_memory.entries_words", name)
    assert mended_problem().startswith("its index entries_words is missing")
    assert server_status(url).summary().endswith("entries: 1")
    with open_store(url, HashingEmbedder()) as store:  # these rights are enough for all that a store does
        store.upsert_memory(("memories", "new"), "coffee", key="c")
        store.put(SHARED, "k", "green tea")
        store.create_user("Ann")
        assert store.search(SHARED, "tea")[0].version == 2
        assert store.delete(SHARED, "k")
        assert store.purge() == 0
        assert store.reindex() == 0
        store.rebuild()
        assert store.check() == []
    postgres.execute("UPDATE hivemind_memory.version SET number = 9", name)
    assert "version 9" in server_status(url).summary()


@pytest.mark.shows("promise: P77")
def test_a_dump_that_is_put_back_is_the_same_memory(database, postgres):
    other, dump = postgres.new_database(), str(postgres.folder / "dump.sql")
    with open_store(database, HashingEmbedder()) as store:
        store.put(SHARED, "k", {"content": "tea", "metadata": {"session": "s", "speaker": "Ann"}})
        store.put(SHARED, "k", "green tea is for the afternoon")
        before = store.history(SHARED, "k")
    for program, *arguments in (
        ("pg_dump", "-f", dump, database),
        ("psql", "-qv", "ON_ERROR_STOP=1", "-f", dump, other),
    ):
        ended = postgres.run(program, *arguments)
        assert ended.returncode == 0, ended.stderr
    assert server_status(other).summary().endswith("entries: 1")
    with open_store(other, HashingEmbedder()) as store:
        assert store.history(SHARED, "k") == before
        assert store.search(SHARED, "green tea")[0].similarity > 0
        assert store.check() == []
        store.put(SHARED, "k", "black tea")
        assert store.search(SHARED, "afternoon", mode="text") == []
    postgres.drop_database(other)
