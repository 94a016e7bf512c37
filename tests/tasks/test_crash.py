"""A real process is killed at each point; afterwards another goes on: one owner, one copy, nothing lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hivemind.errors import UserError
from hivemind.layout import Layout
from hivemind.tasks import Task, TaskProblem, Tasks, listing
from tests.fs.small_disk import fill, small_disk

from .conftest import drop, killed_at, opened, texts

MARKER = b"find the leak"
CLAIM_POINTS = [
    "fs.move.renamed:1",
    "tasks.claim.taken",
    "tasks.claim.made",
    "fs.write.written:2",  # the claim's record (the first is the board)
    "fs.write.synced:2",
    "fs.write.renamed:2",
    "tasks.claim.recorded",
    "fs.move.renamed:2",
    "tasks.claim.moved",
    "fs.move.renamed:3",
    "tasks.claim.published",
]


def whole(folder: Path) -> list[str]:
    """What lies there, without the litter of a killed write."""
    return sorted(name for name in os.listdir(folder) if not name.startswith(".tmp-"))


def claim(layout: Layout, agent: str = "scout") -> Task:
    task = opened(layout).claim(agent)
    assert task is not None
    return task


@pytest.mark.parametrize("point", CLAIM_POINTS)
def test_a_claim_that_was_killed_is_finished_by_the_same_agent(
    layout: Layout, point: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(listing, "_MOTION_S", 0.0)  # nobody moves it on
    drop(layout, "Leak.md", MARKER)
    killed_at(point, lambda: claim(layout))
    assert opened(layout).claim("clerk") is None, "a second owner"
    if not (layout.active / "leak").exists():
        assert [(task.id, task.waiting) for task in opened(layout).list()] == [("leak", "it is just being claimed")]
        with pytest.raises(UserError, match=r"leak: is just being claimed; .* hivemind doctor says what to do"):
            opened(layout).cancel("leak")
    (task,) = opened(layout).mine("scout", incarnation=2)
    assert (task.id, task.owner, task.text.encode()) == ("leak", "scout", MARKER)
    assert texts(layout, MARKER) == [layout.active / "leak" / "task.md"]
    opened(layout).finish(task, "found")
    assert (layout.done / "leak" / "result.md").read_text() == "found"
    assert os.listdir(layout.claimed / "scout") == []


@pytest.mark.parametrize("point", CLAIM_POINTS)
def test_a_claim_that_was_killed_can_be_given_to_another_agent(layout: Layout, point: str):
    drop(layout, "leak.md", MARKER)
    killed_at(point, lambda: claim(layout))
    tasks = opened(layout)
    (orphan, *_) = tasks.recovery.orphans(alive=("clerk",))
    assert orphan.agent == "scout"
    tasks.recovery.reclaim("scout")
    assert tasks.recovery.orphans(alive=("clerk",)) == []
    time.sleep(0.03)
    assert claim(layout, "clerk").id == "leak"
    assert texts(layout, MARKER) == [layout.active / "leak" / "task.md"]


@pytest.mark.parametrize(
    "point",
    ["tasks.claim.taken", "tasks.claim.made", "tasks.claim.recorded", "fs.move.renamed:2", "tasks.claim.moved"]
    + [f"fs.move.renamed:{n}" for n in (3, 4)]
    + ["tasks.claim.published"],
)
def test_a_folder_whose_claim_was_killed_stays_whole(layout: Layout, point: str):
    made = layout.inbox / "job"
    (made / "data").mkdir(parents=True)
    (made / "task.md").write_bytes(MARKER)
    (made / "data" / "a.csv").write_text("1")
    time.sleep(0.03)
    killed_at(point, lambda: claim(layout))
    (task,) = opened(layout).mine("scout")
    assert [path.relative_to(layout.active).as_posix() for path in task.attachments] == ["job/files/data/a.csv"]


@pytest.mark.parametrize(
    "point",
    ["tasks.claim.taken", "tasks.claim.made", "tasks.claim.moved", "tasks.reject.explained", "tasks.claim.published"],
)
@pytest.mark.parametrize("name", ["bad.md", "error.md"])
def test_a_drop_that_is_no_task_fails_once_whenever_it_was_interrupted(layout: Layout, point: str, name: str):
    content = b"---\nnonsense: leak\n---\nx"
    drop(layout, name, content)
    killed_at(point, lambda: opened(layout).claim("scout"))
    assert opened(layout).mine("scout") == []
    (folder,) = layout.failed.iterdir()
    kept = [path for path in layout.tasks.rglob(f"*{name}") if path.read_bytes() == content]
    assert [path.parent for path in kept] == [folder]
    assert "unknown key" in (folder / "error.md").read_text()
    assert os.listdir(layout.claimed / "scout") == []


@pytest.mark.parametrize(
    "point",
    ["tasks.claim.taken", "tasks.claim.made", "tasks.claim.recorded", "tasks.claim.moved", "tasks.reject.explained"],
)
def test_a_drop_whose_cancelling_was_killed_waits_again_and_takes_no_other_tasks_id(layout: Layout, point: str):
    drop(layout, "leak.md", MARKER)
    killed_at(point, lambda: opened(layout).cancel("leak"))
    with pytest.raises(TaskProblem, match="is taken"):
        opened(layout).add("x", id="leak")
    assert opened(layout).add("x", id="other") == "other"
    opened(layout).mine("scout")  # the next agent that starts
    assert texts(layout, MARKER) == [layout.inbox / "leak.md"]


@pytest.mark.parametrize("again", [True, False])
def test_a_drop_that_cannot_be_cancelled_on_a_full_disk_stays_where_it_was(layout: Layout, tmp_path: Path, again: bool):
    with small_disk(tmp_path / "hive", "size=1m"):
        for folder in layout.folders():
            folder.mkdir(parents=True)
        drop(layout, "leak.md", MARKER)
        opened(layout).list()
        full = fill(layout.root)
        with pytest.raises(OSError, match="No space left"):
            opened(layout).cancel("leak")
        assert texts(layout, MARKER) == [layout.inbox / "leak.md"]
        full.unlink()
        if again:
            opened(layout).cancel("leak")
        else:
            assert claim(layout).id == "leak"


def end(layout: Layout, work: Callable[[Tasks, Task], object]) -> Callable[[], object]:
    def in_child() -> None:
        tasks = opened(layout)
        (task,) = tasks.mine("scout")
        work(tasks, task)

    return in_child


END_POINTS = ["fs.write.written", "fs.write.synced", "tasks.close.written", "fs.move.renamed"]


@pytest.mark.parametrize("point", [*END_POINTS, "tasks.close.moved"])
def test_finishing_that_was_killed_is_done_again_or_was_done(layout: Layout, point: str):
    drop(layout, "leak.md", MARKER)
    claim(layout)
    killed_at(point, end(layout, lambda tasks, task: tasks.finish(task, "found")))
    tasks = opened(layout)
    for task in tasks.mine("scout", 2):
        tasks.finish(task, "found")
    done = layout.done / "leak"
    assert {path.name for path in done.iterdir() if path.name[0] != "."} == {"task.md", "task.json", "result.md"}
    assert (done / "result.md").read_text() == "found"
    assert texts(layout, MARKER) == [done / "task.md"]
    assert tasks.claim("clerk") is None


@pytest.mark.parametrize(("point", "lies_in"), [("fs.write.synced", "inbox"), ("tasks.close.written", "done")])
def test_a_result_that_was_written_to_the_end_counts_even_if_its_agent_never_comes_back(
    layout: Layout, point: str, lies_in: str
):
    drop(layout, "leak.md", MARKER)
    claim(layout)
    killed_at(point, end(layout, lambda tasks, task: tasks.finish(task, "found")))
    assert opened(layout).recovery.reclaim("scout") == [layout.tasks / lies_in / "leak"]


@pytest.mark.parametrize("point", [*END_POINTS, "tasks.close.moved"])
def test_failing_that_was_killed_is_done_again_or_was_done(layout: Layout, point: str):
    drop(layout, "leak.md", MARKER)
    claim(layout)
    killed_at(point, end(layout, lambda tasks, task: tasks.fail(task, "too wet")))
    tasks = opened(layout)
    for task in tasks.mine("scout", 2):
        tasks.fail(task, "too wet")
    assert "too wet" in (layout.failed / "leak" / "error.md").read_text()
    assert texts(layout, MARKER) == [layout.failed / "leak" / "task.md"]


def finished(layout: Layout) -> Path:
    drop(layout, "leak.md", MARKER)
    tasks = opened(layout)
    task = tasks.claim("scout")
    tasks.active.log(task, {"first": True})
    (task.path / "artifacts").mkdir()
    (task.path / "graph.json").write_text("{}")
    return tasks.finish(task, "first result")


@pytest.mark.parametrize(
    "point",
    ["fs.move.renamed:1", "tasks.retry.back", *(f"tasks.retry.moved:{n}" for n in range(1, 5))]
    + [f"fs.write.{what}:{n}" for what in ("written", "renamed") for n in range(2, 5)],
)
def test_a_retry_that_was_killed_keeps_every_piece_of_the_earlier_attempt(layout: Layout, point: str):
    finished(layout)

    def retry() -> None:
        opened(layout).retry("leak")
        time.sleep(0.03)
        claim(layout)

    killed_at(point, retry)
    time.sleep(0.03)
    tasks = opened(layout)
    (task,) = tasks.mine("scout", 2) or [tasks.claim("scout")]
    assert task.id == "leak"
    earlier = task.path / "attempts" / "1"
    assert whole(earlier) == ["artifacts", "graph.json", "messages.jsonl", "result.md", "task.json"]
    assert (earlier / "result.md").read_text() == "first result"
    assert os.listdir(task.path / "attempts") == ["1"]
    assert whole(task.path) == ["attempts", "task.json", "task.md"]
    assert tasks.finish(task, "second result") == layout.done / "leak"


@pytest.mark.parametrize("point", ["fs.write.written", "tasks.release.ready", "fs.move.renamed"])
def test_a_release_that_was_killed_leaves_the_task_with_its_agent_or_in_the_inbox(layout: Layout, point: str):
    drop(layout, "leak.md", MARKER)
    claim(layout)

    def release(tasks: Tasks, task: Task) -> None:
        tasks.active.park(task, "waits for a person")
        tasks.release(task)

    killed_at(point, end(layout, release))
    time.sleep(0.03)
    tasks = opened(layout)
    (task,) = tasks.mine("scout") or [tasks.claim("scout")]
    assert task.id == "leak"
    assert len(texts(layout, MARKER)) == 1


@pytest.mark.parametrize("point", ["fs.write.written", "fs.create.linked", "tasks.add.written", "tasks.add.dropped"])
@pytest.mark.parametrize("by", ["human", "scout"])
def test_adding_that_was_killed_adds_a_whole_task_or_none(layout: Layout, point: str, by: str):
    if (point, by) in (("fs.create.linked", "scout"), ("tasks.add.written", "human")):
        pytest.skip("not on this way")
    killed_at(point, lambda: opened(layout).add("find the leak", by=by))
    tasks = opened(layout)
    again = tasks.add("find the leak", by=by)
    found = []
    while (task := tasks.claim("clerk")) is not None:
        found.append((task.id, task.maker, task.text))
    assert (again, by, "find the leak") in found
    assert all(text == "find the leak" for _, _, text in found)


@pytest.mark.parametrize("point", ["tasks.cancel.written", "fs.move.renamed", "fs.write.renamed:1"])
def test_cancelling_that_was_killed_can_be_done_again(layout: Layout, point: str):
    drop(layout, "leak.md", MARKER)
    claim(layout)
    killed_at(point, lambda: opened(layout).cancel("leak"))
    if (layout.active / "leak").exists():
        opened(layout).cancel("leak")
    assert texts(layout, MARKER) == [layout.failed / "leak" / "task.md"]


def test_the_id_of_a_task_that_is_on_its_way_is_not_given_away(layout: Layout):
    drop(layout, "leak.md", MARKER)
    killed_at("tasks.claim.taken", lambda: claim(layout))
    assert opened(layout).add("Leak") == "leak-2"
