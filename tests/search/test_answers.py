"""How far an answer is trusted, what of a passage is quoted, and what of several stores comes first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from hivemind.documents import Docmem, Knowledge
from hivemind.embedding import Embedder, HashingEmbedder, MiniLM
from hivemind.embedding.local import is_installed
from hivemind.layout import Layout
from hivemind.search import Confidence, merge_hits, quote_span
from hivemind.search.answers import doubt_names
from hivemind.search.query import Query
from hivemind.search.words import Stemmer
from tests.durability import relaxed

FLEET = """# The fleet

The fleet has seven boats, and each of them is painted in March. The harbour master keeps the keys of all sheds in the
office by the gate. {more}

A lease of a berth ends after ninety days. It is renewed by the harbour master, who asks for the fee of the season. Whoever
does not pay loses the berth on the first of May.
"""
MORE = " ".join(f"Shed number {number} is as long as the quay beside it." for number in range(30))


def asked(tmp_path: Path, question: str, embedder: Embedder | None) -> Confidence | None:
    layout = Layout.at(tmp_path / "hive")
    for folder in layout.folders():
        folder.mkdir(parents=True, exist_ok=True)
    (layout.knowledge / "fleet.md").write_text(FLEET.format(more=""))
    (layout.knowledge / "other.md").write_text(
        "# Oars\n\nAn oar is made of ash or spruce, and varnished each spring.\n"
    )
    with Docmem(relaxed(layout.documents_db), embedder=embedder) as docmem:
        knowledge = Knowledge(docmem, layout)
        knowledge.sync()
        found = knowledge.search(question, 1)
        return found[0].confidence if found else None


def test_what_has_all_the_words_is_trusted_more_than_what_has_a_few(tmp_path: Path) -> None:
    good = asked(tmp_path, "When does the lease of a berth end?", HashingEmbedder())
    poor = asked(tmp_path, "When does the lease of a submarine periscope end?", HashingEmbedder())
    assert good is not None
    assert poor is not None
    assert good.value > poor.value
    assert "has the words lease, berth, end" in good.reason
    assert "nothing here has submarine, periscope" in poor.reason


def test_a_question_about_what_nobody_wrote_of_has_a_weak_answer_or_none(tmp_path: Path) -> None:
    found = asked(tmp_path, "Which salary does the gardener of the embassy earn?", HashingEmbedder())
    assert found is None or found.level == "weak"


def test_words_alone_make_nothing_sure(tmp_path: Path) -> None:
    found = asked(tmp_path, "When does the lease of a berth end?", None)
    assert found is not None
    assert found.level == "likely"


@pytest.mark.skipif(not is_installed(), reason="the extra embed is not installed")
def test_a_passage_beside_others_that_are_as_near_is_not_sure(tmp_path: Path) -> None:
    sure = asked(tmp_path / "one", "When does the lease of a berth end?", MiniLM())
    for number in range(4):
        more = tmp_path / f"two/hive/knowledge/{number}.md"
        more.parent.mkdir(parents=True, exist_ok=True)
        more.write_text(f"# Pier {number}\n\nThe lease of a berth at pier {number} does end in the {number}th year.\n")
    doubtful = asked(tmp_path / "two", "When does the lease of a berth end?", MiniLM())
    assert sure is not None
    assert doubtful is not None
    assert (sure.level, "other passages are as near" in sure.reason) == ("sure", False)
    assert doubtful.level != "sure"
    assert "as near" in doubtful.reason


def test_an_answer_that_is_not_sure_has_a_reason_that_a_sure_one_has_not(tmp_path: Path) -> None:
    likely = asked(tmp_path, "When does the lease of a berth end?", None)
    assert likely is not None
    assert likely.reason.endswith("; its meaning was not compared")


@pytest.mark.skipif(not is_installed(), reason="the extra embed is not installed")
def test_a_number_that_is_asked_for_and_not_quoted_is_missed(tmp_path: Path) -> None:
    with_number = asked(tmp_path / "one", "How many boats does the fleet have?", MiniLM())
    without = asked(tmp_path / "two", "How many kinds of wood is an oar made of?", MiniLM())
    assert with_number is not None
    assert without is not None
    assert ("it has no number" in with_number.reason, "it has no number" in without.reason) == (False, True)


@pytest.mark.parametrize(("text", "level"), [("Since 1.16.0 and 1.6", "likely"), ("pluggy 1.6.0 (2025)", "sure")])
def test_an_answer_that_does_not_name_the_version_of_the_question_is_not_sure(text: str, level: str) -> None:
    query = Query("Which Python does pluggy 1.6.0 need?")
    confidence = doubt_names(query, Confidence(2.0, "has all the words"), text)
    assert confidence.level == level
    assert confidence.reason.endswith("; the quote does not name 1.6.0") == (level == "likely")


@pytest.mark.parametrize(("text", "level"), [("On a MacBook Pro", "likely"), ("On a MacBook with an m2", "sure")])
def test_an_answer_that_lacks_a_word_with_a_digit_of_the_question_is_not_sure(text: str, level: str) -> None:
    query = Query("How many tasks a second on a MacBook with an M2?")
    assert doubt_names(query, Confidence(2.0, "has all the words"), text).level == level


def quote(text: str, question: Sequence[str], near: float | None = None) -> str:
    stems = Stemmer()
    first, last = quote_span(text, dict.fromkeys(stems(question), 1.0), stems, near)
    return text[first:last]


def test_a_short_passage_is_quoted_whole() -> None:
    assert quote("\nA lease ends.\nIt is renewed.\n", ["lease"]) == "A lease ends.\nIt is renewed."


def test_of_a_long_passage_whole_sentences_around_the_answer_are_quoted() -> None:
    text = FLEET.format(more=MORE)
    found = quote(text, ["lease", "berth", "end"])
    assert "A lease of a berth ends after ninety days." in found
    assert len(found) <= 800
    assert found.endswith(".")
    assert text[text.index(found) - 1].isspace()


def test_the_sentence_that_is_nearest_in_meaning_is_in_the_quote_whatever_its_words() -> None:
    text = FLEET.format(more=MORE)
    assert "The harbour master keeps the keys" in quote(text, ["lease"], (text.index("keeps the keys") / len(text)))


def test_where_no_neighbour_brings_a_word_the_sentence_before_is_quoted_first_and_then_in_turns() -> None:
    for length, quoted in ((250, ["003", "004", "005"]), (180, ["002", "003", "004", "005"])):
        text = "\n\n".join(f"{number:03} ".ljust(length, "x") for number in range(9)).replace("004 x", "004 lease ")
        assert [line[:3] for line in quote(text, ["lease"]).split("\n\n")] == quoted


class Found(NamedTuple):
    text: str
    origin: str
    value: float


def best(*stores: Sequence[Found], limit: int = 10) -> list[str]:
    found = merge_hits(
        stores,
        limit,
        confidence=lambda one: Confidence(one.value, ""),
        text=lambda one: one.text,
        origin=lambda one: one.origin,
    )
    return [one.text for one in found]


def test_a_weak_passage_does_not_hide_a_better_memory() -> None:
    passages = [Found("the boats are painted", "fleet.md", 0.9)]
    assert best(passages, [Found("Zora sails a red dinghy", "memory", 1.4)])[0] == "Zora sails a red dinghy"


def test_a_store_keeps_its_own_order() -> None:
    assert best([Found("one", "a", 0.5), Found("two", "b", 1.5)], [Found("three", "c", 1.0)]) == ["three", "one", "two"]


def test_one_files_best_comes_before_anothers_third() -> None:
    first = [Found(f"text {number} of a", "a", 2.0) for number in range(3)]
    assert best([*first, Found("best of b", "b", 1.0)]) == ["text 0 of a", "text 1 of a", "best of b", "text 2 of a"]


def test_what_says_the_same_is_there_once() -> None:
    said = "a lease of a berth ends after ninety days"
    assert best([Found(said, "a", 2.0), Found(said.title() + "!", "b", 1.5)]) == [said]


def test_a_text_that_is_cut_elsewhere_in_another_format_is_there_once() -> None:
    said = "a lease of a berth ends after ninety days unless its holder pays the harbour master the second half before June"
    longer = (
        f"{said} . Whoever leaves early has to sweep the jetty, empty the locker, return both keys and tell the office."
    )
    assert best([Found(longer, "a.md", 2.0), Found(said, "a.html", 1.5)]) == [longer]
    assert best([Found(said, "a.html", 2.0), Found(longer, "a.md", 1.5)]) == [said]
    assert len(best([Found("the berth", "a", 2.0), Found("the berth is let", "b", 1.5)])) == 2


def test_a_pdf_that_ends_its_passage_elsewhere_is_its_texts_twin() -> None:
    said = "A lease of a berth ends after ninety days unless its holder pays the harbour master the second half before June"
    page = f"4 The harbour's rules. Boats are painted in March by their owners. {said}"
    text = f"{said}. Whoever leaves early has to sweep the jetty and return both keys."
    assert best([Found(text, "a.txt", 2.0), Found(page, "a.pdf", 1.5)]) == [text]
    other = (
        "A lease of a shed ends with the year, and its holder pays the harbour master in June. Sheds are not sublet."
    )
    assert len(best([Found(text, "a.txt", 2.0), Found(other, "b.txt", 1.5)])) == 2


@pytest.mark.parametrize(("value", "level"), [(0.99, "weak"), (1.0, "likely"), (1.35, "sure")])
def test_a_confidence_has_a_word(value: float, level: str) -> None:
    assert Confidence(value, "").level == level


@pytest.mark.skipif(not is_installed(), reason="the extra embed is not installed")
@pytest.mark.parametrize(
    ("question", "levels"),
    [
        ("When does the ferry leave on Sundays?", ["sure"]),
        ("How much does the ferry cost?", ["weak", "likely"]),
        ("Does the ferry carry cars?", ["weak"]),
    ],
)
def test_the_only_passage_of_a_hive_is_judged_without_a_lead(tmp_path: Path, question: str, levels: list[str]) -> None:
    layout = Layout.at(tmp_path)
    layout.knowledge.mkdir(parents=True)
    layout.documents_db.parent.mkdir(parents=True, exist_ok=True)
    (layout.knowledge / "ferry.md").write_text("The ferry leaves from pier 3 at 7:40, on Sundays at 9:10.\n")
    with Docmem(relaxed(layout.documents_db), embedder=MiniLM()) as docmem:
        knowledge = Knowledge(docmem, layout)
        knowledge.sync()
        assert knowledge.search(question, 1)[0].confidence.level in levels
