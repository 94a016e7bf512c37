"""hivemind up, down, status, agent run: real processes, from a dropped task to an exit status."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.fs import Lock
from hivemind.fs.sockets import wait_for_input
from hivemind.layout import Layout
from hivemind.swarm.overview import AgentOverview, agents_now, overview
from hivemind.swarm.shutdown import end_swarm
from tests.cli.conftest import Command
from tests.program import Program
from tests.waiting import until

HIVEMIND = [sys.executable, "-m", "hivemind"]
LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def ended(hive: Path) -> Iterator[None]:
    """Whatever a test leaves up is ended after it."""
    yield
    end_swarm(Layout.at(hive))


def wait_for_status(root: Path, name: str, state: str) -> AgentOverview:
    """The agent, once its state is that."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        (found,) = [agent for agent in agents_now(Hive.open(root)) if agent.name == name]
        if found.state == state:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{name} is not {state}: {found}")


def test_a_swarm_ends_by_itself_when_every_task_is_done(process: Command, run: Command, hive: Path) -> None:
    run("task", "add", "--id", "hello", "--file", str(task_that_runs(hive, "echo hello from a step")))
    done = process("up", "--until-idle")
    assert done.status == 0, done.err
    assert done.out == "done    hello: tasks/done/hello/result.md\nThe swarm has ended: 1 done, 0 failed, 0 parked.\n"
    shown = run("task", "show", "hello").out
    assert "hello from a step" in shown
    assert re.search(r"^Used: +\d turns, 0 tokens, ", shown, re.MULTILINE)
    assert run("doctor").status == 0


def task_that_runs(hive: Path, command: str) -> Path:
    path = hive.parent / "task.md"
    path.write_text(f"---\ntitle: Run it\nsteps:\n  - run: '{command}'\n---\nRun it.\n")
    return path


def test_a_failed_task_is_status_1_and_is_named_with_why(process: Command, run: Command, hive: Path) -> None:
    run("task", "add", "--id", "bad", "--file", str(task_that_runs(hive, "exit 3")))
    done = process("up", "--until-idle", "--json")
    assert done.status == 1
    assert [failed["task"] for failed in done.json["failed"]] == ["bad"]
    assert done.json["failed"][0]["why"]


def test_a_task_that_waits_for_a_person_is_status_3_and_is_named_with_why(
    process: Command, run: Command, hive: Path
) -> None:
    path = hive.parent / "task.md"
    path.write_text("---\ntitle: Ask\nsteps:\n  - wait: {human: Which colour?}\n---\nAsk.\n")
    run("task", "add", "--id", "ask", "--file", str(path))
    done = process("up", "--until-idle")
    assert done.status == 3, done.err
    assert re.search(r"^parked  ask: asks a person: Which colour", done.out, re.MULTILINE)
    now = run("status", "--json").json
    assert [parked["task"] for parked in now["parked"]] == ["ask"]
    assert now["tasks"]["parked"] == 1


def test_only_the_agents_named_are_started(process: Command, run: Command, hive: Path) -> None:
    run("task", "add", "--id", "mine", "--assignee", "analyst", "--file", str(task_that_runs(hive, "true")))
    done = process("up", "--until-idle", "--agents", "researcher,reviewer")
    assert done.status == 3
    assert "analyst" in done.out
    wrong = process("up", "--until-idle", "--agents", "nobody")
    assert wrong.status == 2
    assert "its agents: analyst, researcher, reviewer" in wrong.err


def test_a_detached_swarm_is_up_when_the_command_returns_and_down_ends_it(
    process: Command, run: Command, hive: Path
) -> None:
    started = process("up", "--detach", "--json")
    assert started.status == 0, started.err
    now = run("status", "--json").json
    assert now["supervisor"]["pid"] == started.json["pid"]
    assert now["watching"] is not None
    # a process that was forked takes its agent's name a moment later
    until(lambda: all(agent["pid"] for agent in run("status", "--json").json["agents"]))

    second = process("up", "--detach")
    assert second.status == 2
    assert f"process {started.json['pid']}" in second.err
    assert process("up").status == 2

    ended = run("down")
    assert (ended.status, ended.out) == (0, f"The swarm of {hive} has ended (process {started.json['pid']}).\n")
    assert run("status", "--json").json["supervisor"] is None
    assert {agent["state"] for agent in run("agent", "list", "--json").json} == {"down"}
    assert run("down").out == f"Nothing is up in {hive}.\n"


def test_a_detached_swarm_says_which_agent_it_does_not_start_and_so_does_its_status(
    process: Command, run: Command, hive: Path
) -> None:
    (hive / "agents" / "clever.yaml").write_text("role: analyst\nmind: anthropic:some-model\n")
    started = process("up", "--detach")
    assert started.status == 0, started.err
    assert "clever is set aside: " in started.err
    [told] = [line for line in run("agent", "list").out.splitlines() if line.startswith("clever: ")]
    assert "ANTHROPIC_API_KEY" in told
    run("down")


def test_a_detached_swarm_that_cannot_start_says_why_at_once(process: Command, run: Command, hive: Path) -> None:
    (hive / "hive.yaml").write_text("workspce: x\n")
    ended = process("up", "--detach")
    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert "hive.yaml:1" in ended.err
    assert run("status").status == 2


def test_status_says_that_the_settings_have_changed_since_the_swarm_started(process: Command, run: Command, hive: Path):
    process("up", "--detach")
    assert "hive.yaml has changed" not in run("status").out
    later = (hive / "hive.yaml").stat().st_mtime + 3600
    os.utime(hive / "hive.yaml", (later, later))
    assert "hive.yaml has changed since then: hivemind down, then hivemind up" in run("status").out
    assert run("status", "--json").json["has_new_settings"]


def test_down_says_so_if_the_swarm_does_not_end(process: Command, run: Command, hive: Path) -> None:
    (hive / ".hive" / "locks").mkdir(parents=True)
    program = (
        "import signal, sys; from hivemind.fs import Lock\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "lock = Lock(sys.argv[1]); lock.acquire(what='deaf'); print('up', flush=True); signal.pause()\n"
    )
    lock = hive / ".hive" / "locks" / "supervisor.lock"
    deaf = subprocess.Popen([sys.executable, "-c", program, str(lock)], stdout=subprocess.PIPE)
    try:
        assert deaf.stdout is not None
        assert deaf.stdout.readline()
        ended = run("down", "--timeout", "0.2")
        assert ended.status == 1
        assert f"process {deaf.pid} has not ended in time" in ended.err
    finally:
        deaf.kill()
        deaf.communicate()


def test_down_does_not_end_whoever_asks_if_the_lock_names_nobody(process: Command, run: Command, hive: Path) -> None:
    (hive / ".hive" / "locks").mkdir(parents=True)
    lock = Lock(hive / ".hive" / "locks" / "supervisor.lock")
    lock.acquire()
    ended = run("down", "--timeout", "0.2")
    lock.release()
    assert ended.status == 2
    assert "cannot be signalled from here" in ended.err


def test_an_agent_runs_alone_and_a_second_one_of_that_name_ends_at_once(
    process: Command, run: Command, hive: Path
) -> None:
    alone = Program(["agent", "run", "researcher"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert wait_for_status(hive, "researcher", "idle").pid == alone.pid
        assert run("status", "--json").json["watching"] is not None
        second = process("agent", "run", "researcher")
        assert second.status == 2
        assert f"process {alone.pid}" in second.err
    finally:
        alone.terminate()
        _, complaint = alone.communicate(timeout=LIMIT_S)
    assert (alone.returncode, complaint) == (0, b"")
    assert process("agent", "run", "nobody").status == 2


def test_a_status_file_of_a_killed_agent_is_not_believed(process: Command, run: Command, hive: Path) -> None:
    alone = Program(["agent", "run", "researcher"], stdout=subprocess.DEVNULL)
    try:
        wait_for_status(hive, "researcher", "idle")
    finally:
        alone.kill()
        alone.wait()
    (found,) = [agent for agent in run("agent", "list", "--json").json if agent["name"] == "researcher"]
    assert (found["state"], found["pid"]) == ("down", None)
    assert run("doctor").status == 1
    assert run("doctor", "--fix").status == 0
    assert run("doctor").status == 0


class Terminal:
    """A command on a terminal of its own, and everything that it wrote there."""

    def __init__(self, *words: str, columns: int = 100, rows: int = 20) -> None:
        self.written = b""
        self.pid, self._side = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(sys.executable, [*HIVEMIND, *words])
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self._side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, wanted: bytes, since: int = 0) -> None:
        """Read until that has been written after the first `since` bytes."""
        until = time.monotonic() + LIMIT_S
        while wanted not in self.written[since:]:
            assert time.monotonic() < until, self.written
            assert self._read(), self.written

    def type(self, text: bytes) -> None:
        os.write(self._side, text)

    def end(self) -> int:
        while self._read():
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self._side)
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> bool:
        if not wait_for_input([self._side], LIMIT_S):
            return False
        with contextlib.suppress(OSError):  # the other side has been closed
            piece = os.read(self._side, 65_536)
            self.written += piece
            return bool(piece)
        return False


def test_on_a_terminal_the_swarm_is_drawn_in_place_and_nothing_is_left_to_restore(hive: Path) -> None:
    terminal = Terminal("up")
    terminal.until(b"3 of 3 agents up")
    terminal.until(b"researcher  idle")
    before = len(terminal.written)
    terminal.resize(50, 12)
    terminal.until(b"\x1b[H\x1b[J", before)
    terminal.until(b"\x1b[?7h", terminal.written.index(b"\x1b[H\x1b[J", before))
    terminal.type(b"\x03")  # the terminal drops what it was given and has not shown
    assert terminal.end() == 0
    shown = terminal.written.decode().replace("^C", "")  # the terminal's echo, which may stand within a sequence
    assert re.search(r"\x1b\[\d+A", shown)  # went back up to draw over what was there
    assert shown.rindex("\x1b[?7l") < shown.rindex("\x1b[?7h")
    last, _, end = shown[shown.rindex("\x1b[H\x1b[J") :].rpartition("\x1b[?7h")
    plain = re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", last)
    assert all(len(line) <= 50 for line in plain.replace("\r", "").split("\n"))
    assert end.startswith("\x1b[1A\r\x1b[JThe swarm has ended")


def test_on_a_terminal_too_what_is_wrong_is_one_line(process: Command, run: Command, hive: Path) -> None:
    process("up", "--detach")
    terminal = Terminal("up")
    assert terminal.end() == 2
    assert re.fullmatch(rb"hivemind: \S+: this hive is up already: process \d+, [^\n]*\n", terminal.written)


def test_a_terminal_is_shown_the_first_of_very_many_tasks_and_a_pipe_all(process: Command, hive: Path) -> None:
    inbox = hive / "tasks" / "inbox"
    inbox.mkdir(parents=True)
    for number in range(60):
        (inbox / f"{number:02}.md").write_text("x")
    terminal = Terminal("task", "list")
    assert terminal.end() == 0
    assert terminal.written.splitlines()[-1] == b"60 are in inbox, the first 50 are shown: --limit 60 shows all"
    assert len(process("task", "list").out.splitlines()) == 62


def test_in_a_pipe_nothing_is_shown_but_the_end(hive: Path) -> None:
    up = Program(["up"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for_status(hive, "researcher", "idle")
    up.send_signal(signal.SIGINT)
    out, err = up.communicate(timeout=LIMIT_S)
    assert (up.returncode, out, err) == (0, b"The swarm has ended: 0 done, 0 failed, 0 parked.\n", b"")


def test_a_run_that_is_interrupted_before_it_was_idle_says_so(run: Command, hive: Path) -> None:
    run("task", "add", "--id", "long", "--file", str(task_that_runs(hive, "sleep 600")))
    (hive / "tasks/inbox/asks.md").write_text("---\nsteps: [{wait: {human: Well?}}]\n---\nx")
    up = Program(["up", "--until-idle"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(
        lambda: (
            overview(Hive.look(hive)).parked
            and any(agent.state == "working" and agent.task == "long" for agent in agents_now(Hive.open(hive)))
        ),
        limit_s=LIMIT_S,
    )
    up.send_signal(signal.SIGINT)
    out, err = up.communicate(timeout=LIMIT_S)
    assert (up.returncode, err) == (130, b"")
    told = "0 done, 0 failed, 1 parked, 1 active, which the next hivemind up continues"
    assert re.fullmatch(f"parked  asks: asks a person: Well\\? .*\nThe swarm was told to end: {told}.\n", out.decode())
    assert run("task", "show", "long", "--json").json["state"] == "active"


def test_down_leaves_a_process_alone_that_has_the_number_of_a_swarm_on_another_machine(
    run: Command, hive: Path
) -> None:
    """Both machines may have one name, as copies of one machine have; the lock's record tells them apart."""
    (hive / ".hive/locks").mkdir(parents=True)
    lock = Lock(hive / ".hive/locks/supervisor.lock")
    with subprocess.Popen(["sleep", "60"]) as bystander:
        lock.acquire(pid=bystander.pid, machine="0" * 16)
        ended = run("down", "--timeout", "0.2")
        lock.release()
        alive = bystander.poll() is None
        bystander.kill()
    assert alive
    assert ended.status == 2
    assert "on another machine" in ended.err
