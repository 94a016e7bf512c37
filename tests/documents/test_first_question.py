"""A question finds what was read in a moment ago, beside documents that have had their vectors for long."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hivemind.documents import Docmem, Knowledge
from hivemind.embedding import HashingEmbedder
from hivemind.layout import Layout

_PAGES = sorted(Path("/usr/share/doc/git-doc").glob("git-*.txt"))[:160]
_NEWS = {
    "How do I see which commit removed a line?": "Ask the log with -S and the text; the last entry removed it.",
    "How do I undo the last merge?": "Reset to the parent that you were on.",
    "How do I list ignored files?": "Ask the status for the ignored files too, or list them with ls-files.",
}

pytestmark = pytest.mark.skipif(len(_PAGES) < 100, reason="needs the manual pages of the package git-doc")


def read_in(root: Path) -> None:
    """Read in 160 pages of Git's manual, with their vectors."""
    layout = Layout(root)
    layout.knowledge.mkdir(parents=True)
    layout.state.mkdir()
    for page in _PAGES:
        shutil.copy(page, layout.knowledge)
    with Docmem(layout.documents_db, embedder=HashingEmbedder(64)) as docmem:
        Knowledge(docmem, layout).sync()
        docmem.embed_pending(10_000)


@pytest.fixture(scope="module")
def pages(
    once: Callable[[str, Callable[[Path], object]], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Knowledge]:
    """These pages, and three files that were read in since and have no vectors."""
    layout = Layout(tmp_path_factory.mktemp("hive"))
    shutil.copytree(once("git-pages", read_in), layout.root, dirs_exist_ok=True)
    with Docmem(layout.documents_db, embedder=HashingEmbedder(64)) as docmem:
        knowledge = Knowledge(docmem, layout)
        for number, (title, text) in enumerate(_NEWS.items()):
            (layout.knowledge / f"new-{number}.md").write_text(f"# {title}\n\n{text}\n")
        knowledge.sync()
        yield knowledge


@pytest.mark.parametrize("question", _NEWS)
def test_a_document_that_was_just_dropped_answers_the_first_question(pages: Knowledge, question: str) -> None:
    [best, *_] = pages.search(question)
    assert (best.titles[-1], best.text) == (question, _NEWS[question])
    assert "not embedded yet" not in best.why
    assert pages.docmem.query(question)[0].node.text == _NEWS[question]


@pytest.mark.parametrize("query", ["keep-index", "What does the option --keep-index do?"])
def test_what_has_an_identifier_as_it_is_written_is_found_by_it(pages: Knowledge, query: str) -> None:
    assert pages.search(query)[0].path == "knowledge/git-stash.txt"
    assert "keep-index as written" in pages.docmem.query(query)[0].why


@pytest.mark.parametrize("query", [*_NEWS, "keep-index", "How are submodules cloned?"])
def test_questions_and_searches_have_one_ranking(pages: Knowledge, query: str) -> None:
    sources = [pages.docmem.source(hit.node.id) for hit in pages.docmem.query(query, 6)]
    found = [(source.path, source.start_line) for source in sources if source is not None]
    passages = pages.search(query, 6)
    assert [path for path, _ in found] == [passage.path for passage in passages]
    for (_, line), passage in zip(found, passages, strict=True):
        assert passage.start_line <= line <= passage.end_line


def test_what_has_no_vector_is_judged_by_its_words(pages: Knowledge) -> None:
    question = next(iter(_NEWS))
    with pages.docmem.database.write() as sql:
        sql.execute("DELETE FROM vectors WHERE key IN (SELECT seq FROM nodes WHERE text = ?)", (_NEWS[question],))
    embedder, pages.docmem.meanings.embedder = pages.docmem.meanings.embedder, _Asked(64)
    try:
        found = {passage.text: passage for passage in pages.search(question)[:3]}
    finally:
        pages.docmem.meanings.embedder = embedder
    assert "not embedded yet" in found[_NEWS[question]].why


class _Asked(HashingEmbedder):
    """Embeds questions, and refuses every passage."""

    def embed(self, texts: list[str]) -> list[list[float]]:
        if not _NEWS.keys() >= set(texts):
            raise RuntimeError("busy")
        return [list(vector) for vector in super().embed(texts)]
