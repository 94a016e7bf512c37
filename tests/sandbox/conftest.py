from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hivemind.errors import UserError
from hivemind.reaped_command import ReapedCommand
from hivemind.sandbox import Hosts, ProgramBox, check_sandbox

CANARY = "the-persons-own-words"


@dataclass
class Person:
    """A person's home with a hive in it, in which the agent `ada` works on a task. `run` runs a program of hers in its box."""

    home: Path
    hive: Path = field(init=False)
    files: Path = field(init=False)
    work: Path = field(init=False)
    repository: Path = field(init=False)
    login: dict[Path, Path] = field(default_factory=dict)
    folders: dict[Path, bool | None] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hive, self.repository = self.home / "hive", self.home / "app"
        self.files = self.hive / ".hive/agents/ada/program"
        self.work = self.hive / "worktrees/ada/app"
        for path in (
            ".ssh/id_ed25519", ".bashrc", ".config/gh/hosts.yml", "app/secret.env", "app/.git/config", "hive/hive.yaml",
            "hive/.hive/journal", "hive/.hive/agents/ada/status.json", "hive/.hive/agents/bob/program/home/session",
            "hive/worktrees/bob/app/main.py", "hive/tasks/active/other/files/note", "other-hive/.hive/journal",
        ):  # fmt: skip
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_text(CANARY + "\n")
        for folder in (self.files / "home", self.work, self.home / "app/.git/hooks"):
            folder.mkdir(parents=True)
        (self.files / "attached.json").write_text("{}")

    def box(
        self, *program: str, network: tuple[str, ...] | str = (), environment: dict[str, str] | None = None
    ) -> ProgramBox:
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.files / "home"), **(environment or {})}
        return ProgramBox(
            program, variables, folder=self.work, home=self.files / "home", folders={**self.folders, self.files: False},
            files=self.arguments, login=self.login, commands=self.commands, socket=str(self.files / "network"),
            network="open" if network == "open" else Hosts.parse(network),
        )  # fmt: skip

    def start(self, box: ProgramBox) -> ReapedCommand:
        program = ReapedCommand(box.command, folder=self.work, environment=box.environment)
        program.call_at_end(box.close)
        return program

    def run(self, *program: str, **more: object) -> str:
        """Run a program to its end. Return its output."""
        box = self.box(*program, **more)  # type: ignore[arg-type]
        with self.start(box) as running:
            output = running.output.read().decode()
            assert running.wait(20) is not None
        self.refusals = box.refusals()
        return output

    def sh(self, script: str, **more: object) -> str:
        return self.run("/bin/sh", "-c", script, **more)

    def python(self, code: str, **more: object) -> str:
        return self.run(sys.executable, "-I", "-c", code, **more)


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    try:
        check_sandbox()
    except UserError as error:
        pytest.skip(str(error))
    with TemporaryDirectory(prefix="home-", dir="/var/tmp") as folder:
        home = Path(folder).resolve()
        monkeypatch.setenv("HOME", str(home))
        yield Person(home)


def processes_with(mark: str) -> list[str]:
    """The command lines of processes that have a mark in them."""
    stdout = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in stdout.splitlines() if mark in line and not line.startswith("ps ")]
