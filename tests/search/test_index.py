"""`Index`: texts are found by words and meaning, in their scope; waiting texts are embedded and counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hivemind.embedding import EmbedderUnavailable
from hivemind.errors import UserError
from hivemind.fs.database import Database, Schema
from hivemind.search import INDEX, Index, Weights


class Twins:
    """One direction for what is afloat, one for all else; some texts are refused."""

    name, dimension = "twins", 8

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_down = False

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        if self.is_down:
            raise EmbedderUnavailable("it is ill")
        self.asked += texts
        return [[1.0 if ("boat" in text or "ship" in text) == (at == 0) else 0.01 for at in range(8)] for text in texts]


def database(folder: Path) -> Database:
    schema = Schema(name="index", crash_prefix="search", version=1, error=UserError, statements=INDEX)
    return Database(folder / "index.db", schema)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(database(tmp_path))


def test_what_was_put_is_found_by_its_words_with_its_fields_and_says_why(index: Index) -> None:
    index.put("a", {"text": "A keel is made of lead", "heading": "Hull", "page": 7})
    index.put("b", {"text": "Sails are made of cloth"})
    (hit,) = index.search("which metal is a keel")
    assert (hit.id, hit.fields, hit.similarity) == (
        "a",
        {"text": "A keel is made of lead", "heading": "Hull", "page": 7},
        0.0,
    )
    assert (hit.why, hit.score > 0) == ("has keel; without metal", True)
    assert [hit.id for hit in index.search("hull")] == ["a"]


def test_what_is_put_again_says_only_what_it_says_now_and_what_is_deleted_nothing(index: Index) -> None:
    index.put("a", {"text": "A keel"})
    index.put("a", {"text": "A rudder"})
    assert ([hit.id for hit in index.search("rudder")], index.search("keel")) == (["a"], [])
    assert (index.delete("a"), index.delete("a"), index.search("rudder")) == (True, False, [])
    assert index.check() == []


def test_a_scope_is_searched_by_itself_and_ids_are_its_own(index: Index) -> None:
    index.put("a", {"text": "a keel of lead"}, "ann")
    index.put("a", {"text": "a keel of oak"}, "bob")
    assert [(hit.scope, hit.id) for hit in index.search("keel", "bob")] == [("bob", "a")]
    assert [hit.scope for hit in index.search("keel")] == ["ann", "bob"]
    assert index.search("keel", "nobody") == []
    index.delete("a", "bob")
    assert [hit.scope for hit in index.search("keel")] == ["ann"]


def test_meaning_finds_what_shares_no_word_and_what_waits_is_counted_and_embedded(tmp_path: Path) -> None:
    embedder = Twins()
    index = Index(database(tmp_path), embedder)
    for number in range(70):
        index.put(f"{number}", {"text": f"a cart, {number}"})
    index.put("boat", {"text": "a boat"})
    assert index.pending() == 71
    assert [hit.id for hit in index.search("ship", limit=1)] == ["boat"], "the newest are embedded on the way"
    assert (index.pending(), index.embed(3), index.embed(100), index.pending()) == (7, 3, 4, 0)
    index.put("boat", {"text": "a cart again"})
    assert index.pending() == 1


def test_what_the_words_find_is_embedded_before_the_rest(tmp_path: Path) -> None:
    embedder = Twins()
    index = Index(database(tmp_path), embedder)
    index.put("old", {"text": "an old harbour"})
    for number in range(100):
        index.put(f"{number}", {"text": f"a cart, {number}"})
    (hit, *_) = index.search("harbour")
    assert (hit.id, hit.similarity > 0.9) == ("old", True)
    assert embedder.asked[1] == "an old harbour"


def test_where_the_embedder_fails_words_find_and_why_says_so(tmp_path: Path) -> None:
    embedder = Twins()
    index = Index(database(tmp_path), embedder)
    index.put("a", {"text": "a keel"})
    embedder.is_down = True
    (hit,) = index.search("keel")
    assert hit.why == "has keel; by words only: it is ill"
    with pytest.raises(EmbedderUnavailable):
        index.embed(1)


def test_features_say_what_counts_in_one_search(index: Index) -> None:
    index.put("a", {"text": "lead and oak", "heading": "Keel"})
    index.put("b", {"text": "a keel of lead, and another keel"})
    first = [index.search("keel", features=Weights(heading=weight))[0].id for weight in (8.0, 0.01)]
    assert first == ["a", "b"]


def test_who_said_it_and_what_stands_beside_it_count(index: Index) -> None:
    index.put("q", {"text": "Who feeds the cat?", "speaker": "Ann", "session": "1", "next": "r"})
    index.put("r", {"text": "I do, at noon.", "speaker": "Bob", "session": "1", "previous": "q", "time": "2024-05-01"})
    index.put("s", {"text": "It rained at noon.", "speaker": "Bob", "session": "2"})
    found = {hit.id: hit.score for hit in index.search("feeds the cat noon")}
    assert found["r"] > found["s"]


def test_what_stands_back_is_below_what_is_in_force(index: Index) -> None:
    index.put("old", {"text": "a keel of lead", "standing": 0.6})
    index.put("new", {"text": "a keel of lead"})
    assert [hit.id for hit in index.search("keel")] == ["new", "old"]
