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


@pytest.fixture
def to_version_3() -> Callable[[Path], None]:
    """Makes a database what version 3 would have made of it."""
    return _to_version_3


def _to_version_3(path: Path) -> None:
    old, new = (f"{side}.seq, {side}.text, {side}.context_value" for side in ("old", "new"))
    forget = f"INSERT INTO words(words, rowid, text, context_value) VALUES ('delete', {old});"
    learn = f"INSERT INTO words(rowid, text, context_value) VALUES ({new});"
    free = "ON nodes WHEN NOT EXISTS (SELECT 1 FROM unindexed) BEGIN"
    reworded = "ON nodes WHEN old.text <> new.text OR old.context_value <> new.context_value BEGIN"
    with closing(sqlite3.connect(path)) as sql:
        for what in ("words_added", "words_removed", "words_changed", "nodes_reworded", "vectors_gone"):
            sql.execute(f"DROP TRIGGER {what}")
        sql.execute("DROP TABLE sentences")
        sql.execute("ALTER TABLE files DROP COLUMN standing")
        sql.execute("ALTER TABLE places DROP COLUMN leads")
        sql.execute("INSERT INTO words(words) VALUES ('rebuild')")
        sql.execute("DROP TABLE unindexed")
        sql.execute("CREATE TABLE unindexed (mark INTEGER PRIMARY KEY)")
        sql.execute(f"CREATE TRIGGER words_added AFTER INSERT {free} {learn} END")
        sql.execute(f"CREATE TRIGGER words_removed AFTER DELETE {free} {forget} END")
        sql.execute(
            f"CREATE TRIGGER nodes_reworded AFTER UPDATE OF text, context_value {reworded} {forget} {learn}"
            " DELETE FROM vectors WHERE key = new.seq;"
            " UPDATE summaries SET stale = 1 WHERE node_id = new.parent_id; END"
        )
        sql.execute("PRAGMA user_version = 3")
        sql.commit()


def _to_version_2(path: Path) -> None:
    _to_version_3(path)
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


@pytest.fixture
def pdf_of() -> Callable[..., bytes]:
    """Makes a PDF of texts: of one line on each page."""
    return _pdf


def _pdf(*pages: str) -> bytes:
    """A PDF with one line of text on each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET"
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents {5 + 2 * number} 0 R>>"
        )
        objects.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
    out, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    return (
        f"{out}xref\n0 {size}\n0000000000 65535 f \n{table}trailer<</Size {size}/Root 1 0 R>>\nstartxref\n{len(out)}\n%%EOF"
    ).encode()
