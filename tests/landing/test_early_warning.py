"""A conflict of two branches is news to the task that came later, as soon as one of them has committed it."""

from __future__ import annotations

import json

import pytest

from hivemind import Hive
from hivemind.landing import early_warning
from hivemind.views import signals
from tests.landing.conftest import FINISH, writes
from tests.messages import messages_of

LOOK = ("read_file", {"path": "src/sail"})


@pytest.fixture
def pair(harbour):
    """Two tasks under way: `first` of ada, which came first, and `later` of bob."""
    for agent, task in (("ada", "first"), ("bob", "later")):
        harbour.agent(agent)
        harbour.crew.drop(f"---\nassignee: {agent}\n---\nDo {task}.\n", f"{task}.md")
        harbour.turn(LOOK, by=agent)
    return harbour


def news(harbour, task: str) -> list[str]:
    texts = [message["text"] for message in messages_of(harbour.root / "tasks/active" / task) if message.get("news")]
    return [text for text in texts if "the same lines" in text]


def seen(harbour, task: str) -> list[str]:
    return [s["message"] for s in signals(Hive.open(harbour.root), task=task) if s["code"] == "OVERLAP"]


EXPECTED = "`ada` has changed the same lines of `boat` for *Do first.* (`first`)"


@pytest.mark.parametrize("order", [("ada", "bob"), ("bob", "ada")])
def test_the_task_that_came_later_hears_of_a_conflict_once_whoever_commits_last(pair, order):
    texts = {"ada": "a red boat\n", "bob": "a blue boat\n"}
    for agent in order:
        pair.turn(*writes(boat=texts[agent]), by=agent)
    for _ in range(2):
        pair.turn(LOOK, by="ada")
        pair.turn(LOOK, by="bob")
    assert [text.startswith(EXPECTED) for text in news(pair, "later")] == [True]
    assert news(pair, "first") == []
    assert seen(pair, "later") == [EXPECTED]
    assert seen(pair, "first") == []


def test_a_conflict_that_is_gone_is_no_signal_any_more(pair):
    pair.turn(*writes(boat="a red boat\n"), by="ada")
    pair.turn(*writes(boat="a blue boat\n"), by="bob")
    assert seen(pair, "later") == [EXPECTED]
    pair.turn(*writes(boat="a red boat\n"), by="bob")
    assert seen(pair, "later") == []
    pair.turn(*writes(boat="a violet boat\n"), by="ada")
    assert seen(pair, "later") == [EXPECTED]
    Hive.open(pair.root).tasks.cancel("first")
    assert seen(pair, "later") == []


def test_a_conflict_is_gone_when_the_task_that_came_first_has_given_way(pair):
    pair.turn(*writes(boat="a red boat\n"), by="ada")
    pair.turn(*writes(boat="a blue boat\n"), by="bob")
    assert seen(pair, "later") == [EXPECTED]
    pair.turn(*writes(boat="a blue boat\n"), by="ada")
    assert seen(pair, "later") == []


def test_branches_that_change_other_files_are_not_merged(pair, monkeypatch):
    def refuse(*_: object) -> tuple[str, ...]:
        raise AssertionError

    monkeypatch.setattr(early_warning, "rehearse_merge", refuse)
    pair.turn(*writes(boat="a red boat\n"), by="ada")
    pair.turn(*writes(mast="a mast\n"), by="bob")
    pair.turn(*writes(mast="a taller mast\n"), by="bob")
    assert seen(pair, "later") == []


def test_the_same_file_in_other_lines_is_no_conflict(harbour):
    harbour.repo.commit(list="".join(f"line {number}\n" for number in range(20)))
    lines = harbour.repo.show("main", "list").splitlines()
    for agent, task, at in (("ada", "first", 0), ("bob", "later", 19)):
        harbour.agent(agent)
        harbour.crew.drop(f"---\nassignee: {agent}\n---\nDo {task}.\n", f"{task}.md")
        text = "\n".join([*lines[:at], "changed", *lines[at + 1 :], ""])
        harbour.turn(*writes(list=text), by=agent)
    harbour.turn(LOOK, by="bob")
    assert news(harbour, "later") == []
    assert seen(harbour, "later") == []


def test_a_conflict_with_what_has_landed_is_news(pair):
    pair.turn(*writes(boat="a red boat\n"), *FINISH, by="ada")
    pair.land()
    pair.turn(*writes(boat="a blue boat\n"), by="bob")
    pair.turn(LOOK, by="bob")
    assert [text.partition(".")[0] for text in news(pair, "later")] == [
        "`main` has other changes in the same lines of `boat`"
    ]


def test_notes_of_tasks_that_are_over_go(pair):
    pair.turn(*writes(boat="a red boat\n"), by="ada")
    Hive.open(pair.root).tasks.cancel("first")
    pair.turn(*writes(boat="a blue boat\n"), by="bob")
    assert [path.stem for path in pair.root.glob(".hive/landing/*/branches/*")] == ["later"]


@pytest.mark.parametrize("text", ["", "{", json.dumps({"kind": "branch note", "version": 1, "task": 3}), "x" * 9])
def test_a_note_that_cannot_be_read_stops_nobody(pair, text):
    pair.turn(*writes(boat="a red boat\n"), by="ada")
    (note,) = pair.root.glob(".hive/landing/*/branches/*")
    note.write_text(text)
    pair.turn(*writes(boat="a blue boat\n"), by="bob")
    assert seen(pair, "later") == []
    pair.turn(*writes(boat="a green boat\n"), by="ada")
    assert seen(pair, "later") == [EXPECTED]
