from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from hivemind.config import LimitsConfig
from hivemind.errors import UserError
from hivemind.sandbox import check_sandbox
from hivemind.tools.command import run_program


@pytest.fixture
def task(tmp_path):
    try:
        check_sandbox()
    except UserError as error:
        pytest.skip(str(error))
    folder = tmp_path / "hive" / "tasks" / "active" / "t" / "files"
    folder.mkdir(parents=True)
    (folder / "task.md").write_text("x\n")
    (folder.parent / "task.json").write_text("{}")
    (tmp_path / "hive" / "hive.yaml").write_text("workspace: secret\n")
    return folder


def run(task, command, **more):
    result = run_program(
        command, folder=task, output=task.parent / "out", limits=LimitsConfig(wall_s=20), sandbox="bwrap",
        environment={"PATH": os.environ["PATH"]}, **more,
    )  # fmt: skip
    return SimpleNamespace(**asdict(result), output=(task.parent / "out").read_text())


def test_a_command_works_in_the_folder_of_its_task(task):
    result = run(task, "pwd; cat task.md; echo y > made; echo z > /tmp/elsewhere")
    assert (result.exit_status, result.output) == (0, f"{task}\nx\n")
    assert (task / "made").read_text() == "y\n"
    assert run(task, [sys.executable, "-c", "print(6 * 7)"]).output == "42\n"


def test_it_sees_nothing_else_of_the_hive_and_of_the_user(task):
    root = task.parents[3]
    assert run(task, ["cat", str(root / "hive.yaml")]).exit_status != 0
    assert run(task, ["ls", str(root)]).output == "tasks\n"
    assert run(task, f"ls {os.path.expanduser('~')}/.ssh /etc/shadow").exit_status != 0
    assert run(task, "echo stolen > ../../../../hive.yaml; echo x > /usr/x; ls /usr/x").exit_status != 0
    assert (root / "hive.yaml").read_text() == "workspace: secret\n"


def test_it_cannot_change_the_programs_own_records(task):
    assert run(task, "cat ../task.json").exit_status != 0
    run(task, "echo forged > ../task.json; echo forged > ../result.md; mv ../task.json c; rm -rf ../task.json")
    assert (task.parent / "task.json").read_text() == "{}"
    assert not (task.parent / "result.md").exists()


def test_it_has_no_network(task):
    with socket.socket() as heard:
        heard.bind(("127.0.0.1", 0))
        heard.listen()
        port = heard.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert run(task, [sys.executable, "-c", code]).exit_status != 0
        heard.setblocking(False)
        with pytest.raises(BlockingIOError):
            heard.accept()


def test_what_it_started_ends_with_it_even_in_a_session_of_its_own(task):
    mark = f"{os.getpid()}.25"
    result = run(task, f"setsid sleep 1000{mark} & echo started")
    assert (result.exit_status, result.output) == (0, "started\n")
    assert mark not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


def test_it_ends_when_its_time_is_up_and_when_its_agent_is_told_to(task):
    assert run(task, "sleep 100", timeout_s=0.3).stop_reason == "its time of 0.3 s was up"
    told = threading.Event()
    told.set()
    assert run(task, "sleep 100", stopping=told.is_set).stop_reason == "the agent is stopping"


def test_it_dies_with_an_agent_that_is_killed(task):
    mark = f"{os.getpid()}.75"
    code = (
        "import os,sys; from pathlib import Path; from hivemind.config import LimitsConfig;"
        "from hivemind.tools.command import run_program; t = Path(sys.argv[1]);"
        f"run_program('echo on > on; sleep 1000{mark}', folder=t, output=t.parent / 'out',"
        " limits=LimitsConfig(), environment={'PATH': os.environ['PATH']}, sandbox='bwrap')"
    )
    agent = subprocess.Popen([sys.executable, "-c", code, str(task)])
    while not (task / "on").exists():
        assert agent.poll() is None
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    shown = "ps"
    while shown == "ps" or mark in shown:  # its reaper takes a moment
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


def test_where_there_is_no_bubblewrap_it_is_refused_in_words(monkeypatch, tmp_path):
    check_sandbox.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        with pytest.raises(UserError, match="bwrap is not installed here; install bubblewrap, or set sandbox: none"):
            run_program(
                "true", folder=tmp_path, output=tmp_path / "out", limits=LimitsConfig(), environment={}, sandbox="bwrap"
            )
        program = tmp_path / "bwrap"
        program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
        program.chmod(0o755)
        with pytest.raises(UserError, match=r"cannot run here .bwrap: No permissions to create new namespace"):
            check_sandbox()
    finally:
        check_sandbox.cache_clear()
