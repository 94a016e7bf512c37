"""The manual: asked outside of a hive, by words and by the vectors that are shipped; no knowledge of a hive."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from hivemind.documents.knowledge import SHIPPED
from hivemind.documents.manual import VECTORS, ask_manual, manual_folder, read_manual, texts_to_embed
from hivemind.embedding import MiniLM
from hivemind.embedding.local import is_installed
from hivemind.hive import Hive
from hivemind.layout import template_folder

MEND = "run: python -m tests.manual"
OLD_README = """# knowledge
The documents that the swarm answers from: Markdown with optional front matter (`title`, `topic`, `subtopic`, `tags`),
or any text file, in any folder. Add and change files at any time; agents notice it at the next question. Names that
begin with a dot or end in `~`, `.swp`, `.tmp`, `.part`, `.lock`, symbolic links and files that are not text are ignored.

`manual/` is the manual of hivemind. Delete it if it gets in the way of your own answers.
"""


@pytest.fixture
def hive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hive:
    monkeypatch.setenv("HIVEMIND_EMBEDDER", "none")
    return Hive.init(tmp_path / "hive")


def test_each_passage_of_the_manual_has_its_vector_and_there_is_no_other() -> None:
    with read_manual() as manual:
        digests = {digest for digest, _ in texts_to_embed(manual.docmem, MiniLM()).values()}
    assert {line.split(" ")[0] for line in VECTORS.read_text().splitlines()[1:]} == digests, MEND


def test_the_readme_that_init_writes_is_listed_as_shipped() -> None:
    readme = (template_folder() / "knowledge/README.md").read_bytes()
    assert hashlib.sha256(readme).hexdigest()[:16] in SHIPPED.read_text().split(), MEND


@pytest.mark.skipif(not is_installed(), reason="needs the extra embed")
def test_the_shipped_vectors_find_what_no_word_finds() -> None:
    class CountingModel(MiniLM):
        texts = 0

        def embed_finely(self, texts: list[str], *, is_query: bool = False):  # type: ignore[no-untyped-def]
            self.texts += len(texts)
            return super().embed_finely(texts, is_query=is_query)

    model = CountingModel()
    question = "How do I shut down my workers?"
    assert "06-the-swarm.md" in [Path(passage.path).name for passage in ask_manual(question, embedder=model)]
    assert model.texts == 1  # the question alone


def test_what_any_version_of_init_wrote_is_no_knowledge_until_a_person_changes_it(hive: Hive) -> None:
    assert [path.name for path in hive.layout.knowledge.iterdir()] == ["README.md"]
    (hive.layout.knowledge / "manual").mkdir()
    (hive.layout.knowledge / "manual/00-before.md").write_text(OLD_README)  # as an earlier version did
    report = hive.knowledge.sync()
    assert hive.knowledge.search("Which names are ignored?") == []
    assert "hivemind help" in report.skipped["knowledge/README.md"]
    for name in ("README.md", "manual/00-before.md"):
        with open(hive.layout.knowledge / name, "a") as file:
            file.write("\nThe flurb is ours.\n")
    hive.knowledge.sync()
    paths = {passage.path for passage in hive.knowledge.search("Where is the flurb?")}
    assert paths == {"knowledge/README.md", "knowledge/manual/00-before.md"}


def test_a_copy_of_a_chapter_elsewhere_is_a_persons_own(hive: Hive) -> None:
    shutil.copy(manual_folder() / "09-leases-and-the-journal.md", hive.layout.knowledge / "leases.md")
    hive.knowledge.sync()
    assert hive.knowledge.search("What is a lease?")[0].path == "knowledge/leases.md"


def test_the_programs_own_repository_answers_from_the_manual() -> None:
    with read_manual() as manual:
        assert manual.search("What is a lease?")[0].path == "knowledge/manual/09-leases-and-the-journal.md"
