"""A person's harmless command, started in a folder that agents write into, runs nothing of theirs (issue 11, 21)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hivemind.config import LimitsConfig
from hivemind.tools.command import clean_environment, run_program
from tests.agent.conftest import Crew, using_tools

OWNED = "import pathlib, os; pathlib.Path(os.environ['OWNED']).touch()\n"


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    return tmp_path / "owned"


def ran(folder: Path, owned: Path, command: str, **environ: str) -> bool:
    """Whether anything of the folder was run by a command that is started there."""
    environment = clean_environment({**os.environ, **environ}, {"OWNED": str(owned)})
    done = run_program(
        command, folder=folder, output=folder.parent / "out", limits=LimitsConfig(), environment=environment
    )
    assert done.exit_status is not None, done
    return owned.exists()


@pytest.mark.parametrize(
    "name", ["json.py", "sitecustomize.py", "usercustomize.py", "json/__init__.py", "encodings.py"]
)
@pytest.mark.parametrize("command", ["-c 'import json'", "-m json.tool /dev/null", "-c 'import site, encodings'"])
def test_python_imports_nothing_from_there(tmp_path: Path, owned: Path, name: str, command: str) -> None:
    folder = tmp_path / "files"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text(OWNED)
    assert not ran(folder, owned, f"{sys.executable} {command}", PYTHONPATH=":.:lib")


def repository(folder: Path, program: Path, *words: str) -> None:
    subprocess.run(["git", "init", "-q", *words, folder], check=True)
    subprocess.run(["git", "-C", folder, "config", "core.fsmonitor", program], check=True)
    hooks = next(folder.rglob("hooks"))
    for name in ("post-index-change", "pre-commit", "post-checkout"):
        (hooks / name).write_text(f"#!/bin/sh\n{program}\n")
        (hooks / name).chmod(0o755)


@pytest.mark.parametrize("words", [["--bare"], []])
@pytest.mark.parametrize("command", ["git status", "git --no-pager log", "git add -A", "git diff"])
def test_git_runs_nothing_that_a_repository_there_names(
    tmp_path: Path, owned: Path, words: list[str], command: str
) -> None:
    folder, program = tmp_path / "files", tmp_path / "program"
    program.write_text('#!/bin/sh\ntouch "$OWNED"\n')
    program.chmod(0o755)
    repository(folder, program, *words)
    (folder / "a.txt").write_text("a\n")
    if words:
        subprocess.run(["git", "-C", folder, "config", "core.bare", "false"], check=True)
        subprocess.run(["git", "-C", folder, "config", "core.worktree", "."], check=True)
    assert not ran(folder, owned, command)


def test_programs_are_not_looked_for_there(tmp_path: Path, owned: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("ls", "sh", "git"):
        (folder / name).write_text('#!/bin/sh\ntouch "$OWNED"\n')
        (folder / name).chmod(0o755)
    assert not ran(folder, owned, "ls; git --version", PATH=f".::files:{os.environ['PATH']}:")


def test_shells_and_loaders_read_nothing_that_the_environment_names(tmp_path: Path, owned: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "rc").write_text('touch "$OWNED"\n')
    assert not ran(folder, owned, "bash -c true; sh -c true", BASH_ENV="rc", ENV="rc", LD_PRELOAD="./x.so")


@pytest.mark.parametrize("where", ["its folder", "a worktree"])
def test_an_agent_that_may_run_nothing_runs_nothing_through_a_persons_step(crew: Crew, where: str) -> None:
    if where == "a worktree":
        app = crew.root.parent / "app"
        git = ["git", "-c", "user.name=A", "-c", "user.email=a@b"]
        for words in (["init", "-q", str(app)], ["-C", str(app), "commit", "-q", "--allow-empty", "-m", "begin"]):
            subprocess.run([*git, *words], check=True)
        crew.configure("roots: [{path: ../app, worktree: true, land: off}]\n")
    owned = crew.root.parent / "owned"
    script = f"open({str(owned)!r}, 'w')\n"
    crew.drop(f"---\nsteps: [{{title: x}}, {{run: '{sys.executable} -c \"import json\"; git status'}}]\n---\nx\n")
    agent = crew.start()

    def use(tool: str, **arguments: object) -> dict[str, Any]:
        agent.scheduler.sense()
        return using_tools(agent)(tool, **arguments)

    for name in ("json.py", "sitecustomize.py", "HEAD", "config", "objects/x", "refs/x", ".git/config", "git", "sh"):
        use("write_file", path=name, text=script)
    use("finish_step")
    assert use("run_command")["result"]["command"].startswith(sys.executable)
    assert not owned.exists()
