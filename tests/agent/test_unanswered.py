"""Questions without an answer are said to have none, with the nearest places; attachments and the sentence before count."""

from __future__ import annotations

import re
from contextlib import closing

import pytest

from hivemind import Hive
from hivemind.masking import MASK, MASK_NOTE
from hivemind.web.index import PageIndex
from tests.agent.conftest import Crew, until_idle

BOATS = "# Boats\n\n" + "\n\n".join(
    f"The {name} is painted in the spring, and avoids the {rock} when the harbour is closed."
    for name, rock in (("Alma", "reef"), ("Greta", "sandbank"), ("Berta", "pier"), ("Frieda", "buoy"))
)
PUMP = (
    "# Pumps\n\nThe bilge pump stops when its battery is empty, which it is after a night. Charge the battery at noon, with"
    " the lamp that is in the shed behind the harbour office.\n"
)


@pytest.fixture
def crew(crew: Crew) -> Crew:
    crew.configure("embedder: none\n")
    (crew.root / "knowledge/boats.md").write_text(BOATS)
    (crew.root / "knowledge/pump.md").write_text(PUMP)
    return crew


def result_of(crew: Crew, text: str, attachments: dict[str, str] | None = None) -> str:
    """Return the result of a task with this text and these attachments."""
    folder = crew.root / "tasks/inbox/t"
    folder.mkdir()
    for name, content in {"task.md": text, **(attachments or {})}.items():
        (folder / name).write_text(content)
    until_idle(crew.start())
    return (crew.root / "tasks/done/t/result.md").read_text()


def places(result: str) -> list[str]:
    return re.findall(r"^— `(.*?)`", result, re.MULTILINE)


def test_a_question_that_refers_to_the_sentence_before_it_is_searched_with_that_sentence(crew: Crew) -> None:
    (crew.root / "knowledge/boats.md").write_text(
        BOATS.replace("avoids the", "spends its first night at the quay by the")
    )
    (crew.root / "knowledge/tone.md").write_text("# Tone\n\nAvoid bitter words, and avoid long letters.\n")
    result = result_of(crew, "After the night at the quay the bilge pump is dead. How do I avoid it?\n")
    assert places(result)[0].startswith("knowledge/pump.md:")
    assert "The first quote has the words night, bilge, pump" in result


def test_a_question_with_words_of_its_own_is_searched_for_by_these(crew: Crew) -> None:
    result = result_of(
        crew, "The bilge pump stops. When is it that the Alma is painted, and what does she avoid then?\n"
    )
    assert places(result)[0].startswith("knowledge/boats.md:")


def test_a_question_about_what_is_attached_is_answered_from_it(crew: Crew) -> None:
    note = {"note.txt": "Customer: the Alma lies at pier 20.\n"}
    result = result_of(
        crew, "* Which pier does the attached note name?\n* Where does the Alma of the customer lie?\n", note
    )
    assert result.count("Confidence: likely") == 2
    for answer in result.split("## ")[1:3]:
        assert places(answer)[0] == "tasks/done/t/files/note.txt:1"
    assert "; it is attached. " in result or "; it is attached;" in result


@pytest.mark.parametrize("embedder", ["none", "hashing"])
def test_a_word_that_names_the_attachment_need_not_be_in_it(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, embedder: str
) -> None:
    monkeypatch.setenv("HIVEMIND_EMBEDDER", embedder)
    result = result_of(crew, "What does the log say?\n", {"app.log": "ERROR the winch is jammed\n"})
    assert places(result)[0] == "tasks/done/t/files/app.log:1"
    assert "Confidence: likely" in result


def test_an_attachment_without_the_words_of_a_question_does_not_come_before_an_answer(crew: Crew) -> None:
    result = result_of(crew, "When is the bilge pump battery empty?\n", {"note.txt": "The Alma lies at pier 20.\n"})
    assert places(result)[0].startswith("knowledge/pump.md:")


def test_every_place_that_a_result_names_holds_after_the_task_has_moved(crew: Crew) -> None:
    note = {"note.txt": "The oven was lit by the cook, whom the crew of the Frieda had asked for bread.\n"}
    result = result_of(crew, "* Whom do the crew of the Zora owe bread and butter?\n", note)
    assert "No answer stands out." in result
    assert places(result)[0] == "tasks/done/t/files/note.txt:1"
    assert "tasks/active" not in result


def test_an_unanswered_question_has_one_sentence_the_nearest_places_and_the_words_that_nothing_has(crew: Crew) -> None:
    result = result_of(crew, "How do I overide the dependancy of a rudder when the Alma is in a xebec?\n")
    assert result.count("No answer stands out. ") == 1
    assert "near enough" not in result
    assert "nothing here has overide, dependancy, rudder, xebec" in result
    assert places(result)


@pytest.mark.parametrize("count", [1, 2])
def test_a_finished_task_says_how_many_of_its_questions_have_no_answer(crew: Crew, count: int) -> None:
    questions = ["Who is the queen of Sheba?", "When is the bilge pump battery empty?"]
    result_of(crew, "\n".join(f"* {question}" for question in questions[:count]))
    note = f"no answer to 1 of {count} question{'s' if count > 1 else ''}"
    hive = Hive.open(crew.root)
    [summary] = hive.tasks.list("done")
    assert summary.unanswered == note
    with closing(PageIndex(crew.root)) as index:
        assert index.sync(30)
        [row], _ = index.ended_tasks(["done"], "", "newest", 10, 0)
    assert row.note == note


def test_a_task_whose_questions_are_answered_at_the_next_attempt_says_nothing_of_them(crew: Crew) -> None:
    result_of(crew, "What is a xebec?\n")
    hive = Hive.open(crew.root)
    assert hive.tasks.get("t").unanswered == "no answer to 1 of 1 question"
    (crew.root / "knowledge/xebec.md").write_text("# What is a xebec?\n\nA xebec is a ship with three masts.\n")
    hive.tasks.retry("t")
    until_idle(crew.start())
    assert "three masts" in (crew.root / "tasks/done/t/result.md").read_text()
    assert hive.tasks.get("t").unanswered is None


def test_the_language_is_remarked_upon_only_if_no_near_place_is_in_that_of_the_question(crew: Crew) -> None:
    (crew.root / "knowledge/boot.md").write_text(
        "# Boot\n\nDas Boot wird im Herbst mit einer Plane bedeckt, und die Segel werden getrocknet.\n"
    )
    for name in ("berth", "sails"):
        (crew.root / f"knowledge/{name}.md").write_text(PUMP.replace("pump", name))
    result = result_of(
        crew, "* Wann wird das Boot mit dem Kran gestrichen und getauft?\n* Wer hat die Klarinette gespielt?\n"
    )
    [boat, clarinet] = result.split("## ")[1:3]
    assert "boot.md" in boat
    assert "few words match" not in boat
    assert "few words match" in clarinet


def test_a_quote_says_that_something_in_it_is_masked(crew: Crew) -> None:
    url = "The harbour database is postgresql://scott:tiger@quay/harbour, its copy postgresql://scott:{}@quay/copy."
    (crew.root / "knowledge/database.md").write_text(url.format("Tr0ub4dor"))
    result = result_of(crew, "What is the harbour database and its copy?\n")
    assert "postgresql://scott:tiger@quay/harbour" in result
    assert f"postgresql://{MASK}@quay/copy" in result
    assert result.count(MASK_NOTE) == 1
