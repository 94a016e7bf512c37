from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from hivemind.config import LimitsConfig
from hivemind.tools.command import clean_environment, run_program
from tests.waiting import until


@pytest.fixture
def run(tmp_path):
    def run_it(command, **more):
        limits = more.pop("limits", LimitsConfig())
        result = run_program(
            command,
            folder=tmp_path,
            output=tmp_path / "out",
            limits=limits,
            environment=clean_environment(os.environ, {}),
            **more,
        )
        return SimpleNamespace(**asdict(result), output=(tmp_path / "out").read_text())

    return run_it


def test_what_a_command_prints_is_kept_with_its_status_and_digest(run, tmp_path):
    result = run("echo one; echo two >&2; exit 3")
    assert (result.exit_status, result.output, result.stop_reason) == (3, "one\ntwo\n", None)
    assert (tmp_path / "out").read_text() == "one\ntwo\n"
    assert result.digest == subprocess.run(["sha256sum", tmp_path / "out"], capture_output=True, text=True).stdout[:64]


def test_a_list_is_run_without_a_shell(run):
    assert run(["printf", "%s", "$HOME; echo no"]).output == "$HOME; echo no"


def test_a_program_that_there_is_not_ends_with_127(run):
    assert run(["no-such-program-here"]).exit_status == 127


def test_a_command_has_nothing_on_its_standard_input(run):
    assert run("cat").output == ""


def test_a_command_whose_time_is_up_is_ended_with_all_its_children(run, tmp_path):
    result = run("trap '' TERM; (sleep 60; echo late > survived) & echo $!; wait", timeout_s=0.2)
    assert result.exit_status is None
    assert result.stop_reason == "its time of 0.2 s was up"
    until(lambda: not alive(int(result.output)))


def test_children_that_outlive_their_command_are_ended(run):
    result = run("sleep 60 & echo $!")
    assert result.exit_status == 0
    until(lambda: not alive(int(result.output)))


def test_of_an_output_beyond_the_limit_the_start_and_the_end_are_kept_with_how_much_is_missing(run, tmp_path):
    result = run("seq 100000; echo the error; echo done > end", limits=LimitsConfig(output_bytes=1000))
    whole = "".join(f"{number}\n" for number in range(1, 100_001)) + "the error\n"
    assert (
        result.output
        == f"{whole[:500]}\n[{len(whole) - 1000:,} bytes are left out here: limits.output_bytes]\n{whole[-500:]}"
    )
    assert result.digest == hashlib.sha256(result.output.encode()).hexdigest()
    assert (tmp_path / "end").exists()


def test_an_output_as_long_as_the_limit_is_kept_whole(run):
    assert run("printf 123456789; echo", limits=LimitsConfig(output_bytes=10)).output == "123456789\n"


def test_the_end_of_what_a_command_printed_is_kept_when_it_is_stopped(run, tmp_path):
    looks = []

    def stopping():
        looks.append((tmp_path / "printed").exists())
        return sum(looks) > 3

    result = run("seq 100000; touch printed; sleep 60", limits=LimitsConfig(output_bytes=1000), stopping=stopping)
    assert result.stop_reason
    assert result.output.endswith("99999\n100000\n")


def test_the_environment_has_no_secrets(run, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("PYTHON_TOKEN", "sk-2")
    assert "sk-" not in run("env").output


def test_kill_9_of_the_agent_ends_its_command_and_the_commands_children(tmp_path):
    program = textwrap.dedent("""
        import os, sys
        from pathlib import Path
        from hivemind.config import LimitsConfig
        from hivemind.tools.command import run_program
        folder = Path(sys.argv[1])
        run_program("echo $$ > pids; sleep 60 & echo $! >> pids; mv pids started; wait", folder=folder,
                    output=folder / "out", limits=LimitsConfig(), environment=os.environ)
    """)
    agent = subprocess.Popen([sys.executable, "-c", program, tmp_path])
    until(lambda: (tmp_path / "started").exists())
    agent.kill()
    agent.wait()
    pids = [int(line) for line in (tmp_path / "started").read_text().split()]
    until(lambda: not any(map(alive, pids)))


def alive(pid):
    """Whether a process lives; one that is dead and waits for its parent to notice does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
