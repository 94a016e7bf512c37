"""`hivemind agent add` and `try` with a coding agent."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hivemind import Hive
from tests.agent.test_program import PROFILE
from tests.cli.conftest import Command
from tests.program import Program, cold
from tests.program import run as run_program
from tests.waiting import until


def test_a_coding_agent_is_added_with_its_version_and_tried_by_hand(
    hive: Path, run: Command, monkeypatch: pytest.MonkeyPatch
):
    (hive / "agents" / "profiles").mkdir()
    (hive / "agents" / "profiles" / "fake.yaml").write_text(PROFILE)
    (hive / ".hive").mkdir(exist_ok=True)
    keyless = run("agent", "add", "keyless", "--mind", "agent:fake")
    assert (keyless.status, "It cannot start yet: " in keyless.out) == (0, True)
    assert keyless.out.endswith("has no key; set FAKE_KEY\n"), "it has no login"
    assert run("agent", "add", "typo", "--mind", "agent:fafe").status == 2
    monkeypatch.setenv("FAKE_KEY", "its-own-key-1234")
    added = run("agent", "add", "coder", "--mind", "agent:fake")
    assert "(Python 3" in added.out
    head, answer = run("agent", "try", "coder", "!say Hello.\n").out.split("\n\n")
    assert answer == "Hello.\n"
    for words in ("version:  Python 3", "protocol: its own lines", "box:      ", "cost:     1 turn, 110 tokens, "):
        assert words in head
    assert run("agent", "try", "analyst", "x").status == 2
    empty = run("agent", "try", "coder", "Nothing.\n")
    assert (empty.status, empty.out.endswith("\n\n(The answer is empty.)\n")) == (1, True)


def test_a_try_says_which_calls_were_refused(hive: Path, run: Command):
    command = [sys.executable, str(Path(__file__).parents[1] / "coding" / "acp_agent.py")]
    (hive / "agents" / "coder.yaml").write_text(json.dumps({"mind": {"acp": command}, "sandbox": "none"}))
    call = {"toolCallId": "c1", "kind": "execute", "title": "Run make", "rawInput": {"command": "make check"}}
    order = {"toolCall": call, "options": [{"optionId": "no", "kind": "reject_once", "name": "No"}]}
    tried = run("agent", "try", "coder", f"!ask {json.dumps(order)}\n!say Well.\n")
    assert tried.status == 0
    assert "\nrefused:  make check\n" in tried.out


@pytest.mark.parametrize(
    ("mind", "value"),
    [
        ("command: [./think, --fast]", {"command": ["./think", "--fast"]}),
        ("{command: ./think}", {"command": "./think"}),
        ("command: ./think", {"command": "./think"}),
        ("command:./think", "command:./think"),
    ],
)
def test_a_mind_is_read_as_in_the_agents_file(hive: Path, run: Command, mind: str, value: object):
    (hive / "think").write_text("#!/bin/sh\n")
    (hive / "think").chmod(0o755)
    assert run("agent", "add", "thinker", "--mind", mind).status == 0
    assert Hive.open(hive).agents["thinker"].mind == value


def test_a_try_shows_at_once_what_the_program_reports_and_ends_at_its_bound(
    hive: Path, run: Command, monkeypatch: pytest.MonkeyPatch
):
    (hive / "agents" / "profiles").mkdir()
    (hive / "agents" / "profiles" / "fake.yaml").write_text(
        f"{PROFILE}  - {{when: {{type: retry}}, problem: reason}}\n"
    )
    (hive / "agents" / "coder.yaml").write_text("mind: {agent: fake}\n")
    monkeypatch.setenv("FAKE_KEY", "its-own-key-1234")
    prompt = '!print {"type": "retry", "reason": "overloaded"}\n!hang\n'
    tried = Program(["--hive", str(hive), "agent", "try", "coder", prompt], stderr=subprocess.PIPE, text=True)
    assert tried.stderr is not None
    with tried.stderr as errors:
        assert errors.readline().endswith(", at most 120 s\n")
        assert errors.readline() == "hivemind: fake: overloaded\n", "while it hangs"
        tried.terminate()
    assert tried.wait() == 130
    bounded = run("agent", "try", "coder", "!hang\n", "--timeout", "0.1")
    assert (bounded.status, bounded.err.splitlines()[-1]) == (1, "hivemind: fake gave no answer in 0.1 s")


def test_a_try_says_at_a_terminal_what_it_waits_for(hive: Path, monkeypatch: pytest.MonkeyPatch):
    (hive / "agents" / "profiles").mkdir()
    (hive / "agents" / "profiles" / "fake.yaml").write_text(PROFILE)
    (hive / "agents" / "coder.yaml").write_text("mind: {agent: fake}\n")
    monkeypatch.setenv("FAKE_KEY", "its-own-key-1234")
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    try:
        tried = run_program(
            ["agent", "try", "coder", "!say Hello.\n"], start=cold, stdout=theirs, stderr=theirs, check=True
        )
    finally:
        os.close(theirs)
    said = b""
    with os.fdopen(ours, "rb", buffering=0) as screen, suppress(OSError):  # EIO after the last of several parts
        while part := screen.read(65_536):
            said += part
    assert tried.returncode == 0
    assert b"waits for " in said
    assert said.endswith(b"Hello.\r\n")


def test_a_try_that_is_told_to_end_leaves_nothing_in_the_hive(hive: Path, monkeypatch: pytest.MonkeyPatch):
    (hive / "agents" / "profiles").mkdir()
    (hive / "agents" / "profiles" / "fake.yaml").write_text(PROFILE)
    (hive / "agents" / "coder.yaml").write_text("mind: {agent: fake}\n")
    monkeypatch.setenv("FAKE_KEY", "its-own-key-1234")
    tried = Program(["--hive", str(hive), "agent", "try", "coder", "!hang\n"])
    until(lambda: list((hive / ".hive").glob("prompt-*/home/prompts")))
    tried.terminate()
    assert tried.wait() == 130
    assert not list((hive / ".hive").glob("prompt-*"))


def test_a_hive_for_a_repository_has_a_lead_two_coders_and_a_reviewer_by_the_programs_of_this_machine(
    tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch
):
    programs, repository = tmp_path / "bin", tmp_path / "app"
    for name in ("codex", "opencode", "gemini"):
        programs.mkdir(exist_ok=True)
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    git = shutil.which("git")
    assert git is not None
    (programs / "git").symlink_to(git)
    repository.mkdir()
    for name in ("ANTHROPIC_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "k")  # of Codex and OpenCode, and not of Gemini CLI
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    refused = run("init", "--for", "git", os.fspath(repository)).err
    assert "is installed (not found on PATH)" in refused
    [page] = re.findall(r"by --mind \(see (\S+), Minds\)", refused)
    assert "\n## Minds\n" in Path(page).read_text()
    monkeypatch.setenv("PATH", os.fspath(programs))
    assert "cannot have worktrees" in run("init", "--for", "git", os.fspath(repository)).err
    subprocess.run(["git", "init", "-q", repository], check=True)
    if os.geteuid() == 0:
        os.chown(repository, 1, 1)
        foreign = run("init", "--for", "git", os.fspath(repository)).err
        assert "dubious ownership" in foreign
        assert "safe.directory" in foreign
        assert "git init" not in foreign
        os.chown(repository, 0, 0)
    assert "has no commit yet" in run("init", "--for", "git", os.fspath(repository)).err
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", repository, *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    made = json.loads(run("init", "--for", "git", os.fspath(repository), "--json").out)
    root = tmp_path / "app-hive"
    assert made == {
        "hive": str(root), "repository": str(repository),
        "agents": {"coder-1": "codex", "coder-2": "opencode", "lead": "codex", "reviewer": "codex"},
    }  # fmt: skip
    assert "  - path: ../app\n    worktree: true" in (root / "hive.yaml").read_text()
    assert (root / "rom" / "lead" / "lead.md").is_file()
    assert run("--hive", os.fspath(root), "doctor").status == 0
    assert "there is a hive already" in run("init", "--for", "git", os.fspath(repository)).err
    assert "a second folder" in run("init", os.fspath(repository), "other").err
