"""One turn: score, select, build, as the agent's cycle calls it."""

from __future__ import annotations

import json
from pathlib import Path

from hivemind.memory import (
    ContentLoader,
    FileMemoryBlock,
    MemoryCycle,
    RelevanceScorer,
    TaskMemoryBlock,
    WorkingMemoryManager,
    count_tokens,
)


def test_a_turn_stays_within_its_budget_with_capsule_and_reserve_and_loads_what_it_selects(tmp_path: Path) -> None:
    manager = WorkingMemoryManager(max_tokens=6_000)
    (tmp_path / "rom.md").write_text("Rules.")
    manager.add_memory(FileMemoryBlock.rom("rom.md"))
    manager.add_memory(TaskMemoryBlock(task_id="T", description="Do it"))
    for at in range(200):
        (tmp_path / f"{at}.md").write_text(f"note {at} " * 60)
        manager.add_memory(FileMemoryBlock(location=f"{at}.md", confidence=at / 200))
    scorer = RelevanceScorer()
    cycle = MemoryCycle(manager, ContentLoader(tmp_path), scorer=scorer)
    capsule = {"id": "capsule", "content": "where you are", "confidence": 1.0, "priority": "critical", "metadata": {}}
    turn = cycle.run(reserved=1_000, first=[capsule])
    assert turn.context[0] == capsule
    assert [entry["id"] for entry in turn.context[1:3]] == ["rom.md", "task:T"]
    assert turn.context[3]["id"] == "199.md"
    assert count_tokens(json.dumps(turn.context)) <= 5_000
    assert turn.loads <= len(turn.selection.blocks) + len(turn.selection.smaller)
    assert manager.context_memory == turn.context
    before = manager.context_memory
    for _ in range(3):  # exact counts take the place of estimates
        turn = cycle.run(reserved=1_000, first=[capsule])
    assert cycle.run(reserved=1_000, first=[capsule]).loads == 0
    scorer.recent_files = {"60.md"}
    manager.update_confidence("60.md", 1.0)
    turn = cycle.run(reserved=1_000, first=[capsule])
    assert turn.context[3]["id"] == "60.md"
    assert "60.md" in manager.diff(before).entered
