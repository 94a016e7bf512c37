"""What is published: a source that has changed since is named, and what a person calls wrong is not quoted again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.documents.wrong_quotes import calls_wrong
from hivemind.errors import UserError
from hivemind.minds.extractive import plan_steps
from hivemind.taskrun.published import quotes_in, say, stale_sources

QUESTION = "When does the ferry leave on Sundays?"
FERRY = "On Sundays the ferry to the island leaves from pier three at ten past nine in the morning."
OLD = "In 1998 the ferry left on Sundays at six from the old quay, and an hour later in winter."


@pytest.fixture
def hive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hive:
    monkeypatch.setenv("HIVEMIND_EMBEDDER", "none")
    hive = Hive.init(tmp_path / "hive")
    (hive.layout.knowledge / "ferry.md").write_text(f"# Ferry\n\n{FERRY}\n")
    (hive.layout.knowledge / "old.md").write_text(f"# Before\n\n{OLD}\n")
    hive.knowledge.sync()
    finish(hive, "ferry")
    return hive


def finish(hive: Hive, task_id: str) -> None:
    hive.tasks.add(QUESTION, id=task_id)
    task = hive.tasks.claims.claim_one("analyst", task_id)
    assert task is not None
    quotes = [
        f"> {text}\n\n— `knowledge/{name}:3` (sha256 {digest(hive, name)[:12]})\n"
        for name, text in (("ferry.md", FERRY), ("old.md", OLD))
    ]
    hive.tasks.finish(task, "\n".join(["# The ferry\n", *quotes]))


def digest(hive: Hive, name: str) -> str:
    return hashlib.sha256((hive.layout.knowledge / name).read_bytes()).hexdigest()


def quoted(hive: Hive) -> set[str]:
    hive.knowledge.sync()
    return {Path(passage.path).name for passage in hive.knowledge.search(QUESTION)}


def test_the_quotes_of_a_result_are_read_from_it(hive: Hive) -> None:
    quotes = quotes_in((hive.layout.done / "ferry/result.md").read_text())
    assert [(quote.place, quote.text) for quote in quotes] == [
        ("knowledge/ferry.md:3", FERRY),
        ("knowledge/old.md:3", OLD),
    ]


def test_a_path_of_two_lines_is_read_from_a_quote() -> None:
    [quote] = quotes_in(f"> {OLD}\n\n— `knowledge/old\nand new.md:3` (sha256 0123456789ab)\n")
    assert quote.path == "knowledge/old\nand new.md"


def test_a_source_that_was_changed_or_deleted_since_is_named(hive: Hive) -> None:
    task = hive.tasks.get("ferry")
    assert list(stale_sources(hive, task)) == []
    with open(hive.layout.knowledge / "old.md", "a") as file:
        file.write("\nMore.\n")
    (hive.layout.knowledge / "ferry.md").unlink()
    assert list(stale_sources(hive, task)) == [
        "knowledge/ferry.md was deleted, or cannot be read, since it was quoted",
        "knowledge/old.md was changed since it was quoted",
    ]


def test_a_file_of_the_task_itself_is_looked_for_where_the_task_is_now(hive: Hive) -> None:
    folder = hive.layout.done / "ferry"
    (folder / "note.txt").write_text("The ferry is late.\n")
    quoted_digest = hashlib.sha256((folder / "note.txt").read_bytes()).hexdigest()[:12]
    with open(folder / "result.md", "a") as file:
        file.write(f"\n> The ferry is late.\n\n— `tasks/active/ferry/note.txt:1` (sha256 {quoted_digest})\n")
    assert list(stale_sources(hive, hive.tasks.get("ferry"))) == []


def test_what_is_called_wrong_is_not_quoted_again_until_its_file_changes(hive: Hive) -> None:
    assert quoted(hive) == {"ferry.md", "old.md"}
    said = say(hive, "ferry", "That is wrong: knowledge/old.md:3")
    assert said.path == hive.layout.inbox / "ferry"
    assert said.wrong_places == ("knowledge/old.md:3",)
    assert quoted(hive) == {"ferry.md"}
    (hive.layout.knowledge / "old.md").rename(hive.layout.knowledge / "history.md")
    assert quoted(hive) == {"ferry.md"}, "a new name is no change"
    (hive.layout.knowledge / "history.md").rename(hive.layout.knowledge / "old.md")
    (hive.layout.knowledge / "old.md").write_text(f"# Before\n\n{OLD}\n\nThis is history.\n")
    assert quoted(hive) == {"ferry.md", "old.md"}


def test_quotes_of_a_linked_hives_documents_are_neither_looked_up_nor_banned_here(hive: Hive) -> None:
    task = hive.tasks.claims.claim_one("analyst", hive.tasks.add("Ask Paris."))
    assert task is not None
    hive.tasks.active.keep(task, "hive", "paris")
    hive.tasks.finish(task, f"> {OLD}\n\n— `knowledge/paris.md:3` (sha256 0123456789ab)\n")
    assert list(stale_sources(hive, hive.tasks.get(task.id))) == []
    said = say(hive, task.id, "That is wrong.")
    assert said.consequence == "paris may quote this again until it is called wrong there: knowledge/paris.md:3"
    assert not hive.layout.wrong_quotes.exists()


def test_without_a_place_every_quote_of_the_result_is_called_wrong(hive: Hive) -> None:
    said = say(hive, "ferry", "that is wrong")
    assert len(said.wrong_places) == 2
    assert quoted(hive) == set()
    text = hive.layout.wrong_quotes.read_text()
    assert FERRY in text
    assert "said: that is wrong" in text
    hive.layout.wrong_quotes.unlink()  # as a person may
    assert quoted(hive) == {"ferry.md", "old.md"}


@pytest.mark.parametrize(
    ("place", "paths"),
    [
        ("old.md:4", ["old.md"]),
        ("`knowledge/old.md:2-3`.", ["old.md"]),
        ("knowledge/old.md", ["old.md"]),
        ("old.md:3 and knowledge/ferry.md:3", ["old.md", "ferry.md"]),
        ("it leaves at 9:10", ["ferry.md", "old.md"]),
    ],
)
def test_a_place_may_be_a_line_of_a_quote_or_its_file(hive: Hive, place: str, paths: list[str]) -> None:
    result = hive.layout.done / "ferry/result.md"
    result.write_text(result.read_text().replace("old.md:3", "old.md:3-4"))
    said = say(hive, "ferry", f"That is wrong: {place}")
    assert [Path(place).name.split(":")[0] for place in said.wrong_places] == paths


def test_a_task_that_is_in_the_inbox_again_is_called_wrong_for_its_latest_result(hive: Hive) -> None:
    say(hive, "ferry", "And what does it cost?")
    said = say(hive, "ferry", "And old.md is wrong: knowledge/old.md:3")
    assert said.wrong_places == ("knowledge/old.md:3",)
    assert quoted(hive) == {"ferry.md"}
    task = hive.tasks.claims.claim_one("analyst", "ferry")
    assert task is not None
    said = say(hive, "ferry", "The rest is wrong, too: knowledge/ferry.md")
    assert quoted(hive) == set()


def test_that_an_answer_to_several_questions_is_wrong_asks_which_quotes(hive: Hive) -> None:
    result = hive.layout.done / "ferry/result.md"
    first, second, third = result.read_text().split("\n> ")
    result.write_text(f"{first}\n## When?\n\n> {second}\n## And before?\n\n> {third}")
    with pytest.raises(
        UserError, match=r"2 questions have quotes; name the wrong quotes: knowledge/f.*, knowledge/old.md:3"
    ):
        say(hive, "ferry", "That is wrong.")
    assert not hive.layout.wrong_quotes.exists()
    say(hive, "ferry", "That is wrong: knowledge/old.md:3")
    assert quoted(hive) == {"ferry.md"}


@pytest.mark.parametrize("place", ["knowledge/old.md:7", "knowledge/odl.md:3", "ld.md:3"])
def test_a_place_that_is_none_of_the_quotes_is_refused_with_their_list(hive: Hive, place: str) -> None:
    with pytest.raises(UserError, match=r"is not quoted.*knowledge/ferry.md:3, knowledge/old.md:3"):
        say(hive, "ferry", f"That is wrong: {place}")
    assert not hive.layout.wrong_quotes.exists()
    assert (hive.layout.done / "ferry").is_dir()


def test_a_place_in_a_result_without_quotes_is_part_of_what_the_person_says(hive: Hive) -> None:
    (hive.layout.done / "ferry/result.md").write_text("# Done\n")
    said = say(hive, "ferry", "That is wrong: dates.py:12 divides by zero.")
    assert said.path == hive.layout.inbox / "ferry"
    assert said.wrong_places == ()


def test_another_format_of_a_wrong_document_is_not_quoted_either(hive: Hive) -> None:
    (hive.layout.knowledge / "ferry.html").write_text(f"<h1>Ferry</h1><p>{FERRY}</p>")
    assert "ferry.html" in quoted(hive)
    say(hive, "ferry", "That is wrong.")
    assert quoted(hive) == set()


def test_a_list_that_a_person_has_damaged_stops_no_answer_and_is_not_written_over(
    hive: Hive, caplog: pytest.LogCaptureFixture
) -> None:
    hive.layout.wrong_quotes.write_text("- path: [knowledge\n")
    assert quoted(hive) == {"ferry.md", "old.md"}
    assert "wrong-quotes.yaml" in caplog.text
    with pytest.raises(UserError, match="wrong-quotes"):
        say(hive, "ferry", "that is wrong")
    assert hive.layout.wrong_quotes.read_text() == "- path: [knowledge\n"


def test_what_is_said_of_a_finished_task_is_part_of_its_next_attempt(hive: Hive) -> None:
    say(hive, "ferry", "And what does it cost?")
    assert not hive.layout.wrong_quotes.exists()
    task = hive.tasks.claims.claim_one("analyst", "ferry")
    assert task is not None
    assert [step.text for step in plan_steps(task.title, task.full_text)] == [QUESTION, "And what does it cost?"]


def test_an_objection_is_no_question() -> None:
    text = "Describe the ferry\n\nAdded by human at 2026-11-26T22:00:00.000+00:00:\nThat is wrong.\n"
    assert [step.text for step in plan_steps("Describe the ferry", text)] == ["Describe the ferry"]


def test_only_a_statement_calls_something_wrong() -> None:
    assert calls_wrong("Sorry. That is wrong")
    assert calls_wrong("Das ist falsch.")
    assert not calls_wrong("What is wrong with the ferry?")
    assert not calls_wrong("Thank you, that is right.")
