"""`hivemind agent add` and `try` with a coding agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.test_program import PROFILE
from tests.cli.conftest import Command


def test_a_coding_agent_is_added_with_its_version_and_tried_by_hand(
    hive: Path, run: Command, monkeypatch: pytest.MonkeyPatch
):
    (hive / "agents" / "profiles").mkdir()
    (hive / "agents" / "profiles" / "fake.yaml").write_text(PROFILE)
    (hive / ".hive").mkdir(exist_ok=True)
    refused = run("agent", "add", "coder", "--mind", "agent:fake")
    assert (refused.status, "has no key; set FAKE_KEY" in refused.err) == (2, True)
    monkeypatch.setenv("FAKE_KEY", "its-own-key-1234")
    added = run("agent", "add", "coder", "--mind", "agent:fake")
    assert "(Python 3" in added.out
    assert run("agent", "try", "coder", "!say Hello.\n").out == "Hello.\n"
    assert run("agent", "try", "analyst", "x").status == 2
