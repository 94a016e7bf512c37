"""Who may read and write what a hive's processes make: `access:` in hive.yaml says it, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivemind.mcp_server.http import load_token

TASK = """---
steps:
  - {title: run, run: "mkdir made; echo x > made/by-a-command"}
  - {title: ask, ask: "What keeps a sailing boat upright?"}
  - {title: tell, mail: {to: human, subject: Boats, body: It floats.}}
---
Boats.
"""
PERSONS = {"agents", "rom", "knowledge", "hive.yaml", ".gitignore"}
SECRETS = {"mcp.token"}


@pytest.fixture(params=[0, 0o077], ids=["umask 0", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def entries(umask: int, hive):
    """Runs a swarm that does all kinds of things; gives what was made since, by the path in the hive."""

    def run(**access: str) -> dict[str, os.stat_result]:
        hive.configure(settle_ms=0, **access)
        for name, raw in {"boats.md": TASK, "bad.md": "---\nnonsense: 1\n---\n"}.items():
            hive.drop(name, raw)
        hive.run("doctor", "--fix", status=None)
        before = {path for path in hive.root.rglob("*") if path.relative_to(hive.root).parts[0] in PERSONS}
        hive.run("up", "--detach")
        hive.wait(lambda: hive.task("boats") == "done" and hive.task("bad") == "failed", "the tasks' end")
        hive.run("down")
        hive.run("task", "add", "Another one", "--attach", str(hive.root / "knowledge/boats.md"))
        hive.run("memory", "remember", "Boats float.")
        hive.run("mail", "send", "--to", "analyst", "Ahoy")
        hive.run("doc", "find", "boats")
        load_token(hive.root / ".hive/agents/analyst")
        return {str(path.relative_to(hive.root)): path.lstat() for path in hive.root.rglob("*") if path not in before}

    return run


def shown(entries: dict[str, os.stat_result]) -> dict[str, str]:
    return {name: stat.filemode(one.st_mode) for name, one in entries.items()}


def is_folder(one: os.stat_result) -> bool:
    return stat.S_ISDIR(one.st_mode)


def persons(name: str) -> bool:
    """What a person dropped keeps the mode that it came with."""
    return Path(name).name in ("task.md", "bad.md", "started-0.log") or name.endswith("README.md")


def test_a_private_hive_shows_nothing_that_it_makes_to_others(entries) -> None:
    found = entries()
    assert any(name.endswith("by-a-command") for name in found)
    assert any(name.endswith("memory.db") for name in found)
    open_to_others = {name: one for name, one in found.items() if one.st_mode & 0o077 and not persons(name)}
    assert not shown(open_to_others)


def test_a_groups_hive_can_be_worked_in_by_the_whole_group_and_by_nobody_else(entries) -> None:
    found = entries(access="group")
    wrong = {
        name: one
        for name, one in found.items()
        if not persons(name)
        and stat.S_IMODE(one.st_mode)
        not in ({0o600} if Path(name).name in SECRETS else {0o2770} if is_folder(one) else {0o660, 0o770})
    }
    assert not shown(wrong)
