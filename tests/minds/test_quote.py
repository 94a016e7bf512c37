from __future__ import annotations

from types import SimpleNamespace

from hivemind.minds import Turn
from hivemind.minds.extractive import ExtractiveMind, quotes_for

Q = "what is a lease"


def entry(text, value=1.1, source="knowledge/a.md", **more):
    told = {"source": source, "answers": {Q: value}, "why": "has lease", **more}
    return {"id": f"{source}:{text[:5]}", "content": text, "metadata": told}


def passage(text, value=1.1, start=10, source="knowledge/a.md", **more):
    citation = {"path": source, "start_line": start, "end_line": start, "digest": "d" * 64, "text": text}
    return entry(text, value, source, citation=citation, **more)


def memory(text, value=1.1):
    return entry(text, value, f"memory:shared/{text[:4]}", remembered="2026-11-22T10:00:00+00:00")


def test_a_quote_has_the_place_that_came_with_it():
    [quote] = quotes_for(Q, [passage("A lease is a promise.", start=11)])
    assert quote.text == "A lease is a promise."
    assert quote.citation.place == "knowledge/a.md:11"


def test_what_was_not_found_for_this_question_or_could_not_be_read_is_left_out():
    found = [passage("best"), passage("", start=30), passage("part", start=40, form="excerpt")]
    found[0]["metadata"]["answers"] = {"another question": 2.0}
    assert quotes_for(Q, found) == []


def test_three_quotes_are_enough():
    many = [passage(f"text {at} of it", 1.1, at * 10) for at in range(1, 6)]
    assert len(quotes_for(Q, many)) == 3


def test_a_weak_passage_does_not_hide_a_better_memory():
    [quote, _] = quotes_for(Q, [passage("berths and boats", 0.8), memory("A lease ends.", 1.2)])
    assert (quote.text, quote.remembered) == ("A lease ends.", "2026-11-22")


def test_a_weak_passage_follows_one_that_is_only_likely_and_not_one_that_is_sure():
    weak = passage("berths and boats", 0.8, 20)
    for value, places in ((1.1, ["A lease ends.", "berths and boats"]), (1.4, ["A lease ends."])):
        quotes = quotes_for(Q, [passage("A lease ends.", value), weak, memory("weak words", 0.7)])
        assert [quote.text for quote in quotes] == places


def test_a_weak_passage_that_search_ranks_first_is_quoted_first():
    quotes = quotes_for(Q, [passage("A lease ends.", 0.9), passage("berths and boats", 1.1, 20)])
    assert [quote.text for quote in quotes] == ["A lease ends.", "berths and boats"]


def test_where_nothing_answers_the_nearest_is_there_as_weak():
    quotes = quotes_for(Q, [passage("berths and boats", 0.8)])
    assert [quote.is_weak for quote in quotes] == [True]


def test_what_another_task_decided_answers_as_a_memory_does():
    path = "tasks/done/berths/graph.jsonl node 3"
    noted = entry("We let the berths by the year.", 1.2, type="context", path=path, task="berths")
    del noted["metadata"]["source"]
    [quote, _] = quotes_for(Q, [passage("berths and boats", 0.8), noted])
    assert (quote.path, quote.remembered) == (path, "of task berths")


def test_a_weak_answer_claims_nothing_and_lists_the_nearest_places():
    todo = {"id": "s1", "kind": "ask", "argument": Q}
    focus = SimpleNamespace(kind="task", tool="finish_step", title=Q, text=Q, todo=todo)
    thought = ExtractiveMind().think(Turn("ada", focus, [passage("A berth is let.", 0.9)]), [])
    [text] = [call.arguments["text"] for call in thought.actions if call.tool == "add_card"]
    assert text.startswith("No answer stands out. The nearest places may help; the first has lease:\n\n> A berth")
    assert "— `knowledge/a.md:10`" in text
    assert "Confidence" not in text
