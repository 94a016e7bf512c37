"""The power goes at any moment of a claim, and any part of what was not waited for is lost: the tasks are what they were.

Recorded with strace, and rebuilt by a strict reading of POSIX (tests/faults/powerloss).
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivemind.layout import Layout
from hivemind.tasks import Tasks
from tests.durability import relaxed
from tests.faults.faults import FAULTS, gap_of
from tests.faults.powerloss.disk import Crash, Disk, Sync
from tests.faults.powerloss.recording import record
from tests.faults.powerloss.run import environment

CLAIMS = """
import os, sys
from pathlib import Path
from hivemind.coordination import Journal
from hivemind.layout import Layout
from hivemind.tasks import Tasks
layout = Layout.at(sys.argv[1])
for folder in layout.folders():
    folder.mkdir(parents=True, exist_ok=True)
tasks = Tasks(layout, settle_ms=0, grace_s=0, journal=Journal(layout.journal), agents=lambda: {"scout": None})
tasks.add("Made by an agent.", by="ada", id="made", steps=[{"run": "true"}])
(layout.inbox / "leak.md").write_text("Find the leak.\\n" if sys.argv[2] == "good" else "---\\nnonsense: 1\\n---\\n")
os.sync()
while tasks.claim("scout") is not None:
    pass
"""
MOST = 150


def crashes(disk: Disk) -> Iterator[Crash]:
    """After each operation: all of it lost, each one alone, all but one, and pairs of what was not waited for."""
    first, words = disk.operations.index(Sync(None)), disk.words()
    for at, pending in itertools.islice(disk.open_operations(), first + 2, None):
        for many in range(1, len(pending) + 1):
            if many <= 2 or many >= len(pending) - 1:
                for lost in itertools.combinations(pending, many):
                    yield Crash(at, frozenset(lost), reason=f"{[words[one] for one in lost]} lost")


def opened(layout: Layout) -> Tasks:
    from hivemind.coordination import Journal

    journal = Journal(relaxed(layout.root) / ".hive/journal")
    return Tasks(layout, settle_ms=0, grace_s=0, journal=journal, agents=lambda: {"scout": None})


@pytest.mark.parametrize("kind", ["good", "bad"])
def test_a_claim_keeps_name_text_and_maker_of_a_task_wherever_the_power_fails(tmp_path: Path, kind: str) -> None:
    if why := gap_of(FAULTS["kill-at-call"]):
        pytest.skip(why.reason)
    hive = tmp_path / "hive"
    hive.mkdir()
    command = [sys.executable, "-c", CLAIMS, os.fspath(hive), kind]
    disk = record(command, hive, tmp_path / "said", tmp_path / "log", environment())
    found = list(crashes(disk))
    random.Random(1).shuffle(found)
    for crash in found[:MOST]:
        disk.build(crash, hive)
        layout = Layout.at(hive)
        tasks = opened(layout)
        claimed = {task.id: task for task in tasks.mine("scout", 2)}
        while (task := tasks.claim("scout")) is not None:
            claimed[task.id] = task
        assert {name: task.maker for name, task in claimed.items() if name == "made"} == {"made": "ada"}, crash.reason
        lies = {path.name for place in ("active", "failed", "done") for path in (layout.tasks / place).iterdir()} - {
            ".claimed"
        }
        assert lies == {"made", "leak"}, crash.reason
        kept = [
            path
            for path in (layout.failed if kind == "bad" else layout.active).glob("leak/*.md")
            if path.name != "error.md"
        ]
        said = "Find the leak.\n" if kind == "good" else "---\nnonsense: 1\n---\n"
        assert [path.read_text() for path in kept] == [said], crash.reason
