"""kill -9 during an operation: it took full effect or none, and the next process continues."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from hivemind.documents import Docmem
from tests.program import Python

_WORKER = Path(__file__).with_name("worker.py")


def run(database: Path, name: str, argument: object = "", crash_at: str = "") -> int:
    environment = os.environ | {"HIVEMIND_CRASH_AT": crash_at}
    return Python([_WORKER, database, name, str(argument)], env=environment).wait(timeout=120)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    assert run(folder / "documents.db", "build") == 0
    paragraphs = "\n\n".join(
        f"# Part {part}\n\n" + "\n\n".join(f"Text {part} {n}." for n in range(99)) for part in range(8)
    )
    (folder / "big.md").write_text(paragraphs)
    return folder


def _state(database: Path) -> dict[str, list[tuple[str, str | None, str, float, str]]]:
    with Docmem(database) as docmem:
        assert docmem.check() == []
        return {
            root.id: [(n.id, n.parent_id, n.text, n.order_value, n.hash) for n in docmem.serialize(root.id)]
            for root in docmem.roots()
        }


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("delete", "documents.write.before_commit"),
        ("copy", "documents.copy.one:400"),
        ("copy", "documents.write.before_commit"),
        ("move", "documents.move.one:50"),
        ("import_file", "documents.import.one:400"),
        ("import_file", "documents.write.before_commit"),
        ("toml", "documents.toml.one:400"),
        ("summarise", "documents.summary.added"),
    ],
)
def test_a_killed_operation_has_not_happened(built: Path, tmp_path: Path, name: str, point: str) -> None:
    # given
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    database = tmp_path / "documents.db"
    if name == "move":  # what is moved together was made sticky first, one by one: that did happen
        assert run(database, "move") == 0
        shutil.copy(built / "documents.db", database)
    before = _state(database)

    # when
    assert run(database, name, tmp_path / "big.md", crash_at=point) == -signal.SIGKILL

    # then
    after = _state(database)
    if name == "move":
        texts = [[row[:4] for row in rows] for rows in after.values()]
        assert texts == [[row[:4] for row in rows] for rows in before.values()]
    else:
        assert after == before
    assert run(database, name, tmp_path / "big.md") == 0
    assert _state(database) != before


def test_a_killed_refresh_leaves_the_document_as_it_was(built: Path, tmp_path: Path) -> None:
    database, file = tmp_path / "documents.db", tmp_path / "big.md"
    shutil.copy(built / "big.md", file)
    assert run(database, "import_file", file) == 0
    before = _state(database)
    file.write_text("# New\n\n" + file.read_text().replace("Text 7", "Words 7"))
    assert run(database, "import_file", file, crash_at="documents.refresh.one:400") == -signal.SIGKILL
    assert _state(database) == before
    assert run(database, "import_file", file) == 0
    ((root, after),) = _state(database).items()
    assert [root] == list(before)
    kept = {row[0] for row in after} & {row[0] for row in before[root]}
    assert len(kept) == len(before[root])


def test_what_was_committed_survives_the_kill(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    assert run(tmp_path / "documents.db", "delete", crash_at="documents.write.committed") == -signal.SIGKILL
    assert list(_state(tmp_path / "documents.db")) == ["other"]


def test_a_database_half_made_is_made_by_the_next(tmp_path: Path) -> None:
    database = tmp_path / "documents.db"
    assert run(database, "append", 1, crash_at="documents.schema.written") == -signal.SIGKILL
    with Docmem(database) as docmem:
        assert docmem.roots() == []
        assert docmem.check() == []
