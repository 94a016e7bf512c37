"""A hive on a file system that two machines share and whose locks do not reach both."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.faults.conftest import needs
from tests.program import cold
from tests.swarm.conftest import Swarm, is_alive

ELSEWHERE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture
def other(hive: Swarm) -> Iterator[Swarm]:
    """The hive as another machine has it mounted: its locks end at the mount. Processes there have numbers of their own."""
    needs("late-folders")
    hive.configure(guard="shared", durability="relaxed", embedder="none")
    (hive.root / ".hive/workspace.json").unlink()
    mounted = Swarm(hive.root.with_name("mounted"))
    mounted.root.mkdir()
    subprocess.run(["bindfs", hive.root, mounted.root], check=True)
    mounted.processes = hive.processes  # they number their logs
    mounted.starts = partial(cold, before=ELSEWHERE, start_new_session=True)
    yield mounted
    mounted.end()
    subprocess.run(["umount", "-l", mounted.root], check=True)


def holder(root: Path) -> dict[str, object]:
    lock = root / ".hive/locks/supervisor.lock"
    return json.loads(lock.read_text() or "{}") if lock.exists() else {}


def test_a_hive_that_another_machine_has_up_is_refused_in_words_and_taken_over_if_a_person_says_so(
    hive: Swarm, other: Swarm
) -> None:
    first = hive.start("up")
    hive.wait(lambda: holder(hive.root) and hive.pid_of("analyst"), "the first swarm")
    other.run("up", status=2)
    assert "on another machine" in other.errors
    assert "hivemind up --take-over" in other.errors
    other.run("agent", "run", "analyst", status=2)
    assert "on another machine" in other.errors
    second = other.start("up", "--take-over")
    hive.wait(lambda: not is_alive(first.pid), "the end of the first, once it sees that it was taken over")
    assert "taken over" in hive.logs()
    hive.wait(lambda: holder(hive.root).get("watching"), "the second swarm")
    second.kill()
    second.wait()


def test_two_mounts_of_one_machine_have_one_swarm(hive: Swarm, other: Swarm) -> None:
    other.starts = hive.starts
    first = hive.start("up")
    hive.wait(lambda: holder(hive.root) and hive.pid_of("analyst"), "the first swarm")
    other.run("up", status=2)
    assert f"held by process {first.pid}, since" in other.errors
    assert "through another mount" in other.errors
    other.run("agent", "run", "analyst", status=2)
    first.kill()
    first.wait()
    other.run("up", "--until-idle")  # a holder that was killed does not stand in the way


def test_a_swarm_that_ended_in_order_stands_in_nobodys_way(hive: Swarm, other: Swarm) -> None:
    other.run("up", "--until-idle")
    hive.run("up", "--until-idle")
    assert holder(hive.root) == {}
