"""Folders and paths of any depth stop nobody: no task, no agent, neither the doctor nor a backup."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.doctor import examine
from hivemind.doctor.context import DoctorContext
from hivemind.fs import remove_tree
from hivemind.swarm.backup import back_up_hive, restore_hive
from tests.agent.conftest import Crew, hands, until_idle


@pytest.fixture
def deep(crew: Crew) -> Iterator[Path]:
    """Folders in each other below knowledge/, and below the files of a task: more than Python calls functions in each other,
    and together longer than a path may be."""
    tops = [crew.root / "knowledge", crew.root / "tasks/inbox/deep"]
    tops[1].mkdir()
    (tops[1] / "task.md").write_text("What moves a sailing boat?\n")
    for top in tops:
        folder = os.open(top, os.O_RDONLY)
        for _ in range(1100):
            os.mkdir("deep", dir_fd=folder)
            below = os.open("deep", os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = below
        os.close(folder)
    yield tops[0]
    for place in ("knowledge/deep", *(f"tasks/{state}/deep" for state in ("inbox", "active", "done", "failed"))):
        remove_tree(crew.root / place)  # which pytest cannot


def test_deep_folders_stop_no_task_no_doctor_and_no_backup(crew, deep, tmp_path):
    (deep / "boats.md").write_text("# Boats\n\nA sailing boat is moved by the wind.\n")
    until_idle(crew.start())
    assert "moved by the wind" in (crew.root / "tasks/done/deep/result.md").read_text()
    examine(DoctorContext(Hive.open(crew.root).layout))
    back_up_hive(Hive.open(crew.root), tmp_path / "backup")
    restore_hive(tmp_path / "backup", tmp_path / "restored")
    assert (tmp_path / "restored/tasks/done/deep/result.md").exists()
    for made in ("backup", "restored"):
        remove_tree(tmp_path / made)


@pytest.mark.parametrize("path", ["d/" * 600 + "x", "knowledge/" + "d/" * 600 + "x", "x" * 256])
def test_a_path_that_is_too_long_is_refused_in_words(crew, path):
    error = hands(crew)("write_file", path=path, text="x")["error"]
    assert "is too long: 255 bytes a name, 1024 a path" in error
