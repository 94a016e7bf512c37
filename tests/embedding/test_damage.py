"""An index in files is a cache: whatever has become of its bytes, it answers as the database has it."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hivemind.embedding import VectorTable, pack
from tests.embedding.test_index import DIMENSION, vector

FILES = ("keys", "bits", "rows", "count", "json")


def flipped(raw: bytes, at: int, bit: int) -> bytes:
    at %= len(raw)
    return raw[:at] + bytes([raw[at] ^ (1 << bit)]) + raw[at + 1 :]


def damage(raw: bytes, how: str, at: int, bit: int) -> bytes:
    cut = at % len(raw)
    match how:
        case "flip":
            return flipped(raw, at, bit)
        case "cut":
            return raw[:cut]
        case "zeros":
            return raw[:cut] + bytes(len(raw) - cut)
        case _:
            return raw + bytes(1 + at % 100)


@settings(max_examples=150, deadline=None)
@example("rows", "flip", 3, 6)
@example("keys", "flip", 0, 0)
@example("keys", "flip", 8, 0)
@example("rows", "zeros", 40, 0)
@example("count", "zeros", 0, 0)
@given(
    st.sampled_from(FILES), st.sampled_from(["flip", "cut", "zeros", "more"]), st.integers(0, 10_000), st.integers(0, 7)
)
def test_an_index_whose_bytes_are_damaged_is_built_anew(file: str, how: str, at: int, bit: int) -> None:
    rows = [(key, key % 3, pack(vector(key), DIMENSION)) for key in range(40)]
    with tempfile.TemporaryDirectory() as name, closing(sqlite3.connect(f"{name}/a.db", isolation_level=None)) as sql:
        folder, table = Path(name, "v"), VectorTable()

        def answers(table: VectorTable) -> list[list[tuple[int, float]]]:
            return [
                table.search(sql, folder, "m", pack(vector(key), DIMENSION), 5, groups=groups)
                for key in (1, 7)
                for groups in (None, [1])
            ]

        for statement in table.schema:
            sql.execute(statement)
        table.put(sql, "m", rows)
        table.put(sql, "m", [(5, 1, pack(vector(50), DIMENSION))])
        right = answers(table)
        (path,) = folder.glob(f"*.{file}")
        path.write_bytes(damage(path.read_bytes(), how, at, bit))
        assert answers(VectorTable()) == right
