"""Finding nodes by words, by meaning, by tags; and what documents are classed as."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hivemind.documents import Docmem, Knowledge, Letter
from hivemind.documents.classes import classify
from hivemind.documents.formats import read_outline
from hivemind.documents.node import DamagedError
from hivemind.embedding import EmbedderUnavailable
from hivemind.layout import Layout
from hivemind.tokens import estimate_tokens
from tests.durability import relaxed

_MEANINGS = ({"car", "vehicle", "automobile"}, {"bee", "honey", "hive"}, {"rain", "storm", "weather"})


class Synonyms:
    """An embedder whose vectors are the share of words that each of three meanings has, and a little of none."""

    name = "synonyms"
    dimension = 4

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        self.asked += texts
        words = [set(text.casefold().replace(".", " ").replace("?", " ").split()) for text in texts]
        return [[*(float(len(found & meaning)) for meaning in _MEANINGS), 0.01] for found in words]


@pytest.fixture
def meaning(tmp_path: Path) -> Docmem:
    return Docmem(relaxed(tmp_path / "documents.db"), embedder=Synonyms())


def test_meaning_finds_what_words_do_not(meaning: Docmem) -> None:
    root = meaning.create_root(text="notes")
    car, _, rain = (
        meaning.append_child(root.id, "m", "n", "v", text)
        for text in ("The automobile broke.", "A bee sat.", "A storm.")
    )
    hit = meaning.query("vehicle")[0]
    assert hit.node == car
    assert "meaning" in hit.why
    meaning.update_content(car.id, "It began to rain.")
    assert {found.node.id for found in meaning.query("weather")} == {car.id, rain.id}
    meaning.delete(rain.id)
    assert [found.node.id for found in meaning.query("weather")] == [car.id]
    meaning.close()


def test_each_text_is_embedded_once(meaning: Docmem) -> None:
    assert isinstance(meaning.meanings.embedder, Synonyms)
    root = meaning.create_root(text="A car.")
    meaning.append_child(root.id, "m", "n", "v", "")
    assert meaning.embed_pending() == 1
    assert meaning.embed_pending() == 0
    meaning.move_append_child(meaning.create_root(text="A bee.").id, root.id)
    assert meaning.embed_pending() == 1
    assert meaning.meanings.embedder.asked == ["A car.", "A bee."]
    meaning.close()


def test_knowledge_is_found_by_meaning_too(layout: Layout) -> None:
    (layout.knowledge / "a.md").write_text("# Garage\n\nThe automobile stands outside.\n\nA bee sat on it.\n")
    with Docmem(layout.documents_db, embedder=Synonyms()) as docmem:
        knowledge = Knowledge(docmem, layout)
        knowledge.sync()
        docmem.embed_pending()
        (found,) = knowledge.search("vehicle?")
        assert found.text.startswith("The automobile stands outside.")
        assert "meaning" in found.why
        assert {passage.confidence.level for passage in knowledge.search("Mongolia?")} == {"weak"}


def test_several_hits_under_one_parent_count_for_each_other(docmem: Docmem) -> None:
    one, two = docmem.create_root(text="one"), docmem.create_root(text="two")
    alone = docmem.append_child(one.id, "m", "n", "v", "about zebras")
    pair = [docmem.append_child(two.id, "m", "n", "v", "about zebras") for _ in range(2)]
    hits = docmem.query("zebra")
    assert [hit.node.id for hit in hits] == [pair[0].id, pair[1].id, alone.id]
    assert hits[0].after == pair[1]
    assert "1 more under the same parent" in hits[0].why


def test_a_query_can_be_kept_below_a_node(docmem: Docmem) -> None:
    one, two = docmem.create_root(text="one"), docmem.create_root(text="two")
    docmem.append_child(one.id, "m", "n", "v", "zebra")
    wanted = docmem.append_child(two.id, "m", "n", "v", "zebra")
    assert [hit.node.id for hit in docmem.query("zebra", node_id=two.id)] == [wanted.id]


@pytest.mark.parametrize("query", ['"', "a AND (", "zebra*", "NEAR(zebra", "", "@", "🐝", "\0", "x" * 10_000])
def test_any_characters_may_stand_in_a_query(docmem: Docmem, query: str) -> None:
    docmem.create_root(text="zebra")
    assert isinstance(docmem.query(query), list)


def _class(name: str, text: str) -> tuple[str, str]:
    found = classify(name, read_outline(text.encode(), name, estimate_tokens))
    return found.name, found.reason


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.md", "---\nclass: recipe\n---\ntext\n", "recipe"), ("a.py", "x = 1\n", "code"), ("README.md", "text", "readme"),
        ("docs/adr/0001-x.md", "text", "decision"), ("2024 meeting.txt", "text", "minutes"), ("a.md", "# T\n\ntext", "document"),
        ("faq/a.md", "# Why?\n\na\n", "faq"), ("a.txt", "just text", "text"), ("catalogue.md", "# T\n\ntext", "document"),
    ],
)  # fmt: skip
def test_a_document_gets_a_class_by_a_rule_that_says_why(name: str, text: str, expected: str) -> None:
    found, why = _class(name, text)
    assert found == expected
    assert why


def test_the_class_and_the_labels_of_a_file_are_kept_with_it(docmem: Docmem, tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_text("---\ntags: [Data Base, wifi]\n---\n# Guide\n\nText.\n")
    root = docmem.import_file(path)
    assert (root.context_type, root.context_name) == ("root", "guide")
    assert docmem.tags_of(root.id) == ["data-base", "guide", "wifi"]
    leaf = docmem.serialize(root.id)[-1]
    source = docmem.source(leaf.id)
    assert source is not None
    assert source.citation == f"{path}:6-6"
    assert (source.document_class, source.why) == ("guide", "its path has 'guide'")
    assert docmem.source(docmem.add_note(leaf.id, "x", "ann").id) is None
    path.write_text("---\ntags: [other]\n---\n# Guide\n\nText.\n")
    assert docmem.import_file(path).id == root.id
    assert docmem.tags_of(root.id) == ["guide", "other"]


def test_a_thread_is_kept_once_and_classed(docmem: Docmem) -> None:
    letters = [
        Letter("<1@h>", "ann", "2026-01-01", "Which port is it? [x]\nWhich?"),
        Letter("<2@h>", "bob", "2026-01-02", "9090."),
    ]
    root = docmem.keep_thread("[net] Ports", letters[:1], "<1@h>")
    assert (root.context_name, root.context_value) == ("mail", "question")
    again = docmem.keep_thread("[net] Ports", letters, "<1@h>")
    assert again.id == root.id
    nodes = docmem.serialize(root.id)
    assert [node.text for node in nodes] == ["[net] Ports", letters[0].text, "9090."]
    assert all(node.readonly for node in nodes)
    assert "net" in docmem.tags_of(root.id)
    assert (
        docmem.keep_thread("Status of the build", [Letter("<3@h>", "a", "d", "done")], "<3@h>").context_value
        == "report"
    )
    assert (
        docmem.keep_thread("Lunch", [Letter("<4@h>", "a", "d", "We agreed: noon.")], "<4@h>").context_value
        == "decision"
    )


def test_a_letter_of_a_kept_thread_is_of_its_day(docmem: Docmem) -> None:
    letters = [Letter(f"<{day}@h>", "ann", f"2026-01-{day:02}", "We dock at nine.") for day in (5, 20)]
    docmem.keep_thread("Docking", letters, "<5@h>")
    [first, *_] = [hit for hit in docmem.query("When do we dock on 20 January 2026?") if hit.node.readonly]
    assert first.node.context_value.startswith("ann 2026-01-20")
    assert "its date" in first.why


def test_a_tag_finds_what_has_it_and_not_what_only_has_its_word(docmem: Docmem) -> None:
    root = docmem.create_root(text="Notes")
    tagged = docmem.append_child(root.id, "m", "n", "v", "Invoices go out on Monday, see @billing.")
    word = docmem.append_child(root.id, "m", "n", "v", "Billing billing billing: a word, no tag.")
    assert [hit.node.id for hit in docmem.query("@billing")] == [tagged.id]
    assert "@billing among its tags" in docmem.query("@billing")[0].why
    assert [hit.node.id for hit in docmem.query("@billing word")] == [tagged.id, word.id]


def test_an_embedder_that_is_down_is_done_without(tmp_path: Path) -> None:
    class Down:
        name, dimension = "down", 2

        def embed(self, texts: list[str]) -> list[list[float]]:
            raise EmbedderUnavailable(f"{len(texts)} texts are too many today")

    with Docmem(relaxed(tmp_path / "documents.db"), embedder=Down()) as docmem:
        root = docmem.create_root(text="Oars are made of ash")
        assert [hit.node.id for hit in docmem.query("ash")] == [root.id]


def test_a_search_of_a_damaged_database_whose_parents_form_a_cycle_ends(tmp_path: Path) -> None:
    documents = Docmem(relaxed(tmp_path / "documents.db"))
    root = documents.create_root(text="boats")
    above = documents.append_child(root.id, "text", "of", "boats", "A keel steadies")
    below = documents.append_child(above.id, "text", "of", "boats", "a sailing boat")
    with documents.transaction() as edit:
        edit.sql.execute("UPDATE nodes SET parent_id = ? WHERE id = ?", (below.id, above.id))
    assert {hit.node.id for hit in documents.query("sailing keel")} == {above.id, below.id}
    for reading in (documents.root_of, documents.size, documents.serialize, documents.delete):
        with pytest.raises(DamagedError, match="form a cycle"):
            reading(below.id)
    assert "2 nodes have no root (a cycle)" in documents.check()
