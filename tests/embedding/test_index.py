"""The index gives what comparing every vector gives, in memory and in files, with numpy and without."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.embedding import VectorIndex, pack, unpack
from hivemind.embedding.index import engines

DIMENSION = 16


def vector(seed: int, dimension: int = DIMENSION) -> list[float]:
    drawn = random.Random(seed)
    return [drawn.gauss(0, 1) for _ in range(dimension)]


def compared(rows: dict[int, tuple[int, bytes]], query: bytes, limit: int, groups: set[int] | None) -> list[int]:
    asked = unpack(query)
    found = [
        (-round(sum(a * b for a, b in zip(unpack(row), asked, strict=True)), 6), key)
        for key, (group, row) in rows.items()
        if groups is None or group in groups
    ]
    return [key for _, key in sorted(found)[:limit]]


@pytest.fixture(params=["numpy", "plain"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "numpy":
        pytest.importorskip("numpy")
    else:
        monkeypatch.setattr(engines, "numpy_or_none", lambda: None)
    return str(request.param)


@pytest.fixture(params=["memory", "files"])
def index(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> VectorIndex:
    return VectorIndex(DIMENSION, folder=tmp_path / "index" if request.param == "files" else None, source="test")


def test_the_nearest_come_first(index: VectorIndex) -> None:
    for key in range(50):
        index.put(key, vector(key))
    assert index.search(vector(7), 3)[0] == (7, 1.0)
    assert len(index.search(vector(7), 3)) == 3
    assert len(index) == 50


def test_an_empty_index_finds_nothing(index: VectorIndex) -> None:
    assert index.search(vector(1), 10) == []
    assert len(index) == 0
    assert index.seen == 0


def test_equal_cosines_are_ordered_by_key(index: VectorIndex) -> None:
    for key in (5, 3, 9, 1):
        index.put(key, vector(1))
    assert [key for key, _ in index.search(vector(1), 3)] == [1, 3, 5]


def test_a_key_that_is_put_again_is_found_by_its_new_vector_alone(index: VectorIndex) -> None:
    index.put(1, vector(1))
    index.put(1, vector(2))
    assert index.search(vector(2), 5) == [(1, 1.0)]


def test_what_is_removed_is_not_found(index: VectorIndex) -> None:
    index.put(1, vector(1))
    index.put(2, vector(2))
    index.remove(1)
    index.remove(77)
    assert [key for key, _ in index.search(vector(1), 5)] == [2]


def test_a_search_of_groups_sees_no_other(index: VectorIndex) -> None:
    for key in range(30):
        index.put(key, vector(key), group=key % 3)
    assert {key % 3 for key, _ in index.search(vector(4), 30, groups=[1])} == {1}
    assert {key % 3 for key, _ in index.search(vector(4), 30, groups=[0, 2])} == {0, 2}
    assert index.search(vector(4), 30, groups=[]) == []


@pytest.mark.parametrize(
    "bad", [[0.0] * DIMENSION, [math.nan] * DIMENSION, [math.inf] + [0.0] * (DIMENSION - 1), [1.0] * (DIMENSION + 1)]
)
def test_what_is_no_vector_is_refused(index: VectorIndex, bad: list[float]) -> None:
    with pytest.raises(ValueError):
        index.put(1, bad)
    with pytest.raises(ValueError):
        index.apply([(-2, 0, pack(vector(1), DIMENSION))])
    assert len(index) == 0


def test_the_signs_first_find_what_comparing_all_finds(engine: str) -> None:
    rows = {
        key: pack([c + n / 2 for c, n in zip(vector(key % 20, 64), vector(1_000 + key, 64), strict=True)], 64)
        for key in range(3_000)
    }
    quick, exact = VectorIndex(64, exact_to=100), VectorIndex(64, exact_to=10_000)
    for index in (quick, exact):
        index.apply([(key, 0, row) for key, row in rows.items()])
    shared = 0
    for asked in range(20):
        query = vector(asked, 64)
        shared += len({k for k, _ in quick.search(query, 10)} & {k for k, _ in exact.search(query, 10)})
    assert shared >= 198


def test_both_engines_look_at_the_same_rows_where_many_share_as_many_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    index = VectorIndex(DIMENSION, exact_to=100)  # so few dimensions that hundreds of rows tie for the last place
    index.apply([(key, key % 3, pack(vector(key), DIMENSION)) for key in range(2_000)])

    def found(groups: list[int] | None) -> list[set[int]]:
        return [{key for key, _ in index.search(vector(10_000 + at), 40, groups=groups)} for at in range(3)]

    for groups in (None, [1], [0, 2]):
        by_numpy = found(groups)
        with monkeypatch.context() as without:
            without.setattr(engines, "numpy_or_none", lambda: None)
            assert found(groups) == by_numpy


def test_many_dead_rows_are_left_behind(tmp_path: Path, engine: str) -> None:
    index = VectorIndex(DIMENSION, folder=tmp_path, source="test")
    for turn in range(5):
        index.apply([(key, 0, pack(vector(key + turn), DIMENSION)) for key in range(600)])
    assert len(index) == 600
    assert max(file.stat().st_size for file in tmp_path.glob("*.rows")) <= 1_800 * DIMENSION * 4
    assert len(list(tmp_path.glob("*.rows"))) == 1
    assert index.search(vector(9 + 4), 1) == [(9, 1.0)]


CHANGES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2), st.none() | st.integers(0, 40)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(
    changes=CHANGES, asked=st.integers(0, 40), limit=st.integers(1, 8), groups=st.none() | st.sets(st.integers(0, 3))
)
def test_any_changes_leave_what_comparing_all_finds(
    changes: list[tuple[int, int, int | None]], asked: int, limit: int, groups: set[int] | None
) -> None:
    index, rows = VectorIndex(DIMENSION), {}
    for key, group, seed in changes:
        row = None if seed is None else pack(vector(seed), DIMENSION)
        index.apply([(key, group, row)])
        rows.pop(key, None)
        if row is not None:
            rows[key] = (group, row)
    query = pack(vector(asked), DIMENSION)
    assert [key for key, _ in index.search_packed(query, limit, groups=groups)] == compared(rows, query, limit, groups)
    assert len(index) == len(rows)
