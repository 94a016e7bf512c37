"""Which passage answers a question about the manual, and what is told of a fleet beside it: by words alone, as every hive
can. The manual is full of examples, which ask and answer nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hivemind.documents import Docmem, Knowledge
from hivemind.layout import Layout

MANUAL = Path(__file__).parents[2] / "knowledge" / "manual"
_FLEET = """# The fleet

The Wren was painted in March. Her engine runs well.

The Gull and the Tern sail under old canvas: both of these boats get new sails before June.

We have seven boats and four trailers. The boats lie in the harbour; a boat that leaks is hauled out.
"""
QUESTIONS = {  # the chapter, and a part of its answer
    "How do I give the swarm a task?": ("02", "put a file into"),
    "What does parked mean?": ("02", "is parked"),
    "How do I cancel a task?": ("02", "cancel"),
    "In which order are tasks claimed?": ("02", "priority"),
    "What does a finished task leave behind?": ("02", "folder"),
    "How do I read mail with mutt?": ("04", "mutt"),
    "How do I add another agent?": ("05", "add another agent"),
    "What is a role?": ("05", "A role is"),
    "What is masked?": ("05", "Secrets are masked"),
    "How do I stop the swarm?": ("06", "hivemind down"),
    "How many agents can I run?": ("06", "hundred agents"),
    "What happens when an agent dies?": ("06", "started again"),
    "What is a block?": ("07", "A *block* is"),
    "How are blocks selected for a context?": ("07", "priority"),
    "How many quotes answer a question?": ("08", "three quotes"),
    "How is an answer reviewed?": ("08", "another agent checks"),
    "What is a lease?": ("09", "A lease is"),
    "How do I read the journal?": ("09", "hivemind log"),
    "What happens when the disk is full?": ("10", "disk is full"),
    "How do I back up a hive?": ("10", "copy"),
    "How do I remember something by hand?": ("13", "hivemind memory remember"),
    "Which language models can be used?": ("15", "language model"),
    "How do I open a hive from Python?": ("16", "Hive.open"),
    "How does a coding agent join a hive?": ("17", "MCP"),
}


@pytest.fixture(scope="module")
def knowledge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Knowledge]:
    layout = Layout.at(tmp_path_factory.mktemp("answers") / "hive")
    for folder in layout.folders():
        folder.mkdir(parents=True, exist_ok=True)
    (layout.knowledge / "manual").mkdir()
    for chapter in MANUAL.glob("*.md"):  # changed by a line: as it is shipped, it is no knowledge of a hive
        (layout.knowledge / "manual" / chapter.name).write_text(f"{chapter.read_text()}\n")
    (layout.knowledge / "fleet.md").write_text(_FLEET)
    with Docmem(layout.documents_db) as docmem:
        found = Knowledge(docmem, layout)
        found.sync()
        yield found


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_about_hivemind_is_answered_by_its_chapter(knowledge: Knowledge, question: str) -> None:
    chapter, said = QUESTIONS[question]
    best = knowledge.search(question, 1)[0]
    assert Path(best.path).name.startswith(chapter), best
    assert said in best.text


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Which boats need new sails?", "both of these boats get new sails"),  # the manual asks it in three examples
        ("How many boats do we have?", "seven boats"),
        ("how many trailers are there?", "four trailers"),
    ],
)
def test_what_the_manual_has_as_an_example_yields_to_what_is_told(
    knowledge: Knowledge, question: str, said: str
) -> None:
    best = knowledge.search(question, 1)[0]
    assert (best.path, said in best.text) == ("knowledge/fleet.md", True)


@pytest.mark.parametrize(
    "question",
    [
        "what is a flurb?", "What does a gribble do?", "how many flurbs are there?", "how do I configure kubernetes?",
        "who wrote hamlet?", "how do I bake bread?", "where is the zeppelin?", "how many moons does jupiter have?",
    ],
)  # fmt: skip
def test_a_question_about_what_nobody_wrote_of_finds_no_answer(knowledge: Knowledge, question: str) -> None:
    assert all(passage.confidence.level == "weak" for passage in knowledge.search(question))


def test_an_example_is_found_where_nothing_else_says_it(knowledge: Knowledge) -> None:
    best = knowledge.search("echo sails.txt", 1)[0]
    assert "tasks/inbox/sails.txt" in best.text
    assert "in an example" in best.why
