"""Selection: its rules, and that it equals a literal computation of them."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
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
)
from tests.memory import naive
from tests.sample import examples

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


def test_a_selection_explains_every_block() -> None:
    blocks = [status(f"{at}", Priority.HIGH, 1 - at / 10) for at in range(4)]
    selection = MemorySelector(hundred, RelevanceScorer()).select(blocks, 400, now=NOW)
    choices = {choice.id: choice for choice in selection}
    assert set(choices) == {block.id for block in blocks}
    assert (choices["status:0"].is_selected, choices["status:0"].tokens, choices["status:0"].score) == (True, 100, 1.0)
    out = selection.why("status:3")
    assert out is not None
    assert (out.is_selected, out.score) == (False, pytest.approx(0.7))
    assert out.reason == "HIGH: 300 tokens were used before, and 100 more would reach 80% of 400"
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
    selector = MemorySelector(len)
    first = selector.tokens(block)
    assert 1_000 <= first <= 1_200
    found = path.stat()
    block.exact_count = (77, len, found.st_size, found.st_mtime_ns)
    assert selector.tokens(block) == 77
    assert MemorySelector(hundred).tokens(block) != 77
    os.truncate(path, 8_000)
    assert selector.tokens(block) > first
    path.unlink()
    assert selector.tokens(block) == 77  # a loader with another root may see it


def test_lines_are_estimated_by_their_number() -> None:
    whole = MemorySelector(len).tokens(FileMemoryBlock(location=__file__))
    part = MemorySelector(len).tokens(FileMemoryBlock(location=__file__, start_line=1, end_line=3))
    assert part < whole


SIZES, CONFIDENCES, AGES = (
    st.sampled_from([0, 100, 2_000]),
    st.sampled_from([0.0, 0.2, 0.8, 1.0]),
    (0, 1, 3_600, -60, 50_000),
)


@st.composite
def blocks_of_given_sizes(draw: st.DrawFn) -> list[MemoryBlock]:
    """Files and knowledge that say what they cost; many weights, times and sizes are equal."""
    blocks: list[MemoryBlock] = []
    for at in range(draw(st.integers(0, 60))):
        fields: dict[str, Any] = {
            "priority": draw(st.sampled_from(list(Priority)[1:])),
            "confidence": draw(CONFIDENCES | st.floats(0, 1)),
            "timestamp": NOW - timedelta(seconds=draw(st.sampled_from(AGES) | st.integers(-7_200, 400_000))),
            "metadata": {"tokens": draw(SIZES | st.integers(0, 4_000))},
            "location": f"/nowhere/{at}",
        }
        topic = "odd block" if at % 2 else "even block"
        file = draw(st.booleans())
        blocks.append(FileMemoryBlock(**fields) if file else KnowledgeMemoryBlock(topic=topic, **fields))
    return blocks


@examples(80, 30)
@given(
    blocks=blocks_of_given_sizes(),
    scored=st.booleans(),
    recent=st.sets(st.integers(0, 60), max_size=3),
    words=st.sets(st.sampled_from(["even", "odd", "block"])),
    budget=st.sampled_from([600, 3_000, 20_000, 100_000]),
)
def test_the_selection_is_that_of_scoring_sorting_and_trying_everything(
    blocks: list[MemoryBlock], scored: bool, recent: set[int], words: set[str], budget: int
) -> None:
    scorer = RelevanceScorer() if scored else None
    if scorer is not None:
        scorer.recent_files, scorer.task_keywords = {f"/nowhere/{at}" for at in recent}, words
    selector = MemorySelector(len, scorer)
    full = naive.select(blocks, budget, selector.tokens, scorer, NOW)
    for source in (blocks, blocks[::-1]):
        selection = selector.select(source, budget, now=NOW)
        assert [block.id for block in selection.blocks] == full
        assert {choice.id for choice in selection} == {block.id for block in blocks}
