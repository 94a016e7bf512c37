"""Stores and hives for the tests of this room."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hivemind.documents import Docmem, Knowledge
from hivemind.layout import Layout


@pytest.fixture
def docmem(tmp_path: Path) -> Iterator[Docmem]:
    with Docmem(tmp_path / "documents.db", durable=False) as found:
        yield found
        assert found.check() == []


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout.at(tmp_path / "hive")
    for folder in made.folders():
        folder.mkdir(parents=True, exist_ok=True)
    return made


@pytest.fixture
def knowledge(layout: Layout) -> Iterator[Knowledge]:
    with Docmem(layout.documents_db, durable=False) as docmem:
        yield Knowledge(docmem, layout)
        assert docmem.check() == []


@pytest.fixture
def to_version_2() -> Callable[[Path], None]:
    """Makes a database what version 2 would have made of it."""
    return _to_version_2


def _to_version_2(path: Path) -> None:
    with closing(sqlite3.connect(path)) as sql:
        rows = sql.execute("SELECT n.id, v.model, v.vector FROM vectors v JOIN nodes n ON n.seq = v.key").fetchall()
        for what in ("TRIGGER nodes_removed", "TRIGGER nodes_reworded", "TABLE vectors", "TABLE vectors_changes"):
            sql.execute(f"DROP {what}")
        sql.execute("DROP TABLE vectors_source")
        sql.execute(
            "CREATE TABLE vectors (node_id TEXT PRIMARY KEY REFERENCES nodes(id) ON DELETE CASCADE, model TEXT NOT NULL,"
            " vector BLOB NOT NULL) WITHOUT ROWID"
        )
        sql.execute(
            "CREATE TRIGGER nodes_removed AFTER DELETE ON nodes BEGIN"
            " UPDATE summaries SET stale = 1 WHERE node_id = old.parent_id; END"
        )
        sql.execute(
            "CREATE TRIGGER nodes_reworded AFTER UPDATE OF text, context_value ON nodes WHEN old.text <> new.text BEGIN"
            " DELETE FROM vectors WHERE node_id = new.id; END"
        )
        sql.executemany("INSERT INTO vectors VALUES (?, ?, ?)", rows)
        sql.execute("PRAGMA user_version = 2")
        sql.commit()
