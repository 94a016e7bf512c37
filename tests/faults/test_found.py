"""What the harness has found, each as small as it can be: it is not found again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.faults.conftest import needs
from tests.faults.faults import FAULTS
from tests.faults.hives import make_hive
from tests.faults.scenarios import SCENARIOS
from tests.faults.subject import Subject
from tests.faults.tasks import drop_task, with_steps
from tests.faults.trial import try_once
from tests.program import Warm


@pytest.fixture
def subject(tmp_path: Path, warm: Warm) -> Iterator[Subject]:
    made = Subject(tmp_path / "hive", tmp_path / "beside", Random(1), warm)
    for folder in (made.root, made.beside):
        folder.mkdir()
    yield made
    made.kill_all()


def no_place(log: Path) -> None:
    log.symlink_to("/nowhere/at/all.log")


@pytest.mark.parametrize("harm", [Path.mkdir, no_place], ids=["a folder is in its place", "it cannot be made"])
def test_an_agent_whose_log_cannot_be_written_is_told_in_one_line_and_the_others_work(
    subject: Subject, harm: Callable[[Path], None]
) -> None:
    """Found with no inodes left: the agent's process ended with a traceback on the terminal of `up`."""
    make_hive(subject)
    harm(subject.root / ".hive/logs/ada.log")
    drop_task(subject, "run", with_steps({"run": "echo told"}))
    up = subject.start("up")
    while not (subject.root / "tasks/done/run").is_dir() or "ada.log" not in up.errors():
        assert up.poll() is None, up.errors()
        subject.tick()
    subject.run("down")
    assert subject.wait(up) == 0
    assert "Traceback" not in up.errors()
    assert [line for line in up.errors().splitlines() if "ada.log: " in line]


def test_two_machines_that_see_a_files_size_late_keep_one_journal(tmp_path: Path, warm: Warm) -> None:
    """FUSE keeps a size for as long as it is told to, whatever lock is taken: an append by one machine read up to the old
    size, called what the other had written torn, cut it off, and wrote over it."""
    needs("late-folders")
    trial = try_once(SCENARIOS["reservations"], FAULTS["late-folders"], 1, warm=warm, keep=tmp_path)
    assert not trial.violations, trial.violations
