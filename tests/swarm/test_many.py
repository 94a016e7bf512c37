"""More agents than a user has inotify instances (128): they run, wake, and do what there is to do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

AGENTS, TASKS = 135, 5


def test_a_swarm_larger_than_the_inotify_limit_does_its_tasks_and_ends(hive):
    for path in (hive.root / "agents").glob("*.yaml"):
        path.unlink()
    (hive.root / "agents" / "worker.yaml").write_text(f"replicas: {AGENTS}\n")
    hive.configure(durability="relaxed", watch="inotify")
    for number in range(TASKS):
        hive.drop(f"task-{number}.md", "---\nsteps: [{run: 'true'}]\n---\nNothing to do\n")

    result = json.loads(hive.run("up", "--until-idle", "--json"))

    assert sorted(result["done"]) == sorted(f"task-{number}" for number in range(TASKS))
    assert result["failed"] == result["parked"] == []
    started = {event["agent_id"] for event in hive.events() if event["kind"] == "agent.started"}
    exited = {event["agent_id"] for event in hive.events() if event["kind"] == "agent.exited"}
    assert len(started) == AGENTS
    assert exited == started
    assert hive.agents_alive() == []


@pytest.mark.parametrize("count", [1, 2])
def test_agents_inherit_what_they_share_and_an_only_agent_loads_nothing_before_it_needs_it(hive, count):
    shutil.rmtree(hive.root / "knowledge")
    for path in sorted((hive.root / "agents").glob("*.yaml"))[count:]:
        path.unlink()
    hive.starts = lambda words, **options: subprocess.Popen([sys.executable, "-m", "hivemind", *words], **options)
    hive.start("up", HIVEMIND_EMBEDDER="none")
    hive.wait(lambda: len([agent for agent in hive.agents() if agent.rests]) == count)
    mapped_files = [Path(f"/proc/{agent.pid}/maps").read_text() for agent in hive.agents()]
    assert ["_tiktoken" in text for text in mapped_files] == [count > 1] * count
