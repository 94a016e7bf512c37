"""A swarm that is up follows agents/, stops and starts single agents, and runs as systemd runs it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from hivemind.layout import Layout
from hivemind.presence.identity import agent_lock
from tests.swarm.conftest import Swarm

SLOW = """---
assignee: {}
steps: [{{run: 'echo x >> $HIVEMIND_HIVE/begun; until test -e $HIVEMIND_HIVE/go; do sleep 0.05; done'}}]
---
x
"""


def up(hive: Swarm) -> None:
    hive.configure(heartbeat_s=0.5, durability="relaxed")
    hive.run("up", "--detach")
    hive.wait(lambda: pid_of(hive, "analyst"), "the start")


def pid_of(hive: Swarm, agent: str) -> int | None:
    """The process that has the agent's name, without a command that is started to ask for it."""
    holder = agent_lock(Layout.at(hive.root), agent).holder()
    return holder.get("pid") if holder else None


def agents(hive: Swarm) -> dict[str, dict]:
    return {one["name"]: one for one in json.loads(hive.run("status", "--json"))["agents"]}


def test_a_new_agents_file_starts_it_and_one_that_is_taken_away_gives_its_tasks_back(hive: Swarm):
    up(hive)
    hive.run("agent", "add", "writer", "--role", "writer")
    first = hive.wait(lambda: pid_of(hive, "writer"), "the new agent's start")
    hive.run("mail", "send", "--to", "writer", "--subject", "Boats", "What has a keel?")
    hive.wait(lambda: list((hive.root / "mailboxes/human/new").iterdir()), "the new agent's answer")
    hive.drop("slow.md", SLOW.format("writer").replace("assignee: writer", "role: writer"))
    hive.wait((hive.root / "begun").exists, "the command's start")
    log = hive.root / ".hive/logs/swarm.log"
    (hive.root / "agents/writer.yaml").unlink()
    hive.wait(lambda: log.read_text().count("changed: writer") == 2, "the notice of it")
    (hive.root / "go").touch()  # it ends its turn first
    hive.wait(lambda: not Path(f"/proc/{first}").exists(), "the removed agent's end")
    hive.wait(lambda: hive.task("slow") == "inbox", "the task's return")
    (hive.root / "agents/author.yaml").write_text("role: writer\n")
    hive.wait(lambda: hive.task("slow") == "done", "the task's end with another agent")
    assert (hive.root / "begun").read_text() == "x\n", "the command of its last turn was let end, and is not run again"


def test_a_task_of_an_agent_that_was_removed_while_the_swarm_was_down_goes_back(hive: Swarm):
    up(hive)
    hive.drop("slow.md", SLOW.format("analyst").replace("assignee: analyst\n", ""))
    hive.wait((hive.root / "begun").exists, "the command's start")
    owner = json.loads(hive.run("task", "list", "--json"))[0]["owner"]
    hive.run("down")
    (hive.root / f"agents/{owner}.yaml").unlink()
    (hive.root / "go").touch()
    hive.run("up", "--until-idle")
    assert hive.task("slow") == "done"


@pytest.mark.shows("promise: P51")
def test_a_changed_file_takes_effect_and_a_bad_one_is_said_while_the_agent_goes_on_as_it_was(hive: Swarm):
    up(hive)
    path = hive.root / "agents/analyst.yaml"
    before = pid_of(hive, "analyst")
    path.write_text("role: poet\n")
    hive.wait(lambda: pid_of(hive, "analyst") not in (before, None), "the agent's start with its new file")
    hive.run("task", "add", "What has a keel?", "--id", "poem", "--role", "poet")
    hive.wait(lambda: hive.task("poem") == "done", "the task for the new role")

    for bad, why in (("role: [\n", "analyst.yaml"), ("role: poet\nmind: nonsense\n", "nonsense")):
        path.write_text(bad)
        told = hive.wait(
            lambda: next((a["problem"] for a in agents(hive).values() if a["problem"]), None), "the problem"
        )
        assert why in told
        assert why in (hive.root / ".hive/logs/swarm.log").read_text()
        os.kill(agents(hive)["analyst"]["pid"], signal.SIGKILL)  # who dies now is started again as it was
        hive.drop(f"again-{len(bad)}.md", "---\nrole: poet\n---\nWhat has a keel?\n")
        hive.wait(lambda bad=bad: hive.task(f"again-{len(bad)}") == "done", "a task with the old role")
    path.write_text("role: critic\n")
    hive.wait(
        lambda: agents(hive)["analyst"]["role"] == "critic" and not agents(hive)["analyst"]["problem"], "a good file"
    )


@pytest.mark.shows("promise: P52")
def test_an_agent_that_a_person_stopped_stays_stopped_until_it_is_started(hive: Swarm):
    up(hive)
    pid = pid_of(hive, "analyst")
    told = json.loads(hive.run("agent", "stop", "analyst", "--timeout", "30", "--json"))
    assert (told["pid"], told["ended"]) == (pid, True)
    assert (hive.root / ".hive/stopped" / "analyst").exists()
    hive.run("down")
    hive.run("task", "add", "What has a keel?", "--id", "own", "--assignee", "analyst")
    hive.run("task", "add", "What has a keel?", "--id", "free")
    assert "own" in hive.run("up", "--until-idle", status=3)
    assert (hive.task("free"), hive.task("own")) == ("done", "inbox")
    assert agents(hive)["analyst"]["state"] == "stopped"
    hive.run("up", "--detach")
    hive.run("agent", "start", "analyst")
    hive.wait(lambda: hive.task("own") == "done", "its task")


def test_the_unit_is_one_that_systemd_takes_and_its_command_lives_and_ends_as_a_service(hive: Swarm, tmp_path: Path):
    text = hive.run("up", "--print-unit")
    keys = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert keys["KillMode"] == "mixed"
    if shutil.which("systemd-analyze"):
        (tmp_path / "hivemind.service").write_text(text)
        seen = subprocess.run(
            ["systemd-analyze", "--user", "verify", str(tmp_path / "hivemind.service")],
            capture_output=True, text=True, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        )  # fmt: skip
        assert "hivemind.service" not in seen.stderr, seen.stderr
    # as systemd starts it: no terminal, no input, a bare environment, its own session
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HIVEMIND_EMBEDDER": "none"}
    with open(hive.root / "started-unit.log", "w") as log:
        service = subprocess.Popen(
            shlex.split(keys["ExecStart"]), cwd=keys["WorkingDirectory"], env=bare, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True, text=True,
        )  # fmt: skip
    hive.processes.append(service)
    hive.wait(lambda: pid_of(hive, "analyst"), "the start")
    second = subprocess.run(shlex.split(keys["ExecStart"]), cwd=keys["WorkingDirectory"], env=bare, capture_output=True)
    assert second.returncode == int(keys["RestartPreventExitStatus"])
    service.send_signal(signal.SIGTERM)
    assert service.wait(int(keys["TimeoutStopSec"])) == 0
    assert hive.agents_alive() == []


@pytest.mark.parametrize("name", ["a hive", "50%", "it's $HOME"])
def test_the_unit_names_a_folder_of_any_name(hive: Swarm, name: str):
    root = hive.root.with_name(name)
    hive.root.rename(root)
    hive.root = root
    text = hive.run("up", "--print-unit", "--json")
    unit = json.loads(text)["unit"]
    words = shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1], posix=True)
    assert words[words.index("--hive") + 1].replace("%%", "%").replace("$$", "$") == str(root)
