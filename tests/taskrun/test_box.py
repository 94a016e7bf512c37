"""The lines of `setup:` and `check:` in their box: real processes, with and without bubblewrap."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from hivemind.config import LimitsConfig
from hivemind.taskrun.box import LinesResult, is_boxed, start_lines
from tests.waiting import until

BOXES = [False, pytest.param(True, marks=pytest.mark.skipif(not is_boxed(), reason="bubblewrap does not run here"))]
needs_box = pytest.mark.skipif(not is_boxed(), reason="bubblewrap does not run here")


class Run(NamedTuple):
    result: LinesResult
    output: str


@pytest.fixture(params=BOXES, ids=lambda boxed: "boxed" if boxed else "as the person")
def boxed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("hive/tree", "hive/home"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "hive/secret").write_text("the hive's\n")
    return tmp_path / "hive/tree"


def run(folder: Path, *lines: str, boxed: bool, network: bool = False, readable: tuple[Path, ...] = (),
        timeout_s: float | None = None, limits: LimitsConfig | None = None) -> Run:  # fmt: skip
    log = folder.parent / "log"
    with (
        open(log, "wb") as file,
        start_lines(
            lines, folder, folder.with_name("home"), boxed=boxed, network=network, log=file, readable=readable,
            timeout_s=timeout_s, limits=limits,
        ) as running,
    ):  # fmt: skip
        result = running.wait()
    return Run(result, log.read_bytes().decode("utf-8", "replace"))


def test_each_line_is_run_until_one_fails(folder: Path, boxed: bool) -> None:
    assert run(folder, "echo 1", "echo 2", boxed=boxed) == (LinesResult("passed"), "$ echo 1\n1\n$ echo 2\n2\n")
    result, output = run(folder, "true", "false; echo never", "touch later", boxed=boxed)
    assert result == LinesResult("failed", "false; echo never failed", "false; echo never")
    assert output == "$ true\n$ false; echo never\n[exit status 1] false; echo never\n"
    assert not (folder / "later").exists()


def test_many_lines_are_run(folder: Path, boxed: bool) -> None:
    result, output = run(folder, *(f"echo {number}" for number in range(30)), "exit 3", boxed=boxed)
    assert result.outcome == "failed"
    assert "[exit status 3] exit 3" in output


def test_a_variable_that_is_not_set_fails(folder: Path, boxed: bool) -> None:
    assert run(folder, "rm -rf $NO_SUCH_FOLDER/x", boxed=boxed).result.outcome == "failed"


def test_a_missing_program_is_no_failure_of_the_line(folder: Path, boxed: bool) -> None:
    result, output = run(folder, "true", "A=1 no-such-program x", boxed=boxed)
    assert (result.outcome, result.line) == ("failed_to_run", "A=1 no-such-program x")
    assert result.reason.startswith("no-such-program is not installed here")
    assert "no-such-program" in output
    # a program deeper within, or a file of the branch, is the branch's own affair
    assert run(folder, "sh -c no-such-program", boxed=boxed).result.outcome == "failed"
    assert run(folder, "./no-such-file", boxed=boxed).result.outcome == "failed"


def test_a_line_that_is_no_shell_fails(folder: Path, boxed: bool) -> None:
    assert run(folder, "if", boxed=boxed).result.outcome == "failed"
    assert run(folder, "echo 'open", boxed=boxed).result.outcome == "failed"


def test_no_variable_but_path_language_and_home_comes_in(
    folder: Path, boxed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefghijklmnopqrstuvwxyz123456")
    monkeypatch.setenv("SOMETHING", "else")
    monkeypatch.setenv("LC_TIME", "C")
    _, output = run(folder, "env", boxed=boxed)
    names = {line.partition("=")[0] for line in output.splitlines()[1:]}
    assert names - {"LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ"} == {
        "CI", "HOME", "LC_TIME", "OLDPWD", "PATH", "PWD", "TERM"
    } - (set() if "OLDPWD" in names else {"OLDPWD"})  # fmt: skip
    assert f"HOME={folder.with_name('home')}\n" in output


def test_home_stays(folder: Path, boxed: bool) -> None:
    run(folder, "mkdir ~/.cache; echo x > ~/.cache/x", boxed=boxed)
    assert run(folder, "cat ~/.cache/x", boxed=boxed).output.endswith("\nx\n")


def test_a_secret_that_is_printed_is_masked(folder: Path, boxed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefghijklmnopqrstuvwxyz123456")
    assert (
        "abcdefghijkl"
        not in run(folder, "echo sk-abcdefghijklm'nopqrstuvwxyz123456'", boxed=boxed).output.splitlines()[1]
    )


def test_long_output_keeps_its_beginning_and_its_end(folder: Path, boxed: bool) -> None:
    result, output = run(folder, "echo first; yes 0123456789 | head -c 20000000; echo; echo last", boxed=boxed)
    assert result.outcome == "passed"
    assert len(output) < 9 << 20
    assert "$ echo first" in output[:100]
    assert "bytes are left out here: more than 8 MiB" in output
    assert output.endswith("last\n")


def test_closed_output_does_not_end_it(folder: Path, boxed: bool) -> None:
    assert run(folder, "exec >&- 2>&-; : > written", boxed=boxed).result.outcome == "passed"
    assert (folder / "written").exists()


def test_a_line_that_hangs_and_ignores_sigterm_is_ended(folder: Path, boxed: bool) -> None:
    result, output = run(
        folder, "trap '' TERM INT HUP; echo on; while :; do sleep 60 || :; done", boxed=boxed, timeout_s=0.5
    )
    assert result == LinesResult("failed", "it did not end in 0.5 s")
    assert "on\n" in output


def test_a_daemon_does_not_outlive_it(folder: Path, boxed: bool) -> None:
    line = "setsid sh -c 'trap \"\" TERM HUP; echo $$ > pid; while :; do date +%N > alive; done' & until [ -s alive ]; do :; done"
    assert run(folder, line, boxed=boxed).result.outcome == "passed"
    before = (folder / "alive").stat().st_mtime_ns
    assert (folder / "alive").stat().st_mtime_ns == before
    if not boxed:
        assert not Path(f"/proc/{(folder / 'pid').read_text().strip()}").exists()


def test_memory_is_limited(folder: Path, boxed: bool) -> None:
    line = f"{sys.executable} -c 'bytearray(1 << 30)'"
    result, output = run(folder, line, boxed=boxed, limits=LimitsConfig(memory_mb=512))
    assert result.outcome == "failed"
    assert "MemoryError" in output


def test_a_reaper_that_is_killed_is_no_failure_of_the_line(folder: Path, boxed: bool) -> None:
    with (
        open(folder.parent / "log", "wb") as log,
        start_lines(["echo $PPID > ppid; sleep 60"], folder, folder.with_name("home"), boxed=boxed, network=False, log=log)
        as running,
    ):  # fmt: skip
        until((folder / "ppid").exists)
        os.kill(reaper_of(folder), signal.SIGKILL)
        assert running.wait().outcome == "failed_to_run"


def reaper_of(folder: Path) -> int:
    """The reaper above the process whose words name `folder` or whose folder it is."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
            if b"echo $PPID > ppid" in words and os.readlink(path / "cwd") == str(folder):
                parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if b"reaper.py" in Path(f"/proc/{parent}/cmdline").read_bytes():
                    return parent
        except OSError:
            continue
    raise AssertionError("there is no reaper")


def test_a_missing_shell_is_no_failure_of_the_line(folder: Path, boxed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    result = run(folder, "true", boxed=boxed).result
    assert result == LinesResult("failed_to_run", "its box or shell did not start (exit status 127)")


@needs_box
def test_only_the_folder_and_home_can_be_written_in_the_box(folder: Path) -> None:
    hive, objects = folder.parent, folder.parent.parent / "objects"
    objects.mkdir()
    (objects / "pack").write_text("objects\n")
    lines = (
        f"cat {objects}/pack",
        f"! cat {hive}/secret",
        f"! echo x > {objects}/pack",
        "! echo x > /usr/bin/x",
        f"! ls {Path.home()}/.ssh",
        f"echo x > {hive}/secret || :",
        "echo x > ../made || :",
        "echo x > here; echo x > ~/here; echo x > /tmp/x",
    )
    assert run(folder, *lines, boxed=True, readable=(objects,)).result == LinesResult("passed")
    assert (hive / "secret").read_text() == "the hive's\n"
    assert sorted(os.listdir(hive)) == ["home", "log", "secret", "tree"]
    assert (objects / "pack").read_text() == "objects\n"
    assert not Path("/usr/bin/x").exists()


@needs_box
def test_the_network_is_closed_unless_it_is_open(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        line = f'{sys.executable} -c "{connect}"'
        assert run(folder, line, boxed=True).result.outcome == "failed"
        assert run(folder, line, boxed=True, network=True).result.outcome == "passed"


@needs_box
def test_a_file_is_limited_in_the_box(folder: Path) -> None:
    assert run(folder, "truncate -s 3G big; rm big", boxed=True).result.outcome == "passed"
    assert run(folder, "truncate -s 5G big", boxed=True).result.outcome == "failed"


@needs_box
def test_lines_that_kill_the_shell_above_them_have_failed(folder: Path) -> None:
    result = run(folder, "kill -9 $PPID; sleep 1", boxed=True).result
    assert result == LinesResult("failed", "it killed its own shell by signal 9")
