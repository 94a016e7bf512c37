"""The chapter on hivemind in a program: its lines are one program, and it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.errors import UserError
from tests.cli.conftest import make_hive

CHAPTER = Path(__file__).parent.parent / "knowledge" / "manual" / "16-in-a-program.md"


def test_the_program_of_the_manual_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    program = "".join(re.findall(r"^```python\n(.*?)^```", CHAPTER.read_text("utf-8"), re.DOTALL | re.MULTILINE))
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "['analyst', 'researcher', 'reviewer']" in ended.stdout
    assert "> The Heron and the Gull need new sails." in ended.stdout
    assert "('researcher',) {'researcher': 'delivered'}" in ended.stdout
    assert "task.done" in ended.stdout or "agent.exited" in ended.stdout


def test_of_several_workers_of_a_mailbox_one_takes_each_letter_as_the_manual_says(tmp_path: Path) -> None:
    loop = re.search(r"^box = .*?(?=^```)", CHAPTER.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert loop is not None
    root = make_hive(tmp_path)
    for number in range(12):
        Hive.open(root).mail.send("human", "researcher", f"Sails {number}", "Which boats need new sails?")
    start = threading.Barrier(3)

    def work() -> None:
        hive = Hive.open(root)
        start.wait()
        exec(loop[0], {"hive": hive, "os": os})

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    answers = [letter.subject for letter in Hive.open(root).mail.list("human")]
    assert sorted(answers) == sorted(f"Re: Sails {number}" for number in range(12))


def test_who_waits_for_a_task_wakes_when_its_folder_moves(tmp_path: Path) -> None:
    hive = Hive.open(make_hive(tmp_path))
    task_id = hive.tasks.add("Look")
    task = hive.tasks.claim("researcher")
    assert task is not None
    later = threading.Timer(0.2, lambda: hive.tasks.fail(task, "it cannot be"))
    later.start()
    over = hive.tasks.wait(task_id, timeout=30)
    later.join()
    assert (over.state.value, (over.path / "error.md").exists()) == ("failed", True)
    assert hive.tasks.wait(task_id, timeout=0).state.value == "failed"


def test_a_wait_ends_in_time_and_for_a_task_that_is_not_there_at_once(tmp_path: Path) -> None:
    hive = Hive.open(make_hive(tmp_path))
    with pytest.raises(UserError, match="there is no such task"):
        hive.tasks.wait("nothing")
    with pytest.raises(UserError, match=r"is not over after 0\.05 s"):
        hive.tasks.wait(hive.tasks.add("Look"), timeout=0.05)


def test_another_system_than_linux_is_refused_in_words() -> None:
    program = "import sys; sys.platform = 'darwin'; from hivemind.__main__ import main; sys.exit(main())"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (2, "hivemind: runs on Linux only, and this is darwin\n")
