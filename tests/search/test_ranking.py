"""What moves an entry up or down, each thing alone, in a real store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from hivemind.embedding import HashingEmbedder
from hivemind.longterm import MemoryEntry, MemorySearchResult, MemoryStore, open_store
from hivemind.search import Item, Query, Weights
from hivemind.search.item import read_items, words_of_speaker
from hivemind.search.parts import PartSimilarity
from hivemind.search.query import (
    add_terms,
    expected_kind,
    has_time,
    identifiers,
    in_first_person,
    is_question,
    moment_of,
)
from hivemind.search.ranking import Candidate, Match, are_supported, match_items, rank
from hivemind.search.words import Stemmer
from tests.durability import relaxed

TALK = ("shared", "talk")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with open_store(relaxed(tmp_path / "memory.db"), HashingEmbedder()) as found:
        yield found


def say(store: MemoryStore, key: str, content: str, links: dict[str, str] | None = None, **metadata: Any) -> None:
    store.put(TALK, key, MemoryEntry(content=content, metadata=metadata, links=links or {}))


def keys(store: MemoryStore, query: str, limit: int = 10) -> list[str]:
    return [found.key for found in store.search(TALK, query, limit=limit)]


def hit(store: MemoryStore, query: str, key: str) -> MemorySearchResult:
    return next(found for found in store.search(TALK, query) if found.key == key)


def test_whose_words_are_wanted_is_no_word_to_search_for(store: MemoryStore) -> None:
    say(store, "his", "I bought a boat", speaker="Bob")
    say(store, "hers", "I bought a boat", speaker="Ann")
    say(store, "called", "Ann, Ann, lovely to hear from you, Ann", speaker="Bob")
    assert keys(store, "What boat did Ann buy?")[:2] == ["hers", "his"]
    assert keys(store, "What boat did Bob buy?")[:2] == ["his", "hers"]
    assert "its speaker" in hit(store, "What boat did Ann buy?", "hers").why


def test_without_metadata_a_name_that_entries_call_is_of_who_takes_part(store: MemoryStore) -> None:
    say(store, "1", "Thanks, Ann! So good to see you.")
    say(store, "2", "Hey Ann, how was it?")
    say(store, "3", "The boat was expensive and slow")
    assert keys(store, "What does Ann think of the boat?")[0] == "3"


def test_a_name_that_entries_speak_of_is_searched_for(store: MemoryStore) -> None:
    say(store, "1", "Sarah likes tea")
    say(store, "2", "Peter likes tea")
    say(store, "3", "Thomas likes tea")
    assert keys(store, "What does Peter like?")[0] == "2"


def test_a_label_before_the_text_says_who_speaks() -> None:
    assert words_of_speaker("", "Ann: I am back") == {"ann"}
    assert words_of_speaker("Ann Lee", "Bob: hello") == {"ann", "lee"}
    assert words_of_speaker("", "I am back at 10:30") == frozenset()


def test_the_answer_beside_a_question_is_found_by_what_was_asked(store: MemoryStore) -> None:
    say(store, "q", "Which instrument do you play?", links={"next": "a"})
    say(store, "a", "The cello, for years", links={"previous": "q"})
    say(store, "x", "Nothing of the kind, for years")
    assert keys(store, "play an instrument")[:2] == ["q", "a"]


def test_an_entry_that_only_asks_tells_less(store: MemoryStore) -> None:
    say(store, "asks", "the red boat, is it fast?")
    say(store, "tells", "the red boat, it is fast.")
    assert keys(store, "red boat fast") == ["tells", "asks"]
    assert is_question("Is it? [photo: a boat]")
    assert not is_question("Is it? It is.")


def test_a_date_in_the_question_finds_entries_of_that_time(store: MemoryStore) -> None:
    say(store, "may", "we went sailing again", time="2023-05-08T13:56")
    say(store, "june", "we went sailing again", time="2023-06-09T10:00")
    say(store, "bad", "we went sailing again", time="some day")
    assert keys(store, "What did we do in May 2023, sailing?")[0] == "may"
    assert keys(store, "sailing on 8 June")[0] == "june"
    assert "its date" in hit(store, "sailing on 8 June", "june").why


@pytest.mark.parametrize(
    ("text", "months", "years", "days"),
    [
        ("What happened on 14 August, 2023?", {8}, {2023}, {14}),
        ("What may Ann do in March?", {3}, set(), set()),
        ("May we march?", set(), set(), set()),
        ("since Sept 3rd", {9}, set(), {3}),
        ("on 2022-11-05", {11}, {2022}, {5, 11}),
        ("the 3 boats of 1999", set(), {1999}, set()),
    ],
)
def test_dates_are_read_as_people_write_them(text: str, months: set[int], years: set[int], days: set[int]) -> None:
    found = expected_kind(text).dates
    assert (set(found.months), set(found.years)) == (months, years)
    assert days <= set(found.days)


def test_a_session_that_is_about_it_lifts_what_was_said_in_it(store: MemoryStore) -> None:
    for number, text in enumerate(["the choir sings", "our choir rehearses", "it starts at nine, as agreed"]):
        say(store, f"choir-{number}", text, session="one")
    for number, text in enumerate(["the dog barks", "our dog sleeps", "it starts at nine, as agreed"]):
        say(store, f"dog-{number}", text, session="two")
    found = keys(store, "when does the choir start at nine")
    assert found.index("choir-2") < found.index("dog-2")


def test_what_has_nothing_in_common_with_anything_finds_nothing(store: MemoryStore) -> None:
    say(store, "1", "the choir sings on Mondays")
    assert keys(store, "quarterly revenue forecast") == []


def test_signs_of_time_and_person() -> None:
    assert has_time("We met last week")
    assert not has_time("We met at the lake")
    assert in_first_person("So I've moved")
    assert not in_first_person("Did it move?")
    assert moment_of("2023-05-08T13:56") == date(2023, 5, 8)
    assert moment_of("2023-05-08") == date(2023, 5, 8)
    assert moment_of(17) is None
    assert moment_of("yesterday") is None


def test_the_same_entries_and_question_give_the_same_answer(store: MemoryStore) -> None:
    for number in range(30):
        say(store, f"{number}", f"entry about tea and number {number % 7}", speaker="Ann", session=str(number % 3))
    first = store.search(TALK, "What tea did Ann number?")
    assert [(found.key, found.score) for found in store.search(TALK, "What tea did Ann number?")] == [
        (found.key, found.score) for found in first
    ]
    assert first == sorted(first, key=lambda found: -found.score)


def ranked(text: str, items: list[Item], weights: Weights) -> dict[int, float]:
    """The score of each item, by words alone."""
    stems = Stemmer()
    query = add_terms(Query(text), stems, len(items), lambda words, _: [1] * len(words))
    readings = read_items(items, [term.stem for term in query.terms], stems)
    found = match_items(query, items, readings, weights)
    places = {one.id: at for at, one in enumerate(items)}
    candidates = [
        Candidate(one, reading, match, previous=places.get(one.previous or -1), next=places.get(one.next or -1))
        for one, reading, match in zip(items, readings, found, strict=True)
    ]
    return {items[one.position].id: one.score for one in rank(query, candidates, weights)}


def test_what_was_said_just_before_completes_an_item_and_repeating_it_does_not() -> None:
    scores = ranked(
        "cello price",
        [
            Item(1, "the cello", next=2),
            Item(2, "the price", previous=1),
            Item(3, "the cello", next=4),
            Item(4, "the cello", previous=3),
            Item(5, "the cello"),
        ],
        Weights(),
    )
    assert scores[2] > scores[1] > scores[3] == scores[4] == scores[5]


def test_a_long_item_is_no_better_for_its_length() -> None:
    scores = ranked("cello", [Item(1, "the cello is old"), Item(2, "the cello is old " + "and so on " * 50)], Weights())
    assert scores[1] > scores[2]


def test_a_draft_and_what_was_superseded_stand_behind_what_is_in_force() -> None:
    scores = ranked("cello", [Item(1, "the cello is old", standing=0.6), Item(2, "the cello is old")], Weights())
    assert scores[2] > scores[1] > 0


def test_an_item_without_a_vector_is_judged_by_its_words_and_never_as_the_farthest_in_meaning() -> None:
    def score(words: float, cosine: float | None, late: float | None) -> Candidate:
        item = Item(1, "x")
        near = None if cosine is None else PartSimilarity(cosine, 0.5, late)
        return Candidate(item, read_items([item], [], Stemmer())[0], Match(words, coverage=words / 10), cosine, near)

    candidates = [score(10.0, None, None), score(3.0, 0.9, 0.9), score(6.0, 0.1, 0.1), score(1.0, None, None)]
    for late in (0.0, 3.0):
        assert [one.position for one in rank(Query("x"), candidates, Weights(late=late))] == [0, 1, 2, 3]


def test_an_identifier_counts_only_as_it_is_written() -> None:
    items = [Item(1, "use --keep-index here"), Item(2, "keep the index here")]
    scores = ranked("--keep-index", items, Weights(written=0.5))
    assert scores[1] - scores[2] >= 0.5
    assert identifiers("Is core.autocrlf set, e.g. by git_config? I/O, a-b") == ("core.autocrlf", "git_config")


def test_an_item_that_nothing_speaks_for_is_not_found() -> None:
    def candidate(score: float, cosine: float | None, near: int | None = None, **known: Any) -> Candidate:
        item = Item(1, "x", **known)
        return Candidate(item, read_items([item], [], Stemmer())[0], Match(score), cosine, previous=near)

    cases = [
        (candidate(1.0, 0.0), True),  # a word
        (candidate(0.0, 0.2, session="one"), True),
        (candidate(0.0, 0.09), False),
        (candidate(0.0, None), False),
        (candidate(0.0, 0.09, near=0), True),
        (candidate(0.0, 0.09, near=2), False),
        (candidate(0.0, 0.09, session="one"), True),
        (candidate(0.0, 0.09, session="two"), False),
        (candidate(0.0, 0.09, speaker="Ann"), True),
        (candidate(0.0, 0.09, speaker="Bob"), False),
    ]
    kept = are_supported(Query("Ann's tea", frozenset({"ann"})), [one for one, _ in cases], 0.125)
    assert kept == [wanted for _, wanted in cases]


def test_what_is_far_from_the_query_stays_out_beside_what_is_near(store: MemoryStore) -> None:
    say(store, "tea", "Ann likes green tea")
    say(store, "far", "quarterly revenue forecast")
    assert keys(store, "green tea") == ["tea"]
    assert [found.key for found in store.search(TALK, "green tea", threshold=-1.0)] == ["tea", "far"]
