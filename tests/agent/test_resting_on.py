"""What the journal says of a step rests on the task's graph: that is on the disk first (durability: full)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.presence.identity import journal_start

TASK = "# Look\n\n- [ ] ask: How deep is the harbour?\n- [ ] ask: Who paints the gate?\n"


def test_a_step_is_done_only_after_what_was_found_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hive = Hive.init(tmp_path / "hive")
    for path in [*hive.layout.knowledge.rglob("*.md"), *hive.layout.inbox.iterdir()]:
        path.unlink()
    (hive.layout.root / "hive.yaml").write_text("durability: full\nsettle_ms: 0\n")
    hive = Hive.open(hive.layout.root)
    (hive.layout.inbox / "look.md").write_text(TASK)
    real, on_disk, checked = os.fdatasync, 0, 0
    graph = hive.layout.active / "look" / "graph.jsonl"

    def spy(file: int) -> None:
        nonlocal on_disk, checked
        real(file)
        if graph.exists() and os.path.samestat(os.fstat(file), os.stat(graph)):
            on_disk = os.fstat(file).st_size
        elif graph.exists():
            last = Path(hive.journal.path).read_bytes().splitlines()[-1]
            if b'"step.done"' in last or b'"step.verified"' in last:
                found = [line for line in graph.read_bytes()[on_disk:].splitlines() if b'"op":"node"' in line]
                assert found == []
                checked += 1

    monkeypatch.setattr("os.fdatasync", spy)
    agent = Agent(hive, "analyst", journal_start(hive.journal, "analyst", os.getpid()))
    while not (hive.layout.done / "look").exists():
        assert agent.cycle()
    agent.close()
    assert checked >= 2
