"""Selection: the seed's rules, and that the kept ranking gives what a full computation gives (spec 2, *Score, select*)."""

from __future__ import annotations

import os
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
    os.chmod(path, 0)  # noqa: PTH101
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


def test_lines_are_estimated_by_their_number() -> None:
    whole = Weigher(len).tokens(FileMemoryBlock(location=__file__))
    part = Weigher(len).tokens(FileMemoryBlock(location=__file__, start_line=1, end_line=3))
    assert part < whole


PRIORITIES = st.sampled_from([Priority.HIGH, Priority.MEDIUM, Priority.MEDIUM, Priority.LOW])
CONFIDENCES = st.one_of(st.sampled_from([0.0, 0.2, 0.8, 1.0]), st.floats(0, 1, allow_subnormal=True))
AGES = st.one_of(st.sampled_from([0, 1, 3600, -60]), st.floats(-7_200, 1e6))
SIZES = st.one_of(st.sampled_from([0, 100, 1_000]), st.integers(0, 6_000))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), PRIORITIES, CONFIDENCES, AGES, SIZES, st.booleans()),
        st.tuples(st.just("remove"), st.integers(0, 999)),
        st.tuples(st.just("confidence"), st.integers(0, 999), CONFIDENCES),
        st.tuples(st.just("timestamp"), st.integers(0, 999), AGES),
        st.tuples(st.just("priority"), st.integers(0, 999), PRIORITIES),
        st.tuples(st.just("recent"), st.sets(st.integers(0, 30), max_size=3)),
        st.tuples(st.just("keywords"), st.sets(st.sampled_from(["even", "odd", "block"]))),
        st.tuples(st.just("select"), st.sampled_from([600, 3_000, 20_000, 200_000]), st.sampled_from([0, 0.5, 60, 9_000, -9_000])),
    ),
    min_size=1,
    max_size=60,
)  # fmt: skip


class _Machine:
    """A manager whose blocks have given sizes, worked on step by step."""

    def __init__(self, scored: bool, load: int) -> None:
        self.now = NOW
        self.scorer = RelevanceScorer() if scored else None
        self.manager = WorkingMemoryManager()
        self.selector = MemorySelector(len, self.scorer)
        self.number = 0

    def step(self, name: str, *what: Any) -> None:
        blocks = list(self.manager.symbolic_memory)
        if name == "add":
            self.add(*what)
        elif name == "recent" and self.scorer is not None:
            self.scorer.recent_files = {f"/nowhere/{at}" for at in what[0]}
        elif name == "keywords" and self.scorer is not None:
            self.scorer.task_keywords = what[0]
        elif name == "select":
            self.now += timedelta(seconds=what[1])
            self.check(what[0])
        elif blocks and name == "remove":
            self.manager.remove_memory(blocks[what[0] % len(blocks)].id)
        elif blocks and name in ("confidence", "priority"):
            setattr(blocks[what[0] % len(blocks)], name, what[1])
        elif blocks and name == "timestamp":
            blocks[what[0] % len(blocks)].timestamp = self.now - timedelta(seconds=what[1])

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
    monkeypatch.setattr(order, "WORN_AFTER", 1.0)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scored=st.booleans(), steps=STEPS)
def test_the_kept_ranking_selects_what_a_full_computation_selects(
    small_chunks: None, scored: bool, steps: list[tuple[Any, ...]]
) -> None:
    machine = _Machine(scored, 3)
    for step in steps:
        machine.step(*step)
    machine.step("select", 3_000, 3_600)


def test_a_large_memory_selects_the_same_over_hours_and_opens_few_blocks() -> None:
    machine = _Machine(True, 3)
    for at in range(4_000):
        machine.add(Priority.MEDIUM, (at * 37 % 101) / 100, (at * 7919) % 400_000, 50 + at * 13 % 400, bool(at % 3))
    asked: list[MemoryBlock] = []
    for at in range(12):
        machine.step("select", 20_000, 600)
        machine.step("confidence", at * 331, 0.97)
    estimate = Weigher.tokens

    def count(self: Weigher, block: MemoryBlock) -> int:
        asked.append(block)
        return estimate(self, block)

    Weigher.tokens = count  # type: ignore[method-assign]
    try:
        machine.selector.select(machine.manager.symbolic_memory, 20_000, now=machine.now)
    finally:
        Weigher.tokens = estimate  # type: ignore[method-assign]
    assert len(asked) <= 1  # the one that changed since
