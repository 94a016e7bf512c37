from __future__ import annotations

from hivemind.minds.extractive import quotes_for


def passage(text, relevance=1.0, start=10, source="knowledge/a.md", **more):
    told = {"source": source, "start_line": start, "digest": "d" * 64, "relevance": relevance, **more}
    return {"id": f"{source}:{start}", "content": text, "metadata": told}


def test_a_short_passage_is_quoted_whole_with_the_lines_where_it_stands():
    [quote] = quotes_for("what is a lease", [passage("\nA lease is a promise.\nIt ends.\n\n")])
    assert (quote.text, quote.start, quote.end) == ("A lease is a promise.\nIt ends.", 11, 12)
    assert quote.citation == "knowledge/a.md:11-12"


def test_of_a_long_passage_the_twelve_lines_that_answer_best_are_quoted():
    lines = [f"line {number}" for number in range(40)]
    lines[30] = "the lease expires by sequence"
    [quote] = quotes_for("when does the lease expire", [passage("\n".join(lines))])
    assert "the lease expires" in quote.text
    assert quote.end - quote.start == 11
    assert quote.text == "\n".join(lines[quote.start - 10 : quote.end - 9])


def test_what_scores_less_than_half_of_the_best_is_left_out_and_so_is_what_could_not_be_read():
    found = quotes_for("q", [passage("best"), passage("weak", 0.4, 20), passage("gone", 0.9, 30, error="no such file")])
    assert [quote.text for quote in found] == ["best"]


def test_no_line_is_quoted_twice_and_three_quotes_are_enough():
    many = [passage(f"text {at}", 1.0, at * 10) for at in range(1, 6)]
    assert len(quotes_for("q", many)) == 3
    assert len(quotes_for("q", [passage("a\nb", 1.0, 10), passage("b", 1.0, 11)])) == 1
