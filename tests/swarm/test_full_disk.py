"""A full disk is a pause: nothing is tried, nothing fails, everyone says "disk full", and all goes on once there is room."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.swarm.conftest import KNOWLEDGE, Swarm


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def hive(disk: Path) -> Iterator[Swarm]:
    swarm = Swarm(disk / "hive")
    swarm.root.mkdir()
    swarm.run("init")
    for path in (swarm.root / "knowledge").rglob("*.md"):
        path.unlink()
    (swarm.root / "knowledge" / "boats.md").write_text(KNOWLEDGE)
    yield swarm
    swarm.end()


def fill(disk: Path) -> Path:
    """Take up all the room there is."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast


def test_a_disk_that_is_full_while_a_swarm_works_is_a_pause_for_all_tasks(hive: Swarm, disk: Path, tmp_path: Path):
    go = tmp_path / "go"
    hive.configure(max_active=2, heartbeat_s=0.5)
    names = [f"task-{number}" for number in range(6)]
    for name in names:
        run = f"touch {tmp_path}/begun; while [ ! -e {go} ]; do sleep 0.05; done; echo seen"
        hive.drop(f"{name}.md", f"---\nsteps: [{{run: '{run}'}}, {{ask: What moves a rowing boat?}}]\n---\nx\n")
    up = hive.start("up", "--until-idle")
    hive.wait((tmp_path / "begun").exists, "a command's start")
    ballast = fill(disk)
    go.touch()
    seen = []

    def all_rest() -> bool:
        seen[:] = [hive.run("status", "--json")]
        agents = json.loads(seen[0])["agents"]
        return any("disk full" in str(agent["problem"]) for agent in agents) or "disk full" in str(
            json.loads(seen[0])["parked"]
        )

    hive.wait(all_rest, "that somebody says why it rests")
    states = {one["state"] for one in json.loads(seen[0])["agents"] if one["problem"] == "disk full"}
    assert states <= {"waiting"}
    text, doctor = hive.run("status"), hive.run("doctor", status=1)
    assert "disk full" in text
    assert "max_active" not in text + seen[0]
    assert "disk full" in doctor
    assert "damaged" not in doctor
    assert not os.listdir(hive.root / "tasks/failed")
    assert up.poll() is None
    ballast.unlink()
    hive.wait(lambda: up.poll() is not None, "the end of all tasks")
    assert {name: hive.task(name) for name in names} == dict.fromkeys(names, "done")
    assert up.returncode == 0
