"""Recall: passages that can be quoted, and parts of documents as far as there is room, stand in a task's opening."""

from __future__ import annotations

import re

import pytest

from hivemind.agent.opening import source_of
from hivemind.minds import Thought, Turn
from hivemind.reasoning import TaskGraph
from hivemind.taskrun.focus import Focus
from tests.agent.conftest import Crew, until_idle

OARS = "# Oars\n\n" + "\n\n".join(
    f"Oar number {number} of the fleet is made of {wood} and varnished by hand each spring."
    for number, wood in enumerate(["ash", "spruce", "oak", "fir", "beech", "larch"] * 12)
)


@pytest.fixture
def crew(crew: Crew) -> Crew:
    crew.configure("embedder: none\n")
    crew.agent_file("role: analyst\nmax_tokens: 100000\n")
    (crew.root / "knowledge" / "oars.md").write_text(OARS)
    return crew


def material(crew: Crew, question: str) -> dict[str, str]:
    """What the opening of a task that asks this shows beside the task: the text by its source."""
    seen: list[str] = []

    def think(turn: Turn) -> Thought:
        seen.append(turn.messages[1].text)
        return Thought()

    crew.drop(f"---\nsteps:\n  - ask: {question}\n---\n{question}\n")
    crew.start(think).cycle()
    return dict(re.findall(r'<material from="(.*?)">\n(.*?)\n</material>', seen[0], re.DOTALL))


def recalled(crew: Crew, question: str) -> dict[str, str]:
    """What the tool `recall` finds: the text by its source."""
    entries = crew.start().memory.recall(Focus("rest"), question, 2_000, lambda _: False)
    return {source_of(entry): str(entry["content"]) for entry in entries}


def test_passages_have_their_lines_and_a_part_with_several_of_them_is_recalled_as_far_as_there_is_room(
    crew: Crew,
) -> None:
    question = "Is an oar of the fleet varnished by hand each spring?"
    lines = OARS.splitlines()
    for found in (material(crew, question), recalled(crew, question)):
        assert len(found) > 2
        for source, text in found.items():
            if numbers := re.fullmatch(r"knowledge/oars\.md:(\d+)-(\d+)", source):
                assert text == "\n".join(lines[int(numbers[1]) - 1 : int(numbers[2])])
    assert found["knowledge/oars.md (an excerpt)"].startswith("# Oars\n\nOar number 0 of the fleet is made of ash")


def test_a_small_part_is_recalled_whole(crew: Crew) -> None:
    title, *paragraphs = OARS.split("\n\n")[:3]  # each long enough to be a passage of its own
    long = [paragraph + " It rests upon the quay." * 30 for paragraph in paragraphs]
    (crew.root / "knowledge/oars.md").write_text("\n\n".join([title, *long]) + "\n")
    assert recalled(crew, "Which wood is the oar of the fleet made of?")["knowledge/oars.md"].count("varnished") == 2


def test_a_web_page_is_quoted_by_what_it_says_not_by_its_source(crew: Crew) -> None:
    page = "<html><body><h1>Masts</h1><p>A mast of the <b>kestrel</b> class is made of pine.</p></body></html>"
    (crew.root / "knowledge/masts.html").write_text(page)
    said, question = "A mast of the kestrel class is made of pine.", "What is a mast of the kestrel class made of?"
    assert said in material(crew, question).values()
    crew.close()
    until_idle(crew.start())
    assert said in (crew.root / "tasks/done/t/result.md").read_text()


def test_a_task_without_steps_is_asked_about_by_its_text_and_not_by_its_title_alone(crew: Crew) -> None:
    (crew.root / "knowledge" / "masts.md").write_text("# Masts\n\nA mast of the kestrel class is made of pine.\n")
    seen: list[str] = []

    def think(turn: Turn) -> Thought:
        seen.append(turn.messages[1].text)
        return Thought()

    crew.drop("---\ntitle: An order\n---\nBuy what a mast of the kestrel class is made of.\n")
    crew.start(think).cycle()
    assert "is made of pine" in seen[0]


def test_what_another_task_decided_answers_with_the_task_that_it_is_from(crew: Crew) -> None:
    folder = crew.root / "tasks/done/masts"
    folder.mkdir(parents=True)
    with TaskGraph(folder).change() as graph:
        graph.add_node("task", "Decide about masts")
        graph.add_edge(1, graph.add_node("decision", "The masts of the kestrel class are made of pine.").node_id)
    crew.drop("---\ntitle: Masts\n---\nWhat are the masts of the kestrel class made of?\n")
    until_idle(crew.start())
    said = (crew.root / "tasks/done/t/result.md").read_text()
    assert "The masts of the kestrel class are made of pine." in said
    assert "tasks/done/masts/graph.jsonl node 2" in said


def test_a_question_is_searched_with_what_stands_around_it_and_the_result_has_its_own_words(crew: Crew) -> None:
    crew.agent_file("role: analyst\n")
    boats = "".join(f"The setting of sail {number} is up to whoever sails it.\n\n" for number in range(9))
    (crew.root / "knowledge/boats.md").write_text(boats)
    (crew.root / "knowledge/berths.md").write_text(
        "The default berth of a boat is read from the setting harbour.pier.\n"
    )
    crew.drop(
        "Hello,\n\nI changed the default berth of my boat. Which setting does that? Where is it read?\n\nThanks\nBob\n"
    )
    until_idle(crew.start())
    result = (crew.root / "tasks/done/t/result.md").read_text()
    first = result.split("## Which setting does that?\n")[1].split("\n> ")[1]
    assert first.startswith("The default berth of a boat is read from the setting harbour.pier.")
    assert "lacks" not in result.split("## Which setting does that?\n")[1].split("## ")[0]


def test_a_note_that_answers_is_quoted_with_the_document_that_it_stands_on(crew: Crew) -> None:
    crew.agent_file("role: analyst\n")
    agent = crew.start()
    agent.hive.knowledge.sync()
    node = agent.hive.knowledge.locate("knowledge/oars.md:3")
    note = agent.hive.documents.add_note(node.id, "The varnish of the fleet comes from Bremerhaven, by ship.", "bob")
    agent.hive.documents.add_note(node.id, "A kettle is on the quay.", "bob")
    crew.drop("Where does the varnish of the fleet come from?")
    until_idle(agent)
    result = (crew.root / "tasks/done/t/result.md").read_text()
    assert "> The varnish of the fleet comes from Bremerhaven, by ship.\n" in result
    assert f"remembered as `knowledge/oars.md note {note.id}` ({note.updated_at[:10]}); no file is cited." in result
    assert "kettle" not in result
