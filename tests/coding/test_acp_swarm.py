"""Programs that speak the Agent Client Protocol in a real swarm: from a task to a landed branch, through every kill."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.coding.hives import empty_hive, git, repository
from tests.messages import calls_of, lines_of
from tests.swarm.conftest import Swarm, is_alive
from tests.waiting import until

PROGRAM = Path(__file__).parent / "acp_agent.py"
FINISH = '!call finish_task {"result": "It is done."}'


@pytest.fixture
def swarm(tmp_path: Path):
    """A hive with one coder, whose repository has one file."""
    root = repository(tmp_path / "app", app_txt="two\n")
    roots = [{"path": str(root), "worktree": True, "land": "auto", "check": "grep three app.txt"}]
    made = empty_hive(tmp_path / "hive", roots=roots)
    mind = {"acp": [sys.executable, str(PROGRAM), str(PROGRAM.with_name("fake_agent.py")), "load", "reexec"]}
    (made.root / "agents" / "coder.yaml").write_text(json.dumps({"role": "coder", "mind": mind}))
    yield made
    made.end()


def home(swarm: Swarm) -> Path:
    return swarm.root / ".hive" / "agents" / "coder" / "program" / "home"


def show(swarm: Swarm) -> dict[str, object]:
    used: dict[str, object] = json.loads(swarm.run("task", "show", "job", "--json"))["used"]
    return used


def landed(swarm: Swarm) -> str:
    return git(swarm.root.parent / "app", "show", "main:app.txt")


def test_a_task_is_worked_on_in_a_worktree_and_its_branch_lands(swarm: Swarm):
    swarm.drop("job.md", f"x\n!write app.txt three\n!say I have written it.\n{FINISH}\n")
    swarm.run("up", "--until-idle")
    assert "It is done." in swarm.result("job")
    assert landed(swarm) == "three"
    used = show(swarm)
    assert (used["tokens"], used["money"]) == (110, 0.01)
    assert "110 tokens (40 cached), " in swarm.run("task", "show", "job")


def programs(swarm: Swarm) -> list[int]:
    """The processes of the coder's program, and what they have started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_program = f"HOME={home(swarm)}".encode() in (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_program and is_alive(int(path.name)):
            found.append(int(path.name))
    return found


@pytest.mark.parametrize(
    ("victim", "is_finished"),
    [("program", False), ("child", False), ("agent", False), ("supervisor", False), ("program", True), ("agent", True)],
)
def test_a_kill_leaves_no_process_and_records_each_call_and_price_once(swarm: Swarm, victim: str, is_finished: bool):
    tool = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "make", "kind": "execute", "status": "completed"}
    orders = ["!write app.txt three", f"!update {json.dumps(tool)}", "!spend", "!child"]
    orders += [FINISH, "!hang"] if is_finished else ["!hang", "!say More.", FINISH]
    swarm.drop("job.md", "x\n" + "\n".join(orders) + "\n")
    up = swarm.start("up")
    until((home(swarm) / "child").exists, limit_s=60)
    messages = swarm.root / "tasks" / "active" / "job" / "messages.jsonl"
    until(lambda: not is_finished or "It is done." in messages.read_text().partition('finish_task","arg')[2])
    before = programs(swarm)
    assert len(before) >= 3, "the program, the one that it runs again as, and its child"
    match victim:
        case "program":
            for pid in before:
                with suppress(OSError):  # it has ended with the one before it
                    if b"acp_agent.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, signal.SIGKILL)
        case "child":
            number = (home(swarm) / "child").read_text()  # in the box; the last of a process's numbers is that one
            [child] = [
                pid
                for pid in before
                if re.search(rf"^NSpid:.*\t{number}$", Path(f"/proc/{pid}/status").read_text(), re.M)
            ]
            os.kill(child, signal.SIGKILL)
            (home(swarm) / "go").touch()
        case "agent":
            status = json.loads((swarm.root / ".hive" / "agents" / "coder" / "status.json").read_text())
            os.kill(status["pid"], signal.SIGKILL)
        case "supervisor":
            os.killpg(up.pid, signal.SIGKILL)
            up.wait()
            swarm.start("up")
    until(lambda: swarm.task("job") in ("done", "failed"), swarm.logs, limit_s=90)
    swarm.run("down")
    assert "It is done." in swarm.result("job")
    assert landed(swarm) == "three"
    folder, texts = swarm.root / "tasks" / "done" / "job", [] if is_finished else ["More."]
    assert [call["tool"] for call in calls_of(folder)] == ["execute", "finish_task"]
    assert [line["text"] for line in lines_of(folder) if line.get("role") == "assistant" and line["text"]] == texts
    assert show(swarm)["money"] == pytest.approx(float((home(swarm) / "s1.cost").read_text()))
    until(lambda: not any(map(is_alive, before)))
    assert programs(swarm) == []
