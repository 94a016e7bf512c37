"""What a shell completes: commands and options as they are declared, names as the hive has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind import Hive
from tests.cli.conftest import Command


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("sta", ["status"]),
        ("graph b", ["branch"]),
        ("graph branch ", ["create", "list", "merge"]),
        ("--debug task sh", ["show"]),
        ("task show ", ["which-boats"]),
        ("task list --state ", ["active", "done", "failed", "inbox"]),
        ("task add --fi", ["--file"]),
        ("mail list r", ["researcher", "reviewer"]),
        ("mail list human --u", ["--unread"]),
        ("mail send --to h", ["human"]),
        ("agent run a", ["analyst"]),
        ("task transcript which-boats ", []),
        ("nothing known ", []),
    ],
)
def test_what_was_typed_is_completed(run: Command, hive: Path, typed: str, offered: list[str]) -> None:
    Hive.open(hive).tasks.add("Which boats?")
    ended = run("completion", "fish", "--", *typed.split(" "))
    assert (ended.status, ended.out.split()) == (0, offered)


def test_outside_of_a_hive_what_needs_none_is_completed(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HIVEMIND_HIVE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert run("completion", "bash", "--", "agent", "run", "").out == ""
    assert run("completion", "bash", "--", "agent", "r").out == "run\n"


def test_bash_completes_with_the_script_that_is_printed(hive: Path, tmp_path: Path) -> None:
    """The other shells' scripts ask the same question."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "hivemind"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m hivemind "$@"\n')
    program.chmod(0o755)
    asked = (
        "source <(hivemind completion bash); COMP_WORDS=(hivemind mail list re); COMP_CWORD=3; _hivemind;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "researcher\nreviewer\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells_ask_hivemind(run: Command, shell: str) -> None:
    assert f"hivemind completion {shell} -- " in run("completion", shell).out
