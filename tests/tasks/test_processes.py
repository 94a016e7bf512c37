"""Several real processes at one inbox; writers that take their time; editors that save."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path

import pytest

from hivemind.errors import UserError
from hivemind.fs import is_settled, move
from hivemind.layout import Layout
from hivemind.tasks import Tasks, TaskState

from .conftest import age, drop, in_process, opened


def race(layout: Layout, agents: list[str]) -> None:
    """Each agent claims and finishes in a process of its own until nothing is left."""
    children = []
    for agent in agents:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                tasks = opened(layout)
                while (task := tasks.claim(agent)) is not None:
                    tasks.active.log(task, {"by": agent, "text": task.text})
                    tasks.finish(task, f"by {agent}")
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(agents)


def test_each_of_many_tasks_is_claimed_by_exactly_one_of_many_processes(layout: Layout):
    for number in range(200):
        (layout.inbox / f"t{number}.md").write_text(f"task {number}")
    race(layout, ["a", "b", "c", "d"])
    done = sorted(os.listdir(layout.done))
    assert done == sorted(f"t{number}" for number in range(200))
    for task_id in done:
        (record,) = Tasks(layout).listing.read_log(task_id)
        assert record["text"] == f"task {task_id[1:]}"
        assert (layout.done / task_id / "result.md").read_text() == f"by {record['by']}"
    assert os.listdir(layout.inbox) == []


def test_one_id_in_many_files_is_worked_on_once(layout: Layout):
    for number in range(12):
        (layout.inbox / f"t{number}.md").write_text(f"---\nid: same\n---\ntask {number}")
        (layout.inbox / f"Same {number}.md").write_text("other")
    race(layout, ["a", "b", "c"])
    assert (layout.done / "same").is_dir()
    assert len(os.listdir(layout.failed)) == 11
    assert len(os.listdir(layout.done)) == 13


def test_a_task_that_is_written_slowly_is_claimed_only_when_it_is_whole(layout: Layout, tasks: Tasks):
    told, tell = os.pipe()
    go, allow = os.pipe()
    writer = os.fork()
    if writer == 0:
        try:
            with open(layout.inbox / "slow.md", "w") as file:
                file.write("first half, ")
                file.flush()
                os.write(tell, b"x")
                os.read(go, 1)
                file.write("second half")
        finally:
            os._exit(0)
    os.read(told, 1)
    os.utime(layout.inbox / "slow.md", (1, 1))  # at rest for years, as far as its time goes
    assert tasks.claim("scout") is None
    assert tasks.list("inbox")[0].waiting == "it is being written"
    assert tasks.claims.recheck_count == 1
    os.write(allow, b"x")
    os.waitpid(writer, 0)
    assert tasks.claim("scout").text == "first half, second half"


def test_a_file_opened_for_writing_after_the_look_is_left_in_the_inbox(layout: Layout, tasks: Tasks):
    drop(layout, "a.md", "---\npriority: high\n---\nx")
    drop(layout, "b.md", "whole")
    assert tasks.claim("scout").id == "a"
    with open(layout.inbox / "b.md", "w") as file:
        file.write("half")
        file.flush()
        assert tasks.claim("scout") is None
        assert (layout.inbox / "b.md").exists()
        file.write(" and whole")
    assert tasks.claim("scout").text == "half and whole"


def test_a_file_that_is_opened_between_the_look_and_the_claim_goes_back(layout: Layout):
    writers: list[TextIOWrapper] = []

    def settled(file: str | int, settle_ms: float, now: datetime) -> bool:
        whole = is_settled(file, settle_ms, now)
        if not writers:
            writers.append(open(layout.inbox / "a.md", "w"))  # noqa: SIM115 - the writer goes on
            writers[0].write("half")
            writers[0].flush()
        return whole

    drop(layout, "a.md", "first")
    assert opened(layout, settled=settled).claim("scout") is None
    assert (layout.inbox / "a.md").read_text() == "half"
    writers[0].close()


def test_an_editor_that_saves_by_renaming_is_understood(layout: Layout, tasks: Tasks):
    for name in (".task.md.swp", "4913", "task.md~", "#task.md#", ".#task.md"):
        (layout.inbox / name).write_text("x")
    (layout.inbox / ".task.md.tmp").write_text("whole text")
    assert tasks.claim("scout") is None
    os.rename(layout.inbox / ".task.md.tmp", layout.inbox / "task.md")
    assert tasks.claim("scout").text == "whole text"


def test_a_copy_of_a_folder_is_claimed_when_it_is_at_rest(layout: Layout):
    tasks = opened(layout, settle_ms=60_000)
    (layout.inbox / "job").mkdir()
    (layout.inbox / "job" / "task.md").write_text("x")
    assert tasks.claim("scout") is None
    assert (layout.inbox / "job" / "task.md").exists()
    assert opened(layout, settle_ms=0).claim("scout").id == "job"


def test_where_no_lease_is_to_be_had_a_file_must_be_at_rest(layout: Layout):
    asked = []

    def settled(file: str | int, settle_ms: float, now: object) -> bool:
        asked.append(settle_ms)
        return len(asked) > 1

    tasks = opened(layout, settled=settled, settle_ms=123)
    drop(layout, "a.md", "x")
    assert tasks.claim("scout") is None
    assert tasks.claim("scout").id == "a"
    assert asked[0] == 123


def test_a_claim_whose_answer_got_lost_is_still_this_agents(layout: Layout):
    def lossy(source: str, target: str) -> None:
        move(source, target, durable=False)  # done on the server, but the client asks twice
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)

    drop(layout, "a.md", "x")
    assert opened(layout, rename=lossy).claim("scout").id == "a"


def test_a_claim_that_another_has_won_is_lost(layout: Layout):
    def rename(source: str, target: str) -> None:
        assert opened(layout).claim("clerk").id == "a"
        move(source, target, durable=False)

    drop(layout, "a.md", "x")
    tasks = opened(layout, rename=rename)
    assert tasks.claim("scout") is None
    assert tasks.mine("scout") == []


def test_two_who_claim_in_turn_are_given_different_names_in_order(layout: Layout):
    for number in range(300):
        age(drop(layout, f"t{number:03}.md", "x"), 1000 - number)
    one, two = opened(layout), opened(layout)
    given = [
        tasks.recovery.drops.take(agent).name for _ in range(150) for agent, tasks in (("scout", one), ("clerk", two))
    ]
    assert given == [f"t{number:03}.md" for number in range(300)]


def test_a_process_that_is_stopped_while_it_builds_the_queue_blocks_nobody(layout: Layout, tasks: Tasks):
    drop(layout, "a.md", "x")
    ready, tell = os.pipe()
    stopped = os.fork()
    if stopped == 0:
        file = os.open(layout.locks / "tasks-queue.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(tell, b"x")
        signal.pause()
    try:
        os.read(ready, 1)
        assert tasks.claim("scout").id == "a"
    finally:
        os.kill(stopped, signal.SIGKILL)
        os.waitpid(stopped, 0)


def test_who_claims_while_another_builds_the_queue_waits_for_it_rather_than_find_nothing(layout: Layout, tasks: Tasks):
    assert tasks.claim("scout") is None  # what it has seen is an empty queue
    drop(layout, "a.md", "# A\n")
    file = os.open(layout.locks / "tasks-queue.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_EX)
    ended = threading.Timer(0.3, os.close, [file])
    ended.start()
    assert tasks.claim("scout") is not None
    ended.join()


def test_the_queue_is_no_more_than_a_cache_for_those_who_may_not_write_it(layout: Layout, tasks: Tasks):
    drop(layout, "a.md", "x")
    tasks.list()
    assert not layout.task_queue.exists()
    assert tasks.claim("scout").id == "a"
    assert layout.task_queue.exists()


@pytest.mark.parametrize("harm", ["delete", "empty", "garbage", "cut", "old"])
def test_the_queue_may_be_lost_or_damaged_at_any_time(layout: Layout, tasks: Tasks, harm: str):
    for number in range(3):
        drop(layout, f"t{number}.md", "x")
    assert tasks.claim("scout") is not None
    queue = layout.task_queue
    raw = queue.read_bytes()
    match harm:
        case "delete":
            queue.unlink()
        case "empty":
            os.truncate(queue, 0)
        case "garbage":
            queue.write_bytes(os.urandom(len(raw)))
        case "cut":
            os.truncate(queue, len(raw) - 10)
        case "old":
            in_process(lambda: opened(layout).claim("smith"))
            queue.write_bytes(raw)
    left = tasks.listing.counts()[TaskState.INBOX]
    fresh = opened(layout)
    assert sum(1 for _ in iter(lambda: fresh.claim("clerk"), None)) == left


def test_a_name_over_whose_claim_a_process_was_killed_is_claimed_all_the_same(layout: Layout, tasks: Tasks):
    for number in range(2):
        drop(layout, f"t{number}.md", "x")
    die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
    assert in_process(lambda: opened(layout, rename=die).claim("clerk")) == signal.SIGKILL
    assert {tasks.claim("scout").id, tasks.claim("scout").id} == {"t0", "t1"}


def test_a_hive_without_its_inbox_says_so(layout: Layout, tasks: Tasks):
    layout.inbox.rmdir()
    with pytest.raises(UserError, match="hivemind doctor --fix"):
        tasks.claim("scout")
    Path(layout.inbox).mkdir()
    assert tasks.claim("scout") is None
