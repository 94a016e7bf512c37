"""More agents than a user has inotify instances (128): they run, wake, and do what there is to do."""

from __future__ import annotations

import json

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
