"""What people see of lessons and decide: on the command line, on the page, and in a commit to AGENTS.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.lessons.choice import book_of, edited
from hivemind.lessons.tracked_lesson import TrackedLesson
from tests.agent.conftest import crew
from tests.cli.conftest import Command, process
from tests.landing.conftest import Harbour, harbour
from tests.web.conftest import Site, own_site

__all__ = ["crew", "harbour", "own_site", "process"]
TEXT = "Run `make test DB=sqlite` instead of `make test`, which fails."


def learn(root: Path, text: str = TEXT, path: Path | None = None, state: str = "live") -> str:
    hive = Hive.open(root)
    book = book_of(hive, path)
    with edited(hive, book) as records:
        record = TrackedLesson(
            book.new_id(records), text, ("make",), "task `t`, m3", task="t", failed="make test", passed="make"
        )
        record.change(state, "learned in t")
        records.append(record)
        return record.id


def state(root: Path, number: int = 0, path: Path | None = None) -> str:
    return book_of(Hive.open(root), path).read()[number].state


def test_the_page_shows_the_evidence_and_edits_deletes_and_puts_back(own_site: Site) -> None:
    root = own_site.hive.layout.root
    learn(root)
    learn(root, "Sew with waxed thread.", state="waiting")
    shown = own_site.get("/lessons").text
    assert "make test DB=sqlite" in shown
    assert "tasks/t" in shown
    assert "is live" in own_site.followed(own_site.post("lesson-adopt", id="general-2"))
    assert state(root, 1) == "live"
    assert "is deleted" in own_site.followed(own_site.post("lesson-forget", id="general-2"))
    assert state(root, 1) == "retired"
    assert "is live" in own_site.followed(own_site.post("lesson-adopt", id="general-2")), "put back"
    assert "is now general-3" in own_site.followed(
        own_site.post("lesson-edit", id="general-2", text="Sew with\nthread.")
    )
    assert "- Sew with thread. (for `make`)\n" in (root / "knowledge/lessons/general.md").read_text()
    assert own_site.post("lesson-forget", id="general-9").status == 400
    assert own_site.post("lesson-edit", id="general-3", text=" ").status == 400


def test_the_page_names_the_hive_of_a_foreign_lesson_and_adopts_it(own_site: Site) -> None:
    hive, text = own_site.hive, "The sails are sewn in Hamburg."
    path = hive.layout.lessons / "general.md"
    with edited(hive, book_of(hive, None)) as records:
        records.append(TrackedLesson("general-0a1b2c3d", text, hive="munich"))
        records[-1].change("foreign", "hive munich offers it")
    assert "from hive munich" in own_site.get("/lessons").text
    assert not path.exists() or text not in path.read_text()
    own_site.post("lesson-adopt", id="general-0a1b2c3d")
    assert "from hive munich" not in own_site.get("/lessons").text
    assert text in path.read_text()


def test_lessons_are_proposed_to_agents_md_and_taken_out_again(harbour: Harbour, process: Command) -> None:
    path = harbour.repo.path
    harbour.repo.commit(**{"AGENTS.md": "Use make.\n"})
    lesson = learn(harbour.root, path=path)
    learn(harbour.root, "Sew with waxed thread.", path, state="waiting")

    def propose(status: int = 0) -> str:
        ended = process("lessons", "propose", "app", HIVEMIND_HIVE=str(harbour.root))
        assert ended.status == status, ended.err
        return ended.out + ended.err

    assert ": landed, main has " in propose()
    assert (path / "AGENTS.md").read_text() == f"Use make.\n\n## Lessons\n\n- {TEXT} (for `make`)\n"
    assert harbour.repo.git("log", "-1", "--format=%s").startswith("Lessons in AGENTS.md")
    assert "no lesson is new or retired" in propose(2)
    lessons_file = harbour.root / "knowledge/lessons/app.md"
    lessons_file.write_text(lessons_file.read_text().replace("sqlite", "memory"))
    propose()
    edited_line = f"- {TEXT.replace('sqlite', 'memory')} (for `make`)\n"
    assert (path / "AGENTS.md").read_text() == f"Use make.\n\n## Lessons\n\n{edited_line}"
    assert "no lesson is new or retired" in propose(2)
    process("lessons", "forget", lesson, HIVEMIND_HIVE=str(harbour.root))
    propose()
    assert (path / "AGENTS.md").read_text() == "Use make.\n\n## Lessons\n\n"
    assert state(harbour.root, path=path) == "retired"


def test_a_proposal_that_waits_for_a_person_is_listed_and_lands_without_a_swarm(
    harbour: Harbour, process: Command
) -> None:
    harbour.configure(land="ask")
    learn(harbour.root, path=harbour.repo.path)
    ended = process("lessons", "propose", "app", HIVEMIND_HIVE=str(harbour.root))
    assert (ended.status, ended.out.split(",")[0]) == (3, "lessons-app-1: waits")
    assert "lessons-app-1" in process("land", HIVEMIND_HIVE=str(harbour.root)).out
    assert process("land", "lessons-app-1", HIVEMIND_HIVE=str(harbour.root)).status == 0
    assert TEXT in (harbour.repo.path / "AGENTS.md").read_text()


def test_a_link_in_place_of_agents_md_is_not_written(harbour: Harbour, process: Command) -> None:
    (harbour.repo.path / "AGENTS.md").symlink_to("boat")
    harbour.repo.commit()
    learn(harbour.root, path=harbour.repo.path)
    ended = process("lessons", "propose", "app", HIVEMIND_HIVE=str(harbour.root))
    assert "is not a regular file" in ended.err


@pytest.fixture(autouse=True)
def _no_hive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIVEMIND_HIVE", raising=False)
