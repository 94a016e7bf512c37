"""What the harness has found, each as small as it can be: it is not found again."""

from __future__ import annotations

import json
import os
import time
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
from tests.slow_server import slow_server
from tests.waiting import until


@pytest.fixture
def subject(tmp_path: Path, warm: Warm) -> Iterator[Subject]:
    made = Subject(tmp_path / "hive", tmp_path / "beside", Random(1), warm)
    for folder in (made.root, made.scratch):
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


def test_a_webhook_that_never_ends_and_a_question_as_long_as_a_book_hold_up_no_schedule_and_no_other_notice(
    subject: Subject,
) -> None:
    """A byte every few seconds held `hivemind due` for good; an argument that was too long, all notices behind it; and a file
    written long ago that came with `missed: all` dropped a task for each minute since."""
    told = subject.scratch / "told.txt"
    program = ["sh", "-c", f'echo "$2" | cut -c -20 >> {told}', "told"]
    with slow_server() as webhook:
        make_hive(subject, notify={"events": ["failed", "parked"], "program": program, "webhook": {"url": webhook}})
        up = subject.start("up")

        def wait_for(has_come: Callable[[], bool]) -> None:
            until(lambda: subject.tick() or up.poll() is not None or has_come())
            assert up.poll() is None, up.errors()

        drop_task(subject, "huge", with_steps({"wait": {"human": "x" * 200_000}}))
        wait_for(lambda: (subject.root / ".hive/outbox/huge.parked.json").exists())
        drop_task(subject, "fails", with_steps({"run": "exit 3"}))
        wait_for(lambda: told.exists() and {"huge:", "fails:"} <= {*told.read_text().split()})
        schedule = subject.root / "tasks/schedule"
        schedule.mkdir(exist_ok=True)
        for name, age_s in (("soon", 58), ("old", 400 * 86_400 + 30)):
            text = f"---\n{json.dumps({'every': '1m', 'missed': 'all', 'steps': [{'run': 'true'}]})}\n---\nA task.\n"
            (subject.scratch / name).write_text(text)
            os.utime(subject.scratch / name, (time.time() - age_s,) * 2)
            os.rename(subject.scratch / name, schedule / f"{name}.md")
        wait_for(lambda: len([*subject.root.glob("tasks/done/soon-*")]) == 1)
        assert len([*subject.root.glob("tasks/*/old-*")]) == 1
        subject.run("down")
    assert subject.wait(up) == 0
