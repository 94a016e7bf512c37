from __future__ import annotations

import json
import os
import signal
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hivemind.fs import move
from hivemind.layout import Layout
from hivemind.tasks import Task, Tasks, TaskState

from .conftest import age, drop, in_process, opened, texts


def ids(tasks: Tasks, agent: str) -> list[str]:
    found = []
    while (task := tasks.claim(agent)) is not None:
        found.append(task.id)
    return found


def failed(layout: Layout, task_id: str) -> str:
    return (layout.failed / task_id / "error.md").read_text()


def test_a_claimed_task_lies_in_active_with_its_text_and_the_record_of_its_owner(layout: Layout, tasks: Tasks):
    drop(layout, "Find the Leak.md", "# Leak\n\nIt drips.\n")
    task = tasks.claim("scout", incarnation=3)
    assert task is not None
    assert (task.id, task.title, task.owner, task.maker, task.state) == (
        "find-the-leak",
        "Leak",
        "scout",
        "human",
        "active",
    )
    assert task.path == layout.active / "find-the-leak"
    assert (task.path / "task.md").read_text() == "# Leak\n\nIt drips.\n"
    record = json.loads((task.path / "task.json").read_text())
    assert (record["claim"]["agent"], record["claim"]["incarnation"]) == ("scout", 3)
    assert (record["source"], record["text"], record["maker"]) == ("Find the Leak.md", "# Leak\n\nIt drips.\n", "human")
    assert os.listdir(layout.inbox) == []
    assert tasks.claim("scout") is None


def test_a_task_is_listed_since_its_claim_its_parking_or_its_end_whatever_is_written_later(layout: Layout):
    claimed, parked, ended = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))
    times = [claimed]
    tasks = opened(layout, clock=lambda: times[-1])
    drop(layout, "leak.md", "It drips.")
    task = tasks.claim("scout")
    assert task is not None
    [task] = opened(layout).mine("scout")
    assert [active.since for active in tasks.list(TaskState.ACTIVE)] == [claimed]
    times.append(parked)
    tasks.active.park(task, "waits for the plumber")
    assert [active.since for active in tasks.list(TaskState.ACTIVE)] == [parked]
    result = tasks.finish(task, "Mended.") / "result.md"
    os.utime(result, (ended.timestamp(), ended.timestamp()))
    assert [done.since for done in tasks.list(TaskState.DONE)] == [ended]


def test_the_most_urgent_is_claimed_first_then_the_oldest_then_by_name(layout: Layout, tasks: Tasks):
    for name, head, seconds in [
        ("b.md", "", 50),
        ("a.md", "", 50),
        ("old.md", "", 100),
        ("low.md", "---\npriority: low\n---\n", 200),
        ("urgent.md", "---\npriority: critical\n---\n", 1),
        ("high.md", "---\npriority: 2\n---\n", 1),
    ]:
        age(drop(layout, name, head + "text"), seconds)
    now = time.time()
    for name in ("a.md", "b.md"):
        os.utime(layout.inbox / name, (now - 50, now - 50))
    assert ids(tasks, "scout") == ["urgent", "high", "old", "a", "b", "low"]


def test_what_is_dropped_while_others_wait_takes_its_place_in_the_order(layout: Layout, tasks: Tasks):
    for number in range(5):
        age(drop(layout, f"t{number}.md", "x"), 100 - number)
    assert tasks.claim("scout").id == "t0"
    drop(layout, "urgent.md", "---\npriority: high\n---\nx")
    assert tasks.claim("scout").id == "urgent"
    assert tasks.claim("clerk").id == "t1"


def test_a_waiting_task_that_is_edited_takes_its_new_place(layout: Layout, tasks: Tasks):
    age(drop(layout, "first.md", "x"), 100)
    age(drop(layout, "second.md", "x"), 50)
    age(drop(layout, "zero.md", "x"), 200)
    assert tasks.claim("scout").id == "zero"
    (layout.inbox / "second.md").write_text("---\npriority: high\n---\nx")
    assert ids(tasks, "scout") == ["second", "first"]


def test_assignee_and_role_narrow_who_may_claim(layout: Layout, tasks: Tasks):
    drop(layout, "one.md", "---\nassignee: clerk\n---\nx")
    drop(layout, "two.md", "---\nrole: maker\n---\nx")
    drop(layout, "three.md", "---\nassignee: scout\nrole: maker\n---\nx")
    drop(layout, "four.md", "---\nrole: nobody\n---\nx")
    assert ids(tasks, "scout") == []
    assert ids(tasks, "clerk") == ["one"]
    assert ids(tasks, "smith") == ["two"]
    assert tasks.listing.waiting_for("three") == "it is for the role 'maker', which scout does not have"
    assert tasks.listing.waiting_for("four") == "it is for the role 'nobody', which no agent has"
    drop(layout, "four.md", "---\nassignee: nobody\n---\nx")
    assert "not an agent of this hive" in tasks.listing.waiting_for("four")


@pytest.mark.parametrize(
    "name",
    [".hidden.md", "x.md~", "#x.md#", "x.swp", ".x.md.swp", "x.tmp", "x.part", "x.crdownload", "4913", "README.md"],
)
def test_droppings_are_no_tasks(layout: Layout, tasks: Tasks, name: str):
    drop(layout, name, "x")
    assert tasks.claim("scout") is None
    assert (layout.inbox / name).exists()
    assert tasks.listing.counts()[TaskState.INBOX] == 0


def test_a_file_that_is_changed_the_moment_before_it_is_claimed_is_judged_anew(layout: Layout):
    def rename(source: str, target: str) -> None:
        Path(source).write_text("---\nassignee: clerk\n---\nx")
        move(source, target, durable=False)

    drop(layout, "a.md", "x")
    drop(layout, "b.md", "---\nnonsense: 1\n---\nx")
    assert opened(layout, rename=rename).claim("scout") is None
    assert ids(opened(layout), "scout") == []
    assert sorted(ids(opened(layout), "clerk")) == ["a", "b"]


def test_a_task_for_another_agent_that_fails_because_of_its_dependencies_may_be_failed_by_anyone(
    layout: Layout, tasks: Tasks
):
    drop(layout, "a.md", "---\nassignee: nobody\ndependencies: a\n---\nx")
    assert tasks.claim("scout") is None
    assert "a → a" in failed(layout, "a")


def test_who_loses_a_task_twice_goes_on_to_the_next(layout: Layout):
    """A queue that is built while others claim names what they have claimed meanwhile."""
    first, second = drop(layout, "a.md", "a"), drop(layout, "b.md", "b")
    tried = []

    def rename(source: str, target: str) -> None:
        tried.append(os.path.basename(source))
        if len(tried) <= 3:  # somebody else is faster
            os.rename(source, layout.root / f"taken-{len(tried)}")
        if len(tried) == 2:  # and this is what the next queue is built of
            os.rename(layout.root / "taken-1", first)
            drop(layout, "c.md", "c")
        move(source, target, durable=False)

    claimed = opened(layout, rename=rename).claim("scout")
    assert claimed is not None
    assert (tried, claimed.text) == (["a.md", "b.md", "a.md", "c.md"], "c")
    assert not second.exists()


def test_a_file_deleted_from_the_inbox_is_withdrawn(layout: Layout, tasks: Tasks):
    drop(layout, "a.md", "x")
    drop(layout, "b.md", "x")
    assert [one.id for one in tasks.list("inbox")] == ["a", "b"]
    (layout.inbox / "a.md").unlink()
    assert ids(tasks, "scout") == ["b"]


# ids


def test_an_id_that_nobody_wrote_gets_a_number_if_it_is_taken(layout: Layout, tasks: Tasks):
    for place in (layout.active, layout.done, layout.failed):
        (place / {"active": "x", "done": "x-2", "failed": "x-3"}[place.name]).mkdir()
    drop(layout, "X.md", "text")
    assert tasks.claim("scout").id == "x-4"


def test_an_id_that_its_author_wrote_fails_if_it_is_taken_and_says_by_what(layout: Layout, tasks: Tasks):
    drop(layout, "a.md", "---\nid: x\n---\none")
    tasks.finish(tasks.claim("scout"), "r")
    drop(layout, "b.md", "---\ntitle: t\nid: x\n---\ntwo")
    assert tasks.claim("scout") is None
    error = failed(layout, "b")
    assert "b.md:3" in error
    assert "id: 'x' is taken by tasks/done/x" in error


@pytest.mark.parametrize(("head", "place"), [("", "active/x-2"), ("---\nid: x\n---\n", "failed/x-2")])
def test_an_id_that_is_taken_and_ended_between_the_look_and_the_rename_is_not_given_twice(
    layout: Layout, head: str, place: str
):
    def now() -> datetime:
        if (layout.claimed / "scout" / "x.md").exists():
            (layout.done / "x").mkdir(exist_ok=True)
        return datetime.now(UTC)

    age(drop(layout, "x.md", head + "text"), 10)
    opened(layout, clock=now).claim("scout")
    assert (layout.tasks / place / "task.md").read_text() == head + "text"
    assert os.listdir(layout.done / "x") == []


@pytest.mark.parametrize(
    "name", ["задача.md", "a b  c.md", "..md", "-.md", "x" * 200 + ".md", "a\nb.md", "ü.md", "$(rm).md"]
)
def test_any_file_name_gives_an_id(layout: Layout, tasks: Tasks, name: str):
    drop(layout, name, "text") if name != "..md" else drop(layout, "a..b.md", "text")
    task = tasks.claim("scout")
    assert (layout.active / task.id / "task.md").read_text() == "text"


def test_a_file_name_that_is_no_utf8_is_a_name_like_any_other(layout: Layout, tasks: Tasks):
    raw = os.fsencode(layout.inbox) + b"/caf\xe9.md"
    Path(os.fsdecode(raw)).write_text("text")
    task = tasks.claim("scout")
    assert opened(layout).mine("scout") == [task]
    Path(os.fsdecode(os.fsencode(layout.inbox) + b"/b\xe9.md")).write_bytes(b"\0")
    assert tasks.claim("scout") is None
    assert "NUL" in failed(layout, "b")


# what is no task


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("bad.md", b"---\npriorty: high\n---\nx", "unknown key 'priorty'"),
        ("bad.yaml", b"title: [", "bad.yaml:2"),
        ("bad.bin", bytes(range(256)), "NUL"),
        ("bad.md", b"\xff\xfea\0", "NUL"),
        ("bad.md", b"caf\xe9", "UTF-8"),
        ("error.md", b"a\0", "error.md"),
        ("task.json", b"{\0", "task.json"),
    ],
)
def test_what_is_no_task_goes_to_failed_byte_for_byte(
    layout: Layout, tasks: Tasks, name: str, content: bytes, what: str
):
    drop(layout, name, content)
    drop(layout, "good.md", "x")
    assert ids(tasks, "scout") == ["good"]
    folder = layout.failed / Path(name).stem
    kept = [path for path in folder.iterdir() if path.name.endswith(name) and path.read_bytes() == content]
    assert len(kept) == 1
    assert what in (folder / "error.md").read_text()
    (summary,) = tasks.list("failed")
    assert summary.id == folder.name


def test_ten_megabytes_of_binary_fail_without_being_read(layout: Layout, tasks: Tasks):
    content = os.urandom(1 << 16) * 160
    drop(layout, "big.bin", content)
    assert tasks.claim("scout") is None
    assert (layout.failed / "big" / "big.bin").read_bytes() == content
    assert "10,485,760 bytes" in failed(layout, "big")


def test_an_empty_file_waits_a_while_and_then_fails(layout: Layout):
    patient = opened(layout, grace_s=600)
    drop(layout, "a.md", "")
    assert patient.claim("scout") is None
    assert patient.list("inbox")[0].waiting == "it is being written"
    os.utime(layout.inbox / "a.md", (1, 1))
    assert opened(layout, grace_s=0).claim("scout") is None
    assert "is empty" in failed(layout, "a")


def test_a_fifo_a_socket_and_links_are_refused_without_being_opened(layout: Layout, tasks: Tasks):
    os.mkfifo(layout.inbox / "fifo.md")
    (layout.root / "secret.md").write_text("secret")
    (layout.inbox / "link.md").symlink_to(layout.root / "secret.md")
    (layout.inbox / "folder.md").symlink_to("/etc")
    with socket.socket(socket.AF_UNIX) as sock:
        here = Path.cwd()
        os.chdir(layout.inbox)
        sock.bind("sock")
        os.chdir(here)
        problems = {one.id: one.problem or "" for one in tasks.list("inbox")}
        assert "is not a regular file" in problems["fifo"]
        assert "is not a regular file" in problems["sock"]
        assert tasks.claim("scout") is None
    assert sorted(os.listdir(layout.failed)) == ["fifo", "folder", "link", "sock"]
    assert "symbolic link" in failed(layout, "link")
    assert "not a regular file" in failed(layout, "fifo")
    assert (layout.root / "secret.md").read_text() == "secret"


# folders


def folder(layout: Layout, name: str, files: dict[str, str]) -> Path:
    made = layout.root / f"made-{name}"
    for path, text in files.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_text(text)
    for path in (*made.rglob("*"), made):
        os.utime(path, (1, 1))
    time.sleep(0.03)  # a folder counts as whole when it has rested for the settle time (20 ms in these tests)
    made.rename(layout.inbox / name)
    return layout.inbox / name


def claimed(tasks: Tasks, agent: str = "scout") -> Task:
    task = tasks.claim(agent)
    assert task is not None
    return task


@pytest.mark.shows("file: task.yaml")
@pytest.mark.parametrize("text", ["task.md", "README.md", "the plan.txt", "task.yaml"])
def test_a_folder_is_one_task_with_attachments(layout: Layout, tasks: Tasks, text: str):
    content = "text: do it" if text.endswith("yaml") else "do it"
    folder(layout, "Big Job", {text: content, "data/a.csv": "1", "data/deep/b.bin": "2", "c.png": "3", ".git/x": "4"})
    task = claimed(tasks)
    assert (task.id, task.text) == ("big-job", "do it")
    assert [path.relative_to(task.path).as_posix() for path in task.attachments] == [
        "files/c.png",
        "files/data/a.csv",
        "files/data/deep/b.bin",
    ]
    assert opened(layout).mine("scout") == [task]


def test_a_folder_without_one_text_fails_as_a_whole(layout: Layout, tasks: Tasks):
    folder(layout, "two", {"a.md": "a", "b.md": "b"})
    folder(layout, "none", {"a.png": "a"})
    assert tasks.claim("scout") is None
    assert "has 2 texts (a.md, b.md) and no task.md" in failed(layout, "two")
    assert "name the text of the task 'task.md'" in failed(layout, "none")
    assert (layout.failed / "two" / "a.md").read_text() == "a"


def test_links_in_a_folder_are_followed_only_within_the_hive(layout: Layout, tmp_path: Path):
    (layout.knowledge / "k.md").write_text("k")
    (tmp_path / "outside.txt").write_text("secret")
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "x.txt").write_text("x")
    tasks = opened(layout, roots=(tmp_path / "allowed",))
    made = folder(layout, "job", {"task.md": "x"})
    (made / "in").symlink_to(layout.knowledge / "k.md")
    (made / "out").symlink_to(tmp_path / "outside.txt")
    (made / "root").symlink_to(tmp_path / "allowed" / "x.txt")
    (made / "dir").symlink_to(tmp_path)
    os.mkfifo(made / "fifo")
    time.sleep(0.03)
    task = claimed(tasks)
    assert [path.name for path in task.attachments] == ["in", "root"]
    assert [note.split()[0] for note in task.notes] == ["dir", "fifo", "out"]


@pytest.mark.parametrize("name", ["task.json", "attempts"])
def test_a_folder_with_a_hostile_record_blocks_nobody(layout: Layout, tasks: Tasks, name: str):
    made = folder(layout, "job", {"task.md": "x", "result.md": "old"})
    (os.mkfifo if name != "attempts" else os.symlink)(
        *((made / name,) if name != "attempts" else ("/tmp", made / name))
    )
    time.sleep(0.03)
    drop(layout, "good.md", "x")
    assert "good" in ids(tasks, "scout")
    assert len(texts(layout, b"x")) == 2


# dependencies


def test_a_task_waits_for_its_dependencies(layout: Layout, tasks: Tasks):
    drop(layout, "b.md", "---\ndependencies: a\n---\nb")
    drop(layout, "a.md", "a")
    assert tasks.listing.waiting_for("b") == "its dependency 'a' is waiting itself"
    task = tasks.claim("scout")
    assert task.id == "a"
    assert tasks.claim("clerk") is None
    assert tasks.listing.waiting_for("b") == "its dependency 'a' is being worked on"
    assert tasks.claims.recheck_count
    tasks.finish(task, "done")
    assert tasks.claim("clerk").id == "b"


def test_a_task_whose_dependency_failed_waits_until_it_is_retried(layout: Layout, tasks: Tasks):
    drop(layout, "a.md", "a")
    drop(layout, "b.md", "---\ndependencies: a\n---\nb")
    tasks.fail(tasks.claim("scout"), "no")
    assert tasks.claim("scout") is None
    assert tasks.listing.waiting_for("b") == "its dependency 'a' failed and was not retried"
    tasks.retry("a")
    time.sleep(0.03)
    tasks.finish(tasks.claim("scout"), "yes")
    assert tasks.claim("scout").id == "b"


def test_a_cycle_fails_every_task_in_it_and_is_named(layout: Layout, tasks: Tasks):
    for one, other in ("ab", "bc", "ca", "da"):
        drop(layout, f"{one}.md", f"---\ndependencies: {other}\n---\nx")
    drop(layout, "e.md", "---\ndependencies: e\n---\nx")
    assert ids(tasks, "scout") == []
    assert sorted(os.listdir(layout.failed)) == ["a", "b", "c", "e"]
    assert "a → b → c → a" in failed(layout, "a")
    assert "e → e" in failed(layout, "e")
    assert tasks.listing.waiting_for("d") == "its dependency 'a' failed and was not retried"


def test_the_tasks_of_a_cycle_fail_even_if_another_process_looks_in_between(layout: Layout, tasks: Tasks):
    def rename(source: str, target: str) -> None:
        if source.endswith("b.md"):
            os.kill(os.getpid(), signal.SIGKILL)
        move(source, target, durable=False)

    age(drop(layout, "a.md", "---\ndependencies: b\n---\nx"), 10)
    drop(layout, "b.md", "---\ndependencies: a\n---\nx")
    assert in_process(lambda: opened(layout, rename=rename).claim("clerk")) == signal.SIGKILL
    assert os.listdir(layout.failed) == ["a"]
    assert tasks.claim("scout") is None
    assert "b → a → b" in failed(layout, "b")


def test_a_drop_is_claimed_though_a_process_died_before_its_rename_changed_the_inbox(layout: Layout, tasks: Tasks):
    def rename(source: str, target: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    drop(layout, "a.md", "x")
    age(layout.inbox, 10)
    assert in_process(lambda: opened(layout, rename=rename).claim("clerk")) == signal.SIGKILL
    assert ids(tasks, "scout") == ["a"]


def test_an_unknown_dependency_fails_a_task_once_it_has_had_time_to_appear(layout: Layout):
    patient = opened(layout, grace_s=600)
    drop(layout, "a.md", "---\ndependencies: nowhere\n---\nx")
    assert patient.claim("scout") is None
    assert patient.listing.waiting_for("a") == "its dependency 'nowhere' is unknown so far"
    strict = opened(layout, grace_s=0)
    assert strict.claim("scout") is None
    assert "'nowhere', which does not exist" in failed(layout, "a")


def test_a_dependency_on_its_way_to_its_owner_is_not_unknown(layout: Layout):
    tasks = opened(layout, grace_s=0)
    drop(layout, "a.md", "a")
    assert tasks.recovery.drops.take("scout").name == "a.md"
    drop(layout, "b.md", "---\ndependencies: a\n---\nb")
    assert opened(layout, grace_s=0).claim("clerk") is None
    assert (layout.inbox / "b.md").exists()


@pytest.mark.parametrize("end", ["finish", "fail"])
def test_a_folder_that_has_the_name_of_the_end_is_kept_under_another_name(layout: Layout, tasks: Tasks, end: str):
    drop(layout, "a.md", "# A\n")
    task = tasks.claim("scout")
    for name in ("result.md", "error.md"):
        (task.path / name).mkdir()
    place = getattr(tasks, end)(task, "so it ends")
    assert sum(one.is_file() for one in place.glob("*.md")) == 2  # the task's text, and its end
    assert len([one for one in place.glob("*.md.damaged-*") if one.is_dir()]) == 2
