"""A hive of another version is refused as a whole, in one line, and nothing in it is changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hivemind.cli import main

OLD = {  # as 0.1 leaves a task that waits for a person
    ".hive/workspace.json": {"kind": "workspace", "version": 1, "workspace": "hive", "guard": "old"},
    ".hive/journal/000000000001.jsonl": {"kind": "journal", "version": 1},
    "tasks/active/asks/claim.json": {"kind": "claim", "version": 1, "agent": "analyst", "claim": "5e"},
    "tasks/active/asks/parked.json": {"kind": "parked", "version": 1, "reason": "asks a person: Well?"},
}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    assert main(["init", str(tmp_path / "hive")]) == 0
    root = tmp_path / "hive"
    (root / "hive.yaml").write_text("version: 1\nguard: old\n")
    for path, record in OLD.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(json.dumps(record) + "\n")
    (root / "tasks/active/asks/task.md").write_text("A question.\n")
    (root / "tasks/active/asks/log.jsonl").write_text('{"kind":"cycle"}\n')
    return root


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "words", ["up --until-idle", "agent run analyst", "task add x", "doctor --fix", "task cancel asks"]
)
def test_a_hive_of_another_version_is_refused_in_words_and_left_as_it_is(
    old: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(old)
    capsys.readouterr()
    assert main(["--hive", str(old), *words.split()]) != 0
    told = capsys.readouterr()
    said = " ".join((told.out + told.err).split())
    assert "this hive is of another version of hivemind" in said
    assert "finish its tasks with the version that made it" in said
    assert "lies in active/" not in said
    assert content(old) == before


def test_a_hive_of_another_version_can_be_looked_at(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hive", str(old), "task", "list"]) == 0
    told = capsys.readouterr()
    assert "asks" in told.out
    assert "shown for reading only" in told.err


def test_the_journal_of_another_version_is_refused_rather_than_shown_as_empty(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--hive", str(old), "log"]) == 2
    assert "journal: is of another version; hivemind help hives of another version" in capsys.readouterr().err
