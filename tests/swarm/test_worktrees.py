"""Work in git worktrees by a swarm of real processes, of which one is killed in the middle of it."""

from __future__ import annotations

import json
import subprocess
import sys

MIND = """
import json, sys

asked = json.load(sys.stdin)
answers = sum(one["role"] == "assistant" for one in asked["messages"])
kill = (
    "test -e ../../../killed-$HIVEMIND_TASK || { touch ../../../killed-$HIVEMIND_TASK; "
    "kill -9 $(sed 's/.*\\"pid\\": \\\\([0-9]*\\\\).*/\\\\1/' ../../../.hive/locks/agent-$HIVEMIND_AGENT.lock); sleep 60; }"
)
turns = [
    [("write_file", {"path": "boat", "text": "a red boat\\n"})],
    [("write_file", {"path": "mast", "text": "a mast\\n"}), ("run_command", {"command": kill})],
    [("finish_step", {}), ("finish_task", {"result": "A boat."})],
]
calls = [{"tool": tool, "arguments": told} for tool, told in turns[min(answers, 2)]]
print(json.dumps({"text": "", "calls": calls}))
"""


def test_agents_killed_in_the_middle_of_their_work_lose_none_of_it(hive):
    for path in (hive.root / "agents").glob("*.yaml"):
        path.unlink()
    app = hive.root.parent / "app"

    def git(*words):
        return subprocess.run(["git", "-C", app, *words], capture_output=True, text=True, check=True).stdout

    subprocess.run(["git", "init", "-q", "-b", "main", app], check=True)
    (app / "boat").write_text("a boat\n")
    git("add", "-A")
    git("config", "user.name", "Person")
    git("config", "user.email", "person@example.org")
    git("commit", "-qm", "Begin")
    hive.configure(roots=[{"path": "../app", "worktree": True, "land": "off"}])
    (hive.root / "mind.py").write_text(MIND)
    for name in ("ann", "ben"):
        mind = {"command": [sys.executable, "mind.py"]}
        (hive.root / "agents" / f"{name}.yaml").write_text(json.dumps({"mind": mind, "shell": True}))
        hive.drop(f"by-{name}.md", f"---\nassignee: {name}\n---\nBuild a boat.\n")
    hive.run("up", "--until-idle")
    for task in ("by-ann", "by-ben"):
        assert (hive.root / f"killed-{task}").exists()
        assert f"Branch `hive/{task}`" in hive.result(task)
        assert (git("show", f"hive/{task}:boat"), git("show", f"hive/{task}:mast")) == ("a red boat\n", "a mast\n")
    assert git("status", "--porcelain") == ""
    assert git("worktree", "list").count("\n") == 1
    assert {path.name for path in (hive.root / "worktrees").iterdir()} == {"ann", "ben"}
    assert "+a red boat" in hive.run("task", "diff", "by-ann")


def test_roots_that_no_task_can_use_are_said_at_the_start(hive):
    (hive.root.parent / "plain").mkdir()
    hive.configure(roots=["../nowhere", {"path": "../plain", "worktree": True}])
    hive.run("up", "--until-idle")
    assert "roots: ../nowhere is not a folder" in hive.errors
    assert "plain: cannot have worktrees" in hive.errors
