"""A hive that is removed or moved while it is up: its processes end, and make nothing anew where it was."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.swarm.conftest import is_alive

SLOW = "---\nsteps: [{run: 'touch $HIVEMIND_HIVE/begun; exec sleep 300'}]\n---\nx"


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(path.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def up(hive) -> list[int]:
    hive.drop("slow.md", SLOW)
    hive.run("up", "--detach")
    hive.wait((hive.root / "begun").exists, "the command's start")
    return family(json.loads(hive.run("status", "--json"))["supervisor"]["pid"])


def moved(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))


WAYS = {
    ".hive is removed": lambda root: shutil.rmtree(root / ".hive", ignore_errors=True),
    ".hive is moved": lambda root: (root / ".hive").rename(root / "old"),
    "the hive is moved": moved,
    "its locks are removed": lambda root: shutil.rmtree(root / ".hive/locks"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_processes_of_a_hive_that_is_gone_end_and_make_nothing_anew(hive, way: str):
    processes = up(hive)
    assert len(processes) > 4
    WAYS[way](hive.root)
    hive.wait(lambda: not any(map(is_alive, processes)), "the processes' end")
    if way == "the hive is moved":
        assert not hive.root.exists()
    elif "locks" in way:
        assert not (hive.root / ".hive/locks").exists()
    else:
        assert not (hive.root / ".hive").exists()
        assert "has no .hive" in hive.run("down")
        assert "no .hive" in hive.run("status")
        assert not (hive.root / ".hive").exists()


def test_another_hive_in_its_place_is_not_touched(hive):
    processes = up(hive)
    hive.root.rename(hive.root.with_name("elsewhere"))
    hive.root.mkdir()
    hive.run("init", str(hive.root))
    hive.wait(lambda: not any(map(is_alive, processes)), "the processes' end")
    assert not list((hive.root / ".hive/journal").iterdir())
    assert not list((hive.root / ".hive/agents").iterdir())


def state_of(hive, agent):
    return next((status.state for status in hive.agents() if status.name == agent), None)


def test_an_agent_by_itself_and_one_that_is_stuck_end_as_well(hive):
    hive.configure(heartbeat_s=0.2, hang_after=1)
    lone = hive.start("agent", "run", "analyst")
    hive.wait(lambda: state_of(hive, "analyst") == "idle", "its first look")
    (hive.root / ".hive/agents/reviewer").mkdir(parents=True, exist_ok=True)
    (hive.root / ".hive/agents/reviewer/mail-taken").write_text('{"kind":"mail-taken","version":99}\n')
    stuck = hive.start("agent", "run", "reviewer")
    hive.wait(lambda: state_of(hive, "reviewer") == "stuck", "the pause before its next try")
    os.rename(hive.root / ".hive", hive.root / "old")
    for process in (lone, stuck):
        assert process.wait(60) == 2
    assert not (hive.root / ".hive").exists()
