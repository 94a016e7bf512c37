"""The measuring of retrieval runs from end to end: nothing else imports it, so that what it leans on could go unnoticed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.retrieval import __main__ as retrieval
from benchmarks.retrieval import documentation, hivemind_system
from hivemind.embedding import HashingEmbedder

SAID = {
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [
        {"dia_id": "D1:1", "speaker": "Ann", "text": "How was your weekend?"},
        {"dia_id": "D1:2", "speaker": "Bob", "text": "I ran a charity race for the hospital."},
        {"dia_id": "D1:3", "speaker": "Ann", "text": "Wonderful!"},
    ],
}
ASKED = [{"question": "When did Bob run a charity race?", "evidence": ["D1:2"], "category": 2, "answer": "in May"}]


def test_the_table_of_the_docs_is_printed_with_a_row_for_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    conversations = tmp_path / "toy.json"
    conversations.write_text(json.dumps([{"sample_id": "toy", "conversation": SAID, "qa": ASKED}]))
    monkeypatch.setattr(hivemind_system, "_embedder", HashingEmbedder)
    monkeypatch.setattr(sys, "argv", ["retrieval", str(conversations)])
    retrieval.main()
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == 6 + len(retrieval.WITHOUT)
    assert rows[0].startswith('| BM25, "Speaker: text" | 100.0 | 100.0 | 100.0 | 100.0 | 100.0 |')
    assert all("| 100/100 |" in row for row in rows)


def test_a_selection_keeps_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hivemind_system, "_embedder", HashingEmbedder)
    system = hivemind_system.System()
    system.index([(one["dia_id"], one["text"], one["speaker"], "2023-05-08T13:56") for one in SAID["session_1"]])
    assert system.search("charity race", 1) == ["D1:2"]
    assert system.select("charity race", 1) == []
    assert system.select("charity race", 1_000)[0] == "D1:2"


def test_the_questions_over_documentation_are_asked_in_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in ("handbook/pages/leave.md", "redis/commands/get.md", "redis/docs/locks.md", "scrapy/docs/faq.rst"):
        path = tmp_path / "trees" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("A lock ends after ninety days.\n\nIt is renewed by its holder.\n")
    monkeypatch.setattr(documentation, "open_embedder", lambda _: HashingEmbedder())
    monkeypatch.setattr(documentation, "_SAMPLES", 40)
    monkeypatch.setattr(sys, "argv", ["retrieval", "documentation", str(tmp_path / "trees")])
    retrieval.main()
    printed = capsys.readouterr().out
    assert printed.count("| hivemind, quotes | 0.0 [0, 0] | 0.0 [0, 0] |") == 1, "of the half that was asked for alone"
    assert "| redis | 2 | 2 |" in printed


def test_a_quote_is_right_if_it_has_the_words_that_answer_in_the_file_where_they_stand() -> None:
    [question] = [one for one in documentation.questions() if one.text.startswith('What does "use or lose" mean')]
    [(file, many, _)] = question.answers
    assert question.is_right_file(file)
    assert not question.is_answered_by(file, "some other words " * many)
