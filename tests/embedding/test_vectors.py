"""What is near is what comparing every vector says, whatever was added, replaced and deleted, in groups and among many."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.embedding import VECTORS, VectorTable, pack, put_vectors, unpack

numpy = pytest.importorskip("numpy")
MODEL, DIMENSION = "m", 12


def database(path: str = ":memory:") -> sqlite3.Connection:
    sql = sqlite3.connect(path, isolation_level=None)
    for statement in VECTORS:
        sql.execute(statement)
    return sql


def packed(seed: int, dimension: int = DIMENSION) -> bytes:
    chance = numpy.random.default_rng(seed)
    return pack(chance.normal(size=dimension).tolist(), dimension)


def cosine(one: bytes, other: bytes) -> float:
    return sum(map(float.__mul__, map(float, unpack(one)), map(float, unpack(other))))


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "other model", "search"]), st.integers(0, 30)), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from([None, [0], [1, 2]]))
def test_it_finds_what_comparing_all_finds(steps: list[tuple[str, int]], groups: list[int] | None) -> None:
    sql, vectors, there = database(), VectorTable(), dict[int, tuple[int, bytes]]()
    for number, (what, key) in enumerate(steps):
        if what == "put":
            there[key] = key % 3, packed(number)
            put_vectors(sql, MODEL, [(key, *there[key])])
        elif what == "delete":
            there.pop(key, None)
            sql.execute("DELETE FROM vectors WHERE key = ?", (key,))
        elif what == "other model":
            there.pop(key, None)
            put_vectors(sql, "another", [(key, key % 3, packed(number))])
        else:
            vectors.nearest(sql, MODEL, packed(number), 3)
    query = packed(1_000)
    wanted = {key: cosine(row, query) for key, (group, row) in there.items() if groups is None or group in groups}
    found = vectors.nearest(sql, MODEL, query, 100, groups)
    assert dict(found) == pytest.approx(wanted, abs=1e-5)
    assert found == sorted(found, key=lambda pair: (-pair[1], pair[0]))
    assert vectors.nearest(sql, MODEL, query, 2, groups) == found[:2]


def _loose(count: int) -> Any:
    """Vectors with a few dozen directions that matter, as embeddings of texts have."""
    chance = numpy.random.default_rng(7)
    strengths = 1 / numpy.sqrt(numpy.arange(1, 61))
    rows = (chance.normal(size=(count, 60)) * strengths) @ chance.normal(size=(60, 384))
    rows += 0.3 * chance.normal(size=(count, 384))
    return (rows / numpy.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")


def test_among_many_next_to_none_of_the_nearest_is_missed() -> None:
    rows, sql, vectors = _loose(12_020), database(), VectorTable()
    put_vectors(sql, MODEL, [(key, 0, row.tobytes()) for key, row in enumerate(rows[:12_000])])
    right = 0
    for query in rows[12_000:]:
        exact = set(numpy.argsort(-(rows[:12_000] @ query))[:10].tolist())
        right += len(exact & {key for key, _ in vectors.nearest(sql, MODEL, query.tobytes(), 10)})
    assert right >= 0.98 * 200


def test_a_database_that_was_put_back_is_read_anew(tmp_path: Path) -> None:
    path, vectors = tmp_path / "a.db", VectorTable()
    for name, keys in (("a.db", (1, 2)), ("b.db", (3,))):
        sql = database(str(tmp_path / name))
        put_vectors(sql, MODEL, [(key, 0, packed(key)) for key in keys])
        if name == "a.db":
            assert {key for key, _ in vectors.nearest(sql, MODEL, packed(0), 5)} == {1, 2}
        sql.close()
    (tmp_path / "b.db").replace(path)
    sql = sqlite3.connect(path)
    assert [key for key, _ in vectors.nearest(sql, MODEL, packed(0), 5)] == [3]
    sql.close()


def test_a_transaction_sees_its_own_state(tmp_path: Path) -> None:
    writer = database(str(tmp_path / "a.db"))
    writer.execute("PRAGMA journal_mode = WAL")
    put_vectors(writer, MODEL, [(1, 0, packed(1)), (2, 0, packed(2))])
    reader, vectors = sqlite3.connect(tmp_path / "a.db", isolation_level=None), VectorTable()
    reader.execute("BEGIN")
    before = vectors.nearest(reader, MODEL, packed(1), 5)
    writer.execute("DELETE FROM vectors WHERE key = 1")
    put_vectors(writer, MODEL, [(3, 0, packed(1))])
    assert vectors.nearest(writer, MODEL, packed(1), 1) == [(3, 1.0)]
    assert {key for key, _ in vectors.nearest(reader, MODEL, packed(1), 5)} < {key for key, _ in before}
    reader.execute("COMMIT")
    assert vectors.nearest(reader, MODEL, packed(1), 1) == [(3, 1.0)]
    reader.close()
    writer.close()
