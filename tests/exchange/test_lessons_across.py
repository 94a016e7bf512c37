"""Lessons of a root go to linked hives that have a root with the same remote, and to no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from hivemind import Hive
from hivemind.exchange.schema import LESSONS_BYTES, SCHEMA
from hivemind.lessons.choice import book_of, edited
from hivemind.lessons.record import LessonBook
from hivemind.lessons.tracked_lesson import TrackedLesson
from tests.agent.test_worktree import Repo
from tests.exchange.hives import LinkedHive
from tests.postgres import Server
from tests.waiting import until

TEXT = "Run `make test DB=sqlite` instead of `make test`, which fails."
MANY = tuple("abcdefgh")


def add_roots(hive: LinkedHive, **remotes: str) -> None:
    """Give a hive a repository of each name, with that remote."""
    for name, remote in remotes.items():
        repo = Repo(hive.root.parent / f"{hive.name}-{name}")
        repo.commit(a="a\n")
        repo.git("remote", "add", "origin", remote)
    roots = [{"path": f"../{hive.name}-{name}", "worktree": True} for name in remotes]
    with open(hive.root / "hive.yaml", "a") as file:
        file.write(f"roots: {json.dumps(roots)}\n")


def book_in(hive: LinkedHive) -> tuple[Hive, LessonBook]:
    parts = Hive.open(hive.root)
    return parts, book_of(parts, parts.config.worktree_roots(parts.layout)[0])


def lessons(hive: LinkedHive) -> list[tuple[str, str, str]]:
    """The text, state and source of each lesson of a hive's first root."""
    return [(record.text, record.state, record.source) for record in book_in(hive)[1].read()]


def learn(hive: LinkedHive, text: str = TEXT) -> str:
    parts, book = book_in(hive)
    with edited(parts, book) as records:
        record = TrackedLesson(book.new_id(records), text, ("make",), "task `t`, m3 and m5, 2026-11-27", task="t")
        record.change("live", "learned in t")
        records.append(record)
    return record.id


@pytest.fixture
def roots(pair: tuple[LinkedHive, LinkedHive]) -> tuple[LinkedHive, LinkedHive]:
    berlin, munich = pair
    add_roots(berlin, app="https://ann:secret@host/app.git")
    add_roots(munich, app="git@host:app")
    return pair


@pytest.fixture
def munich_role(
    postgres: Server, database: str, pair: tuple[LinkedHive, LinkedHive]
) -> Iterator[psycopg.Connection[Any]]:
    """The role of munich, in tables whose check of lessons was forgotten."""
    name = database.rpartition("/")[2]
    postgres.execute(f"alter table {SCHEMA.name}.hives drop constraint hives_lessons; select 1", name)
    with psycopg.connect(postgres.url(name, user="munich"), autocommit=True) as connection:
        connection.execute(f"set search_path = {SCHEMA.name}".encode())
        yield connection


def test_a_lesson_is_there_until_it_is_retired_and_stays_if_a_person_adopts_it(
    roots: tuple[LinkedHive, LinkedHive], third: LinkedHive
) -> None:
    berlin, munich = roots
    add_roots(third, app="git@host:other")
    kept, lost = learn(munich), learn(munich, "The module boat is slow to import.")
    for hive in (*roots, third):
        hive.start()
    until(lambda: [state for _, state, _ in lessons(berlin)] == ["foreign", "foreign"])
    foreign = book_in(berlin)[1].read()[0].id
    assert "hive munich" in berlin.command("lessons")
    assert "from hive munich, task `t`, m3 and m5, 2026-11-27" in berlin.command("lessons", "show", foreign)
    berlin.command("lessons", "adopt", foreign)
    munich.command("lessons", "forget", kept, lost)
    munich.restart()
    until(lambda: lessons(berlin) == [(TEXT, "live", "person")])
    assert lessons(third) == [], "another remote"
    kinds = [event.kind for event in berlin.hive.journal.events(0) if event.kind.startswith("lesson.")]
    assert kinds == ["lesson.offered", "lesson.offered", "lesson.adopted", "lesson.withdrawn"]


def test_a_hive_that_is_unlinked_has_no_lessons_of_others(roots: tuple[LinkedHive, LinkedHive]) -> None:
    berlin, munich = roots
    learn(munich)
    for hive in roots:
        hive.start()
    until(lambda: lessons(berlin) == [(TEXT, "foreign", "hive munich")])
    berlin.stop()
    berlin.command("unlink")
    assert lessons(berlin) == []


@pytest.mark.parametrize("point", ["lessons.recorded", "no point"])
def test_no_lesson_is_lost_or_doubled_by_kills_and_repeated_delivery(
    roots: tuple[LinkedHive, LinkedHive], point: str
) -> None:
    berlin, munich = roots
    texts = [f"The module number {number} is slow to import." for number in range(5)]
    for text in texts:
        learn(munich, text)
    munich.start()
    berlin.start(HIVEMIND_CRASH_AT=point)
    if point == "lessons.recorded":
        until(lambda: berlin.process is not None and berlin.process.poll() is not None)
    for hive in (munich, berlin, munich, berlin):
        hive.stop(kill=True)
        hive.start()
        until(lambda: sorted(lessons(berlin)) == [(text, "foreign", "hive munich") for text in texts])
    assert len(lessons(munich)) == 5


BAD: dict[str, Any] = {
    "a list": [],
    "a text for a remote": {"host/app": "x"},
    "null": {"host/app": None},
    "deep": {"host/app": json.loads("[" * 900 + "]" * 900)},
    "of 3 MB": {"host/app": [{"text": "x" * 3_000_000}]},
    "many": {"host/app": [{"text": "x"}] * 100_000},
    "of other roots": {"../app": [{"text": TEXT}], "host/app.git": [{"text": TEXT}], "": [{"text": TEXT}]},
}


@pytest.mark.parametrize("row", BAD.values(), ids=BAD)
def test_bad_lessons_of_a_hive_end_alone_also_without_the_check_of_the_server(
    row: Any, roots: tuple[LinkedHive, LinkedHive], munich_role: psycopg.Connection[Any], third: LinkedHive
) -> None:
    berlin, _ = roots
    munich_role.execute("update hives set lessons = %s where name = 'munich'", (Jsonb(row),))
    add_roots(third, app="ssh://host:2222/app/")
    learn(third)
    third.start()
    berlin.start()
    until(lambda: lessons(berlin) == [(TEXT, "foreign", "hive paris")])
    forged = munich_role.execute("update hives set lessons = '{}' where name = 'paris'").rowcount
    assert forged == 0, "row level security"


def test_neither_too_many_lessons_nor_a_bad_file_hold_up_the_exchange(
    pair: tuple[LinkedHive, LinkedHive], munich_role: psycopg.Connection[Any]
) -> None:
    berlin, munich = pair
    add_roots(berlin, a="git@host:a")
    add_roots(munich, **{name: f"git@host:{name}" for name in MANY})
    items = [f"- {number} {'a' * 280} (for `{'b' * 660}/`)\n" for number in range(50)]
    for folder, names, text in ((munich, MANY, "".join(items)), (berlin, ("a",), "x" * (2 << 20))):
        (folder.root / "knowledge/lessons").mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder.root / f"knowledge/lessons/{folder.name}-{name}.md").write_text(text)
        folder.start()
    query = "select jsonb_object_keys(lessons), octet_length(lessons::text) from hives where name = 'munich'"
    rows = until(lambda: munich_role.execute(query.encode()).fetchall())
    assert [name for name, _ in rows] == [f"host/{name}" for name in "abcdef"]
    assert LESSONS_BYTES * 0.8 < rows[0][1] < LESSONS_BYTES
    until(lambda: "munich" in berlin.hive.linked_hives.agents)
    berlin.hive.mail.send("coder", "coder@munich", "Good day", "still")
    until(lambda: "Good day" in munich.subjects("coder"))
