"""Selection: the seed's rules, and that the kept ranking gives what a full computation gives (spec 2, *Score, select*)."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind.memory import (
    CriticalOverBudget,
    FileMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    MemorySelector,
    Priority,
    RelevanceScorer,
    StatusMemoryBlock,
    WorkingMemoryManager,
    order,
)
from hivemind.memory.weighing import Weigher
from tests.memory import naive

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def status(name: str, priority: Priority, confidence: float = 1.0, **fields: Any) -> StatusMemoryBlock:
    given: dict[str, Any] = {"timestamp": NOW, **fields}
    return StatusMemoryBlock(status_type=name, value="", priority=priority, confidence=confidence, **given)


def hundred(text: str) -> int:
    return 100


def test_high_fills_to_80_percent_medium_to_90_and_low_to_95_never_reaching_them() -> None:
    blocks = [status(f"{p.name}{at:02}", p) for p in (Priority.LOW, Priority.MEDIUM, Priority.HIGH) for at in range(30)]
    selected = MemorySelector(hundred).select_memories(blocks, 2_000)
    assert [block.priority for block in selected].count(Priority.HIGH) == 15
    assert [block.priority for block in selected].count(Priority.MEDIUM) == 2
    assert [block.priority for block in selected].count(Priority.LOW) == 1
    assert [block.priority.value for block in selected] == sorted(block.priority.value for block in selected)


def test_without_a_scorer_the_order_is_confidence_then_newest_then_id() -> None:
    blocks = [
        status("d", Priority.HIGH, 0.5),
        status("c", Priority.HIGH, 0.5),
        status("b", Priority.HIGH, 0.5, timestamp=NOW + timedelta(seconds=1)),
        status("a", Priority.HIGH, 0.9, timestamp=NOW - timedelta(days=9)),
    ]
    expected = ["status:a", "status:b", "status:c", "status:d"]
    for given_ in (blocks, blocks[::-1]):
        assert [block.id for block in MemorySelector(hundred).select_memories(given_, 10_000)] == expected


def test_a_block_that_does_not_fit_is_passed_over_and_smaller_ones_go_in() -> None:
    blocks = [
        StatusMemoryBlock(status_type=name, value="x" * size, confidence=confidence, timestamp=NOW)
        for name, size, confidence in (("large", 50_000, 1.0), ("small", 10, 0.5))
    ]
    selection = MemorySelector(len).select(blocks, 10_000, now=NOW)
    assert [block.id for block in selection.blocks] == ["status:small"]
    assert [block.id for block in selection.smaller] == ["status:large"]


def test_critical_is_always_in_and_too_much_of_it_is_an_error_that_lists_it_by_size() -> None:
    blocks = [status(name, Priority.CRITICAL) for name in ("a", "b", "c")]
    assert len(MemorySelector(hundred).select_memories(blocks, 300)) == 3
    with pytest.raises(CriticalOverBudget, match="300 tokens") as caught:
        MemorySelector(hundred).select_memories(blocks, 299)
    assert caught.value.sizes == [("status:a", 100), ("status:b", 100), ("status:c", 100)]
    rising = [StatusMemoryBlock(status_type=f"s{n}", value="x" * n, priority=Priority.CRITICAL) for n in (10, 900, 300)]
    with pytest.raises(CriticalOverBudget) as caught:
        MemorySelector(len).select_memories(rising, 500)
    assert [name for name, _ in caught.value.sizes] == ["status:s900", "status:s300", "status:s10"]


def test_what_is_reserved_counts_as_used() -> None:
    blocks = [status(f"{at:02}", Priority.HIGH) for at in range(30)]
    assert len(MemorySelector(hundred).select(blocks, 2_000, reserved=1_000).blocks) == 5


def test_a_selection_explains_every_block() -> None:
    blocks = [status(f"{at}", Priority.HIGH, 1 - at / 10) for at in range(4)]
    selection = MemorySelector(hundred, RelevanceScorer()).select(blocks, 400, now=NOW)
    choices = {choice.id: choice for choice in selection}
    assert set(choices) == {block.id for block in blocks}
    assert (choices["status:0"].taken, choices["status:0"].tokens, choices["status:0"].score) == (True, 100, 1.0)
    out = selection.why("status:3")
    assert out is not None
    assert (out.taken, out.score) == (False, pytest.approx(0.7))
    assert out.reason == "HIGH: 300 tokens used before it and its 100 are not below 80% of 400"
    assert selection.why("nothing") is None
    assert (selection.used, selection.budget) == (300, 400)


def test_two_blocks_of_one_id_in_a_plain_list_are_one() -> None:
    old, new = status("a", Priority.HIGH, 0.5), status("a", Priority.HIGH, 0.6)
    assert MemorySelector(hundred).select_memories([old, new], 10_000) == [new]


def test_estimates_read_no_file_and_take_the_exact_count_only_while_the_file_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * 4_000)
    os.chmod(path, 0)
    block = FileMemoryBlock(location=str(path))
    weigher = Weigher(len)
    first = weigher.tokens(block)
    assert 1_000 <= first <= 1_200
    found = path.stat()
    block.counted = (77, len, found.st_size, found.st_mtime_ns)
    assert weigher.tokens(block) == 77
    assert Weigher(hundred).tokens(block) != 77
    os.truncate(path, 8_000)
    assert weigher.tokens(block) > first
    path.unlink()
    assert weigher.tokens(block) == 77  # a loader with another root may see it


def test_lines_are_estimated_by_their_number() -> None:
    whole = Weigher(len).tokens(FileMemoryBlock(location=__file__))
    part = Weigher(len).tokens(FileMemoryBlock(location=__file__, start_line=1, end_line=3))
    assert part < whole


PRIORITIES = (Priority.HIGH, Priority.MEDIUM, Priority.MEDIUM, Priority.LOW)


class _Machine:
    """A manager whose blocks have given sizes, worked on step by step. `ties`: many weights and times are equal."""

    def __init__(self, *, scored: bool, ties: bool = False, chance: random.Random | None = None) -> None:
        self.now = NOW
        self.scorer = RelevanceScorer() if scored else None
        self.manager = WorkingMemoryManager()
        self.selector = MemorySelector(len, self.scorer)
        self.number = 0
        self.ties = ties
        self.chance = chance or random.Random(0)

    def confidence(self) -> float:
        return self.chance.choice([0.0, 0.2, 0.8, 1.0]) if self.ties else self.chance.random()

    def age(self) -> float:
        ages = [0, 1, 3_600, -60, 50_000]
        return self.chance.choice(ages) if self.ties else self.chance.uniform(-7_200, 400_000)

    def size(self) -> int:
        return self.chance.choice([0, 100, 2_000]) if self.ties else self.chance.randrange(4_000)

    def add_any(self) -> None:
        priority = self.chance.choice(PRIORITIES)
        self.add(priority, self.confidence(), self.age(), self.size(), self.chance.random() < 0.6)

    def change(self) -> None:
        """One change of any kind."""
        blocks = self.manager.symbolic_memory
        kind = self.chance.randrange(8 if blocks else 1)
        if kind < 2:
            self.add_any()
            return
        block = self.chance.choice(blocks)
        if kind == 2:
            self.manager.remove_memory(block.id)
        elif kind == 3:
            self.manager.update_confidence(block.id, self.confidence())
        elif kind == 4:
            block.timestamp = self.now - timedelta(seconds=self.age())
        elif kind == 5:
            block.priority = self.chance.choice(PRIORITIES)
        elif kind == 6:
            block.metadata["tokens"] = self.size()
            self.manager.touch(block.id)
        elif self.scorer is not None:
            self.scorer.recent_files = {f"/nowhere/{self.chance.randrange(1, 40)}" for _ in range(3)}
            self.scorer.task_keywords = set(self.chance.sample(["even", "odd", "block"], self.chance.randrange(4)))

    def add(self, priority: Priority, confidence: float, age: float, size: int, file: bool) -> None:
        self.number += 1
        fields: dict[str, Any] = {
            "priority": priority,
            "confidence": confidence,
            "timestamp": self.now - timedelta(seconds=age),
            "metadata": {"tokens": size},
            "location": f"/nowhere/{self.number}",
        }
        topic = f"{'odd' if self.number % 2 else 'even'} block"
        self.manager.add_memory(FileMemoryBlock(**fields) if file else KnowledgeMemoryBlock(topic=topic, **fields))

    def check(self, budget: int) -> None:
        weigher = Weigher(len)
        full = naive.select(self.manager.symbolic_memory, budget, weigher.tokens, self.scorer, self.now)
        for source in (self.manager.symbolic_memory, list(self.manager.symbolic_memory)):
            selection = self.selector.select(source, budget, now=self.now)
            assert [block.id for block in selection.blocks] == full


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "SMALLEST", 3)
    monkeypatch.setattr(order, "LARGEST", 3)
    monkeypatch.setattr(order, "WORN_AFTER", 1_000.0)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    scored=st.booleans(),
    ties=st.booleans(),
    seed=st.integers(0, 2**32),
    number=st.integers(0, 150),
    pauses=st.lists(st.sampled_from([0.0, 0.001, 1, 60, 5_000, 50_000, -500, -50_000]), min_size=1, max_size=20),
)
def test_the_kept_ranking_selects_what_a_full_computation_selects(
    small_chunks: None, scored: bool, ties: bool, seed: int, number: int, pauses: list[float]
) -> None:
    machine = _Machine(scored=scored, ties=ties, chance=random.Random(seed))
    for _ in range(number):
        machine.add_any()
    for pause in pauses:
        machine.now += timedelta(seconds=pause)
        for _ in range(machine.chance.randrange(5)):
            machine.change()
        machine.check(machine.chance.choice([600, 3_000, 20_000, 100_000]))


def test_a_large_memory_selects_the_same_over_hours_and_weighs_only_what_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = _Machine(scored=True)
    for at in range(4_000):
        age, size = (at * 7_919) % 400_000, 50 + at * 13 % 400
        machine.add(Priority.MEDIUM, (at * 37 % 101) / 100, age, size, bool(at % 3))
    for at in range(12):
        machine.now += timedelta(seconds=600)
        machine.check(20_000)
        machine.manager.update_confidence(machine.manager.symbolic_memory[at * 331].id, 0.97)
    asked: list[str] = []
    estimate = Weigher.tokens

    def count(weigher: Weigher, block: MemoryBlock) -> int:
        asked.append(block.id)
        return estimate(weigher, block)

    monkeypatch.setattr(Weigher, "tokens", count)
    machine.selector.select(machine.manager.symbolic_memory, 20_000, now=machine.now)
    assert len(asked) == 1
