"""Which words find, which weigh, and that looking at fewer items loses nothing."""

from __future__ import annotations

from itertools import product

import pytest

from hivemind.search.query import Query, Term, add_terms, rarest_words, without_names
from hivemind.search.words import Stemmer

ENDS = (
    "s es ies sses eed ed ing y e ll ate at bl iz ational tional enci anci izer logi bli alli entli eli ousli ization ation"
    " ator alism iveness fulness ousness aliti iviti biliti icate ative alize iciti ical ful ness al ance ence er ic able"
    " ible ant ement ment ent ion ou ism iti ous ive ize"
)


@pytest.mark.parametrize(
    ("often", "finding"),
    [
        ([5_000], ["w0"]),  # the only one finds, however common
        ([5_000, 7_000], ["w0"]),
        ([150, 40, 1_000], ["w1", "w0", "w2"]),  # too few to leave any out
        ([3_100, 215, 1], ["w2", "w1"]),
        ([250, 250, 250, 250, 250], ["w0", "w1"]),
        ([0, 3], ["w1"]),  # what nothing has finds nothing
        ([], []),
    ],
)
def test_common_words_find_no_more_where_the_rarer_ones_find_enough(often: list[int], finding: list[str]) -> None:
    terms = [Term(f"w{at}", f"w{at}", count, 1.0) for at, count in enumerate(often)]
    assert rarest_words(terms, 200, 100_000) == finding


def test_the_words_that_have_a_stem_are_found_among_others() -> None:
    ends = ENDS.split()
    begins = ["", "b", "a", "y", "be", "ay", "ey", "tr", "hop", "rel", "agr", "controll", "défi", "ÉT"]
    words = {begin + "".join(two) for begin in begins for two in product(ends, repeat=2)} | set(ends)
    words |= {f"{begin}{end}" for begin in begins for end in ends}
    stems = Stemmer()
    of_each = dict(zip(words, stems([*words]), strict=True))
    for asked in (["hop", "relat", "abil"], ["agre"], ["defi", "et"], ["y", "ai"], []):
        assert Stemmer().filter_words(words, asked) == {word: stem for word, stem in of_each.items() if stem in asked}
    assert all(stems.filter_words([word], [stem]) == {word: stem} for word, stem in of_each.items())


def test_a_name_that_nothing_has_weighs_more_than_a_word_that_any_question_may_use() -> None:
    query = add_terms(Query("Which name does Zanzibar use?"), Stemmer(), 1_000, lambda words, _: [0] * len(words))
    weight = {term.word: term.weight for term in query.terms}
    assert weight["zanzibar"] > 4 * weight["name"]


def test_words_around_a_question_weigh_half_and_are_no_part_of_what_it_asks() -> None:
    alone = add_terms(Query("Which setting does that?"), Stemmer(), 1_000, lambda words, _: [5] * len(words))
    query = add_terms(
        Query("Which setting does that?", context="I changed the setting of the branch."),
        Stemmer(),
        1_000,
        lambda words, _: [5] * len(words),
    )
    weight = {term.word: (term.weight, term.is_context) for term in query.terms}
    assert (query.question_weight, weight["setting"]) == (alone.question_weight, (alone.question_weight, False))
    assert weight["changed"] == (alone.question_weight / 2, True) == weight["branch"]


def test_of_a_long_question_the_rarest_words_count() -> None:
    text = " ".join(f"common{number}" for number in range(60)) + " rare"
    query = add_terms(Query(text), Stemmer(), 1_000, lambda words, _: [1 if word == "rare" else 300 for word in words])
    assert len(query.terms) == 32
    assert query.terms[-1].word == "rare"


def test_a_query_that_is_a_name_stays_one() -> None:
    assert without_names("Ann", {"ann"}) == "Ann"
    assert without_names("What about Ann?", {"ann"}) == "What about Ann?"
    assert without_names("Where did Ann's sister go, Ann?", {"ann"}) == "Where did sister go, ?"
    assert without_names("Annual costs", {"ann"}) == "Annual costs"
    assert without_names("price of (x+y)* Ann", {"ann", "x+"}) == "price of (x+y)*"
