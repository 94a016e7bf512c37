"""Relevance scores of blocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hivemind.memory import FileMemoryBlock, KnowledgeMemoryBlock, RelevanceScorer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_score_is_confidence_times_recency() -> None:
    scorer = RelevanceScorer()
    block = FileMemoryBlock(location="a", confidence=0.8, timestamp=NOW)
    assert scorer.score_memory(block, NOW) == 0.8
    assert scorer.score_memory(block, NOW + HOUR) == pytest.approx(0.4)
    assert scorer.score_memory(block, NOW + 3 * HOUR) == pytest.approx(0.2)


def test_a_block_from_the_future_counts_as_new() -> None:
    assert RelevanceScorer().score_memory(FileMemoryBlock(location="a", timestamp=NOW + 9 * HOUR), NOW) == 1.0


def test_a_recent_file_counts_half_more_and_at_most_one() -> None:
    scorer = RelevanceScorer()
    scorer.recent_files = {"a"}
    assert scorer.score_memory(FileMemoryBlock(location="a", confidence=0.4, timestamp=NOW), NOW) == pytest.approx(0.6)
    assert scorer.score_memory(FileMemoryBlock(location="a", confidence=0.9, timestamp=NOW), NOW) == 1.0


def test_knowledge_counts_more_for_shared_words_and_by_its_relevance() -> None:
    scorer = RelevanceScorer()
    scorer.task_keywords = {"token", "budget", "x"}
    block = KnowledgeMemoryBlock(topic="Token budget rules", location="k", confidence=0.5, timestamp=NOW)
    assert scorer.score_memory(block, NOW) == pytest.approx(0.5 * 1.4)
    block.relevance_score = 0.0
    assert scorer.score_memory(block, NOW) == pytest.approx(0.5 * 1.4 * 0.5)
    parts = scorer.explain(block, NOW + HOUR)
    assert parts == pytest.approx({"confidence": 0.5, "keywords": 1.4, "relevance": 0.5, "recency": 0.5})


def test_a_model_gives_each_block_a_factor() -> None:
    scorer = RelevanceScorer(lambda block: 0.5 if block.id == "a" else 2.0)
    scores = [scorer.score_memory(FileMemoryBlock(location=n, confidence=0.4, timestamp=NOW), NOW) for n in "ab"]
    assert scores == pytest.approx([0.2, 0.8])
    assert scorer.explain(FileMemoryBlock(location="a"))["model"] == 0.5
