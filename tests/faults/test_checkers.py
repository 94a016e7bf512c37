"""The checkers see: a hive that kept every promise is broken by hand in one place, and somebody notices."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.faults.scenarios import SCENARIOS
from tests.faults.subject import Subject
from tests.faults.tasks import conversation
from tests.faults.trial import Trial, check, recover
from tests.program import Warm


@pytest.fixture(scope="module")
def played(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    """A scenario that was played to its end, without a fault."""
    done: dict[str, Subject] = {}

    def play(name: str) -> Subject:
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            subject = Subject(folder / "hive", folder / "beside", Random(1), warm)
            for made in (subject.root, subject.scratch):
                made.mkdir()
            SCENARIOS[name].prepare(subject)
            with subject.follow_log():
                SCENARIOS[name].play(subject)
            trial = Trial(name, "none", 1, "full")
            recover(SCENARIOS[name], subject, trial)
            assert not trial.violations, trial.violations
            done[name] = subject
        return done[name]

    return play


def journal(root: Path) -> Path:
    return root / ".hive/journal/journal.jsonl"


def without_a_line(root: Path) -> None:
    lines = journal(root).read_text().splitlines(keepends=True)
    journal(root).write_text("".join(lines[:3] + lines[4:]))


def without_the_last_lines(root: Path) -> None:
    """As if they had never been: nobody but who was shown them can know."""
    lines = journal(root).read_text().splitlines(keepends=True)
    journal(root).write_text("".join(lines[:10]))


def letter(root: Path, box: str, name: str) -> Path:
    places = (path for path in (root / "mailboxes" / box).glob("*/*") if path.is_file())
    return next(path for path in places if f"<{name}@hive>" in path.read_text("utf-8", "replace"))


def a_second_copy(path: Path) -> None:
    shutil.copy(path, path.with_name(f"again.{path.name}"))


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-400])


def garble(path: Path) -> None:
    path.write_text(path.read_text().replace('"id"', "id", 1))


def change(path: Path, how: Callable[[str], str]) -> None:
    path.write_text(how(path.read_text()))


def result_of(folder: Path, tool: str) -> str:
    """The line of a conversation with the result of the last call of a tool."""
    messages = conversation(folder)[0]
    call = [call["id"] for one in messages for call in one.get("calls", ()) if call["tool"] == tool][-1]
    lines = (folder / "messages.jsonl").read_text().splitlines(keepends=True)
    return next(line for line in lines if f'"call_id":"{call}"' in line)


def without_a_result(folder: Path, tool: str) -> None:
    line = result_of(folder, tool)
    change(folder / "messages.jsonl", lambda text: text.replace(line, ""))


def with_a_second_result(folder: Path) -> None:
    line = result_of(folder, "add_card")
    change(folder / "messages.jsonl", lambda text: text.replace(line, line + line))


def with_a_hole(folder: Path, tool: str) -> None:
    line = result_of(folder, tool)
    change(folder / "messages.jsonl", lambda text: text.replace(line, "\0" * len(line)))


def mark_again(beside: Path, name: str) -> None:
    with open(beside / "marks" / name, "a") as file:
        file.write("ran\n")


BROKEN: dict[str, tuple[str, Callable[[Path, Path], object], str]] = {
    "a task is gone": ("tasks", lambda root, _: shutil.rmtree(root / "tasks/done/run"), "P1"),
    "a task has a double": (
        "tasks",
        lambda root, _: shutil.copytree(root / "tasks/done/run", root / "tasks/done/run-2"),
        "P3",
    ),
    "a task has not ended": ("tasks", lambda root, _: (root / "tasks/done/run").rename(root / "tasks/inbox/run"), "P2"),
    "a task ended otherwise": (
        "tasks",
        lambda root, _: (root / "tasks/done/run").rename(root / "tasks/failed/run"),
        "P2",
    ),
    "a result is gone": ("tasks", lambda root, _: (root / "tasks/done/plain/result.md").unlink(), "P11"),
    "a conversation is damaged": ("tasks", lambda root, _: garble(root / "tasks/done/plain/messages.jsonl"), "P11"),
    "a result of a call is gone": (
        "tasks",
        lambda root, _: without_a_result(root / "tasks/done/plain", "finish_step"),
        "P11",
    ),
    "a conversation is torn behind its end": (
        "tasks",
        lambda root, _: change(root / "tasks/done/plain/messages.jsonl", lambda text: text + '{"id":'),
        "P11",
    ),
    "a conversation has a hole": ("tasks", lambda root, _: with_a_hole(root / "tasks/done/run", "finish_step"), "P11"),
    "a model's call has no result": (
        "turn",
        lambda root, _: without_a_result(root / "tasks/done/boat", "add_card"),
        "P49",
    ),
    "a model's call has two results": ("turn", lambda root, _: with_a_second_result(root / "tasks/done/boat"), "P49"),
    "a text is another one": ("tasks", lambda root, _: (root / "tasks/failed/broken/broken.md").write_text("x"), "P7"),
    "a command never ran": ("tasks", lambda _, beside: (beside / "marks/run").unlink(), "P4"),
    "a command ran twice": ("tasks", lambda _, beside: mark_again(beside, "once"), "P5"),
    "an event is gone": ("tasks", lambda root, _: without_a_line(root), "P20"),
    "events that were shown are gone": ("tasks", lambda root, _: without_the_last_lines(root), "P20"),
    "a half-written file is left": ("tasks", lambda root, _: (root / "knowledge/.tmp-1-1").touch(), "P40"),
    "a letter is gone": ("letters", lambda root, _: letter(root, "ada", "one").unlink(), "P13"),
    "a letter is there twice": ("letters", lambda root, _: a_second_copy(letter(root, "ada", "one")), "P13"),
    "a letter is torn": ("letters", lambda root, _: shorten(letter(root, "bob", "both")), "P13"),
    "the sender has no copy": (
        "letters",
        lambda root, _: [path.unlink() for path in (root / "mailboxes/human/.Sent/cur").iterdir()],
        "P14",
    ),
    "a question has two answers": (
        "letters",
        lambda root, _: [a_second_copy(path) for path in sorted((root / "mailboxes/human/new").iterdir())],
        "P16",
    ),
    "a note is gone": (
        "letters",
        lambda root, _: [path.unlink() for path in (root / "mailboxes/ada").glob("*/hand-2*")],
        "P17",
    ),
}


def found_in(whole: Subject, scenario: str, folder: Path, break_it: Callable[[Path, Path], object]) -> dict[str, str]:
    """What the checkers say of a copy that was broken: a promise's number -> a sentence."""
    subject = replace(whole, root=folder / "hive", scratch=folder / "beside", commands=[])
    shutil.copytree(whole.root, subject.root, symlinks=True)
    shutil.copytree(whole.scratch, subject.scratch, symlinks=True)
    break_it(subject.root, subject.scratch)
    return {one: sentence for promises, _, sentence in check(subject, SCENARIOS[scenario].checkers) for one in promises}


@pytest.mark.parametrize(("scenario", "task"), [("tasks", "plain"), ("turn", "boat")])
def test_what_tells_of_a_tasks_end_may_be_missing(
    scenario: str, task: str, played: Callable[[str], Subject], tmp_path: Path
) -> None:
    cut = lambda root, _: without_a_result(root / "tasks/done" / task, "finish_task")  # noqa: E731
    assert found_in(played(scenario), scenario, tmp_path, cut) == {}


@pytest.mark.parametrize("what", BROKEN)
def test_a_promise_that_is_broken_is_noticed(what: str, played: Callable[[str], Subject], tmp_path: Path) -> None:
    scenario, break_it, promise = BROKEN[what]
    found = found_in(played(scenario), scenario, tmp_path, break_it)
    assert promise in found, f"nobody noticed that {what}: {json.dumps(found, indent=1)}"
