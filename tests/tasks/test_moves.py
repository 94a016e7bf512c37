"""What people do by hand, and what agents do late."""

from __future__ import annotations

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from hivemind.errors import UserError
from hivemind.frontmatter import parse, split
from hivemind.layout import LANDING, Layout
from hivemind.tasks import ParkedTask, Task, TaskMoved, TaskProblem, Tasks, TaskState

from .conftest import drop, opened


@pytest.fixture
def task(layout: Layout, tasks: Tasks) -> Task:
    drop(layout, "leak.md", "find the leak")
    found = tasks.claim("scout")
    assert found is not None
    return found


def rested(tasks: Tasks, agent: str = "scout") -> Task:
    time.sleep(0.03)  # a folder is claimed when it has rested for the settle time, 20 ms here
    found = tasks.claim(agent)
    assert found is not None
    return found


@pytest.mark.parametrize("place", ["done", "failed"])
def test_a_folder_moved_back_to_the_inbox_is_a_retry(layout: Layout, tasks: Tasks, task: Task, place: str):
    tasks.active.log(task, {"n": 1})
    left = tasks.finish(task, "one") if place == "done" else tasks.fail(task, "one")
    os.rename(left, layout.inbox / left.name)
    again = rested(tasks, "clerk")
    assert (again.id, again.owner, again.attachments) == ("leak", "clerk", ())
    attempt = again.path / "attempts" / "1"
    assert {"messages.jsonl", "task.json", "result.md" if place == "done" else "error.md"} == set(os.listdir(attempt))
    tasks.finish(again, "two")
    tasks.retry("leak")
    third = rested(tasks)
    assert sorted(os.listdir(third.path / "attempts")) == ["1", "2"]


def test_a_retry_keeps_what_was_added_but_not_what_landing_said_of_the_earlier_branch(tasks: Tasks, task: Task):
    for by in ("human", LANDING, "clerk"):
        tasks.active.say("leak", f"Says {by}.", by=by)
    for _ in range(2):
        tasks.fail(task, "no pump")
        tasks.retry("leak")
        task = rested(tasks)
        assert [addition.text for addition in task.said] == ["Says human.", "Says clerk."]


def test_a_bad_file_is_mended_in_failed_and_moved_back(layout: Layout, tasks: Tasks):
    drop(layout, "bad.md", "---\nnonsense: 1\n---\nfix me")
    assert tasks.claim("scout") is None
    (layout.failed / "bad" / "bad.md").write_text("fixed")
    os.rename(layout.failed / "bad", layout.inbox / "bad")
    assert rested(tasks).text == "fixed"


def test_a_retry_of_what_is_not_there_or_waits_already_is_refused(layout: Layout, tasks: Tasks, task: Task):
    with pytest.raises(UserError, match="no failed or finished task"):
        tasks.retry("leak")
    tasks.finish(task, "r")
    (layout.inbox / "leak").mkdir()
    with pytest.raises(UserError, match="waits already"):
        tasks.retry("leak")


@pytest.mark.parametrize("claimed_anew", [False, True])
def test_a_result_that_comes_after_the_folder_was_moved_is_kept_beside_the_new_attempt(
    layout: Layout, tasks: Tasks, task: Task, claimed_anew: bool
):
    os.rename(task.path, layout.inbox / "leak")
    anew = rested(tasks, "clerk") if claimed_anew else None
    with pytest.raises(TaskMoved) as moved:
        tasks.finish(task, "late")
    kept = moved.value.kept
    assert kept is not None
    assert kept == (layout.active if claimed_anew else layout.inbox) / "leak" / "attempts" / "late-scout"
    assert (kept / "result.md").read_text() == "late"
    if anew is not None:
        assert not (anew.path / "result.md").exists()
        assert (tasks.finish(anew, "in time") / "result.md").read_text() == "in time"


def test_every_late_write_is_turned_away(layout: Layout, tasks: Tasks, task: Task):
    os.rename(task.path, layout.inbox / "leak")
    for late in (
        lambda: tasks.active.log(task, {"x": 1}),
        lambda: tasks.active.park(task, "x"),
        lambda: tasks.active.unpark(task),
        lambda: tasks.release(task),
        lambda: tasks.fail(task, "x"),
    ):
        with pytest.raises(TaskMoved):
            late()
    anew = rested(tasks, "clerk")
    with pytest.raises(TaskMoved, match="belongs to clerk now"):
        tasks.active.log(task, {"x": 1})
    assert sorted(os.listdir(anew.path)) == ["attempts", "task.json", "task.md"]


def test_a_task_deleted_by_hand_is_withdrawn_and_its_result_is_not_kept(tasks: Tasks, task: Task):
    shutil.rmtree(task.path)
    with pytest.raises(TaskMoved) as moved:
        tasks.finish(task, "late")
    assert moved.value.kept is None


def test_an_agents_earlier_process_writes_nothing_more_once_its_successor_has_started(tasks: Tasks, task: Task):
    (anew,) = tasks.mine("scout", incarnation=2)
    with pytest.raises(TaskMoved, match="belongs to scout now"):
        tasks.finish(task, "from the past")
    tasks.finish(anew, "from now")
    assert tasks.get("leak").state is TaskState.DONE


def test_something_that_lies_in_the_way_is_not_replaced(layout: Layout, tasks: Tasks, task: Task):
    (layout.done / "leak").mkdir()
    (layout.done / "leak" / "mine.txt").write_text("a person's")
    assert tasks.finish(task, "r") == layout.done / "leak-2"
    assert (layout.done / "leak" / "mine.txt").read_text() == "a person's"
    (record,) = tasks.listing.read_log("leak-2")
    assert "tasks/done/leak" in record["why"]


def test_a_folder_that_a_person_put_into_active_is_nobodys_and_is_shown(layout: Layout, tasks: Tasks):
    (layout.active / "odd").mkdir()
    (layout.active / "odd" / "task.md").write_text("x")
    assert tasks.mine("scout") == []
    (summary,) = tasks.list("active")
    assert (summary.id, summary.owner) == ("odd", None)
    (orphan,) = tasks.recovery.orphans(alive=("scout",))
    assert (orphan.id, orphan.agent) == ("odd", None)


def test_an_active_task_whose_record_was_spoiled_fails_at_the_restart_and_stops_nobody(
    tasks: Tasks, task: Task, layout: Layout
):
    drop(layout, "other.md", "x")
    other = tasks.claim("scout")
    record = task.path / "task.json"
    record.write_text(record.read_text().replace("find the leak", "---\\nnonsense: 1\\n---\\n"))
    assert opened(layout).mine("scout") == [other]
    assert "task.json was changed" in (layout.failed / "leak" / "error.md").read_text()


def test_a_task_whose_record_is_damaged_fails_and_stops_nobody(layout: Layout, tasks: Tasks, task: Task):
    (task.path / "task.json").write_text("{")
    assert opened(layout).mine("scout") == []
    assert "task.json was changed" in (layout.failed / "leak" / "error.md").read_text()
    (summary,) = tasks.list("failed")
    assert "task.json" in summary.problem


# parking, releasing, cancelling


def test_a_parked_task_says_why_until_it_goes_on(layout: Layout, tasks: Tasks, task: Task):
    until = datetime(2030, 1, 1, tzinfo=UTC)
    tasks.active.park(task, "waits for mail from clerk", until)
    (again,) = opened(layout).mine("scout")
    assert isinstance(again.parked, ParkedTask)
    assert (again.parked.reason, again.parked.until) == ("waits for mail from clerk", until)
    (summary,) = tasks.list("active")
    assert summary.parked == again.parked
    tasks.active.unpark(task)
    assert tasks.mine("scout") == [task]


def test_a_released_task_is_claimed_by_another_who_goes_on_with_its_log(tasks: Tasks, task: Task):
    tasks.active.log(task, {"step": 1})
    tasks.active.park(task, "no time")
    tasks.release(task)
    anew = rested(tasks, "clerk")
    assert (anew.id, anew.owner, anew.parked) == ("leak", "clerk", None)
    assert list(tasks.listing.read_log("leak")) == [{"step": 1}]


def test_a_waiting_task_is_cancelled(layout: Layout, tasks: Tasks):
    drop(layout, "leak.md", "---\nid: drip\n---\nx")
    assert tasks.cancel("drip", reason="too late") == layout.failed / "drip"
    assert "too late" in (layout.failed / "drip" / "error.md").read_text()
    assert tasks.claim("scout") is None
    tasks.retry("drip")
    assert rested(tasks).id == "drip"


def test_a_retry_is_for_whom_the_text_names_and_not_for_whom_the_last_attempt_waited(tasks: Tasks, task: Task):
    tasks.active.hand_over(task, to="gone", reason="a renamed agent")
    tasks.release(task)
    assert tasks.claim("scout") is None
    tasks.cancel("leak")
    tasks.retry("leak")
    assert tasks.get("leak").assignee is None
    assert rested(tasks).id == "leak"


def test_an_active_task_is_cancelled_under_its_agents_hands(layout: Layout, tasks: Tasks, task: Task):
    opened(layout).cancel("leak", by="clerk")
    assert "Cancelled by clerk" in (layout.failed / "leak" / "error.md").read_text()
    with pytest.raises(TaskMoved) as moved:
        tasks.finish(task, "late")
    assert moved.value.kept == layout.failed / "leak" / "attempts" / "late-scout"
    with pytest.raises(UserError, match="over already"):
        tasks.cancel("leak")


def test_a_task_is_read_waited_for_and_cancelled_while_it_is_being_claimed(layout: Layout, tasks: Tasks):
    """A claim has three renames, and between them the task is neither in the inbox nor in active/."""

    is_over = Event()

    def work() -> None:
        own = opened(layout)
        while not is_over.wait(0.001):
            if (claimed := own.claim("scout")) is not None:
                with suppress(TaskMoved):  # cancelled meanwhile
                    own.finish(claimed, "done")

    worker = Thread(target=work)
    worker.start()
    for number in range(20):
        looked_for, awaited, cancelled = (tasks.add("x", id=f"{name}{number}") for name in ("a", "b", "c"))
        assert looked_for in {task.id for task in tasks.list()}
        assert tasks.get(looked_for).id == looked_for
        assert tasks.wait(awaited, 60).state is TaskState.DONE
        with suppress(UserError):  # it is over already
            tasks.cancel(cancelled)
        assert tasks.wait(cancelled, 60).state in (TaskState.DONE, TaskState.FAILED)
    is_over.set()
    worker.join()


def test_a_task_that_is_moved_back_can_be_read_and_cancelled_at_once(tasks: Tasks):
    tasks.add("x", id="a")
    for read in (tasks.get, tasks.cancel):
        tasks.cancel("a")
        tasks.retry("a")
        read("a")


def test_a_wait_ends_when_its_task_is_deleted(layout: Layout, tasks: Tasks, task: Task):
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(tasks.wait, "leak")
        shutil.rmtree(task.path)
        with pytest.raises(UserError, match="there is no such task"):
            waiting.result(60)


# making


def test_a_task_made_by_an_agent_carries_its_name_and_no_text_can_say_otherwise(layout: Layout, tasks: Tasks):
    tasks.add("look there", by="Scout", steps=["Where?"], assignee="clerk")
    task = tasks.claim("clerk")
    assert (task.maker, task.title, task.steps[0].kind) == ("scout", "look there", "ask")
    assert tasks.get(task.id).maker == "scout"
    tasks.finish(task, "r")
    tasks.retry(task.id)
    assert rested(tasks, "clerk").maker == "scout"
    with pytest.raises(TaskProblem, match="unknown key 'maker'"):
        tasks.add("---\nmaker: human\n---\nx", by="scout")


def test_a_damaged_record_of_the_maker_fails_the_task_rather_than_make_it_a_persons(layout: Layout, tasks: Tasks):
    task_id = tasks.add("look there", by="scout")
    (layout.inbox / task_id / "task.json").write_text("{}")
    time.sleep(0.03)
    assert tasks.claim("scout") is None
    assert "task.json" in (layout.failed / task_id / "error.md").read_text()


def test_a_copy_of_a_made_task_is_not_taken_for_whole_before_it_rests(layout: Layout):
    tasks = opened(layout, settle_ms=60_000)
    task_id = tasks.add("look there", by="scout")
    shutil.copytree(layout.inbox / task_id, layout.inbox / "copy")
    assert tasks.claim("scout").id == task_id
    assert tasks.claim("scout") is None
    assert (layout.inbox / "copy").is_dir()


def test_a_task_is_added_with_its_fields_and_attachments(layout: Layout, tasks: Tasks, tmp_path: Path):
    (tmp_path / "a.csv").write_text("1")
    task_id = tasks.add(
        "---\npriority: low\nproject: p\n---\nDo it",
        title="Was ist los?",
        priority="high",
        attachments=[tmp_path / "a.csv"],
    )
    assert task_id == "was-ist-los"
    assert tasks.add("Do it", title="Was ist los?") == "was-ist-los-2"
    assert tasks.add("Do it", title="Wie heißt die Größe?") == "wie-heisst-die-grosse"
    task = tasks.claim("scout")
    assert (task.id, task.priority, task.project, task.maker, task.text) == (task_id, 2, "p", "human", "Do it")
    assert [path.read_text() for path in task.attachments] == ["1"]
    with pytest.raises(TaskProblem, match="is taken"):
        tasks.add("x", id="was-ist-los")
    with pytest.raises(TaskProblem, match="is empty"):
        tasks.add("")
    with pytest.raises(TaskProblem, match="priority"):
        tasks.add("x", priority="asap")


def test_no_task_is_added_under_a_name_that_the_inbox_ignores(layout: Layout, tasks: Tasks):
    task_id = tasks.add("Write it.", title="README", dependencies=None, steps=None)
    assert task_id == "readme-2"
    assert tasks.claim("scout").id == task_id
    with pytest.raises(TaskProblem, match=r"readme\.md in the inbox would be the folder's own README\.md"):
        tasks.add("x", id="readme")


def test_a_task_too_long_is_refused_when_it_is_added(layout: Layout):
    with pytest.raises(TaskProblem, match="bytes"):
        opened(layout, max_bytes=100).add("x" * 200)
    assert os.listdir(layout.inbox) == []


def test_get_and_list_find_a_task_wherever_it_lies(layout: Layout, tasks: Tasks):
    task_id = tasks.add("one")
    assert tasks.get(task_id).state is TaskState.INBOX
    task = tasks.claim("scout")
    assert tasks.get(task_id) == task
    tasks.fail(task, "no")
    assert [(one.id, one.state, one.owner) for one in tasks.list()] == [("one", "failed", "scout")]
    assert tasks.listing.counts() == {"inbox": 0, "active": 0, "done": 0, "failed": 1}
    with pytest.raises(UserError, match="no such task"):
        tasks.get("two")


@pytest.mark.parametrize("ends", ["finish", "fail"])
def test_what_a_power_cut_left_of_a_logs_last_line_is_set_aside_when_the_task_ends(
    layout: Layout, tasks: Tasks, task: Task, ends: str
) -> None:
    log = task.path / "messages.jsonl"
    tasks.active.log(task, {"text": "whole"})
    log.write_bytes(log.read_bytes() + b'{"text": "cut in the mid')
    again = opened(layout)
    [task] = again.mine("scout")
    folder = getattr(again, ends)(task, "It is mended.\n")
    assert [json.loads(line).get("text") for line in (folder / "messages.jsonl").read_text().splitlines()][1:] == [
        "whole"
    ]
    assert "cut in the mid" in (folder / "messages.jsonl.torn").read_text()


def test_one_path_one_id_and_one_step_are_taken_as_one(layout: Layout, tasks: Tasks, tmp_path: Path) -> None:
    file = tmp_path / "leak.txt"
    file.write_text("drip\n")
    tasks.add("first", id="other")
    for number, given in enumerate((str(file), file)):
        task_id = tasks.add("look", id=f"t{number}", attachments=given, dependencies="other", steps="Where?")
        folder = layout.inbox / task_id
        assert [path.name for path in (folder / "attachments").iterdir()] == ["leak.txt"]
        head, _, _ = split((folder / "task.md").read_text())
        assert head is not None
        said = parse(head, "the text", 2).values
        assert said == {"id": task_id, "dependencies": ["other"], "steps": ["Where?"]}


@pytest.mark.parametrize("text", [5, b"x"])
def test_a_task_that_is_no_text_is_refused_in_words(tasks: Tasks, text: Any) -> None:
    with pytest.raises(UserError, match="must be a text, not"):
        tasks.add(text)


def test_two_files_of_one_name_are_refused_and_the_next_task_is_added(tasks: Tasks) -> None:
    with pytest.raises(FileExistsError):
        tasks.add("both", files={"a": b"", "a/b": b""})
    assert tasks.add("next") == "next"


def test_an_older_record_put_back_by_another_program_is_refused_by_who_has_read_that_one(
    layout: Layout, tasks: Tasks, task: Task
):
    reader, record = opened(layout), task.path / "task.json"
    older = record.read_bytes()
    assert reader.listing.kept_values(task.id) == {}
    for number in range(2):
        tasks.active.keep(task, "once", number)
    record.write_bytes(older)
    with pytest.raises(TaskProblem, match="was changed by something other than hivemind"):
        reader.say(task.id, "more")
