"""Scores, and the model that may be learned (spec 2, *Score, select*)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hivemind import UserError
from hivemind.errors import UnknownVersion
from hivemind.memory import (
    FileMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    RelevanceModel,
    RelevanceScorer,
    citation_record,
)

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


def _records(scorer: RelevanceScorer) -> list[dict[str, object]]:
    blocks: list[MemoryBlock] = [FileMemoryBlock(location=f"f{at}") for at in range(3)]
    blocks += [KnowledgeMemoryBlock(topic="t", location=f"k{at}", relevance_score=at / 4) for at in range(4)]
    return [citation_record(blocks, ["knowledge:k2", "knowledge:k3"], scorer) for _ in range(3)]


def test_a_learned_model_prefers_what_is_cited_and_is_the_same_each_time(tmp_path: Path) -> None:
    scorer = RelevanceScorer()
    model = RelevanceModel.learn(_records(scorer))
    assert model.weights == RelevanceModel.learn(_records(scorer)).weights
    model.save(tmp_path / "model.json")
    loaded = RelevanceModel.load(tmp_path / "model.json")
    assert loaded is not None
    assert loaded.weights == model.weights
    learned = RelevanceScorer(loaded)
    cited = KnowledgeMemoryBlock(topic="t", location="k", relevance_score=0.5, confidence=0.5, timestamp=NOW)
    other = FileMemoryBlock(location="f", confidence=0.5, timestamp=NOW)
    assert learned.score_memory(cited, NOW) > 0.5 > learned.score_memory(other, NOW)
    assert RelevanceModel().factor(other, scorer) == 1.0


def test_a_model_of_nothing_or_of_another_version_is_refused(tmp_path: Path) -> None:
    assert RelevanceModel.load(tmp_path / "none.json") is None
    with pytest.raises(UserError, match="nothing to learn"):
        RelevanceModel.learn([])
    path = tmp_path / "model.json"
    path.write_text('{"kind":"relevance-model","version":9,"weights":{}}')
    with pytest.raises(UnknownVersion):
        RelevanceModel.load(path)
    path.write_text('{"kind":"relevance-model","version":1,"weights":{"bias":"much"}}')
    with pytest.raises(UserError, match="no numbers"):
        RelevanceModel.load(path)
