"""One bad drop stops nobody but itself, and what is no task is listed or explained."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind.errors import UserError
from hivemind.fs import move
from hivemind.layout import Layout
from hivemind.tasks import Tasks
from hivemind.tasks.integrity import check_folders
from tests.rights import as_anyone

from .conftest import drop, in_process, opened

POISON = [
    "---\ndeadline: 9999-12-31T23:59:59-23:59\n---\nx",
    "---\ndeadline: 0001-01-01T00:00:00+23:59\n---\nx",
    "---\nsteps: [{wait: 9999-12-31T23:59:59-23:59}]\n---\nx",
    "---\ntitle: " + "[" * 3000 + "\n---\nx",
    "---\npriority: " + "9" * 5000 + "\n---\nx",
    "---\nsteps: [{wait: 1e400}]\n---\nx",
    "---\ntitle: &a [*a]\n---\nx",
    "---\n? {a: b}\n: c\n---\nx",
]


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("text", POISON)
def test_a_drop_that_cannot_be_read_fails_alone(layout: Layout, text: str, folder: bool) -> None:
    if folder:
        (layout.inbox / "bad").mkdir()
        (layout.inbox / "bad" / "task.md").write_text(text)
    else:
        drop(layout, "bad.md", text)
    drop(layout, "good.md", "good")
    tasks = opened(layout, settle_ms=0)
    assert [summary.id for summary in tasks.list()] == ["bad", "good"]
    task = tasks.claim("scout")
    assert task is not None
    assert task.id == "good"
    assert tasks.claim("scout") is None
    assert (layout.failed / "bad" / "error.md").read_text()
    assert [summary.id for summary in tasks.list("failed")] == ["bad"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=80), ending=st.sampled_from([".md", ".yaml"]), head=st.sampled_from([b"", b"---\n"]))
def test_any_bytes_are_a_task_or_fail_with_words(tmp_path_factory, raw: bytes, ending: str, head: bytes) -> None:
    layout = Layout.at(tmp_path_factory.mktemp("hive"))
    for folder in layout.folders():
        folder.mkdir(parents=True, exist_ok=True)
    drop(layout, f"any{ending}", head + raw)
    drop(layout, "good.md", "good")
    tasks = opened(layout, settle_ms=0, grace_s=0)
    tasks.list()
    claimed = [task.id for task in iter(lambda: tasks.claim("scout"), None)]
    assert "good" in claimed
    assert len(claimed) + len(os.listdir(layout.failed)) == 2


NAMES = [
    "task.md", "task.yaml", "README.md", "task.json", "messages.jsonl", "result.md", "error.md", "graph.json", "files",
    "artifacts", "attempts", "attempts/1", "attempts/1/result.md", "files/task.md", "notes.txt", ".tmp-1", "RESULT.md",
]  # fmt: skip
THINGS = ["text", "bad", "empty", "folder", "link", "broken link", "fifo", "record", "link to itself"]


def lay(path: Path, thing: str) -> None:
    """Put something there; nothing where its folder is a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        match thing:
            case "folder":
                path.mkdir()
            case "fifo":
                os.mkfifo(path)
            case "link":
                path.symlink_to("../../..")
            case "broken link":
                path.symlink_to("nowhere")
            case "link to itself":
                path.symlink_to(path.name)
            case "record":
                path.write_text('{"kind":"task","version":1,"text":"forged","name":"task.md","maker":"human"}\n')
            case _:
                path.write_text({"text": "said\n", "bad": "---\nnonsense: 1\n---\n", "empty": ""}[thing])
    except OSError:
        pass


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(things=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(THINGS), min_size=1, max_size=5))
def test_a_folder_with_anything_under_any_name_is_a_task_or_fails_alone(
    tmp_path_factory: pytest.TempPathFactory, things: dict[str, str]
) -> None:
    layout = Layout.at(tmp_path_factory.mktemp("hive"))
    for folder in layout.folders():
        folder.mkdir(parents=True, exist_ok=True)
    for name, thing in things.items():
        lay(layout.inbox / "any" / name, thing)
    drop(layout, "good.md", "good")
    tasks = opened(layout, settle_ms=0, grace_s=0)
    claimed = {task.id: task for task in iter(lambda: tasks.claim("scout"), None)}
    assert "good" in claimed
    for task in claimed.values():
        with suppress(OSError):  # a folder with a record of its own keeps its form, whatever its log is
            tasks.active.log(task, {"event": "begun"})
        tasks.finish(task, "found")
    ended = [*os.listdir(layout.failed), *os.listdir(layout.done)]
    assert sorted(ended) == ["any", "good"]
    for name in ended:
        assert any(
            (place / name / end).is_file()
            for place in (layout.failed, layout.done)
            for end in ("result.md", "error.md")
        )
        if (layout.failed / name).is_dir():
            tasks.retry(name)
    tasks.claim("scout")
    assert not os.listdir(layout.inbox)


@pytest.mark.parametrize("damage", ["zeros", "cut", "flipped", "empty", "folder"])
def test_a_damaged_queue_is_built_again(layout: Layout, damage: str) -> None:
    for number in range(200):
        drop(layout, f"t{number}.md", f"---\ntitle: t{number}\n---\n")
    opened(layout).list()
    first = opened(layout)
    first.claim("scout")
    first.close()
    queue = layout.task_queue
    raw = queue.read_bytes()
    damaged = {
        "zeros": raw[:-2000] + bytes(2000), "cut": raw[:-100], "flipped": raw[:-900] + b"\xff" * 4 + raw[-896:], "empty": b"",
    }.get(damage)  # fmt: skip
    queue.unlink()
    if damaged is None:
        queue.mkdir()
    else:
        queue.write_bytes(damaged)
    tasks = opened(layout)
    assert len(list(iter(lambda: tasks.claim("clerk"), None))) == 199


@pytest.mark.parametrize("name", ["x.bak", "x.orig", "x.rej", "x.md~", ".x.swp", "x.part"])
def test_what_editors_leave_is_no_task_and_is_listed_as_ignored(layout: Layout, tasks: Tasks, name: str) -> None:
    drop(layout, name, "x")
    assert tasks.claim("scout") is None
    assert [ignored.name for ignored in tasks.listing.ignored()] == [name]


@pytest.mark.parametrize(
    "raw",
    [b"%PDF-1.7\n1 0 obj\n<< >>\nendobj\n", b"PK\x03\x04 zip", b"\x89PNG\r\n\x1a\n", b"{\\rtf1 hello}", b"GIF89a\x01"],
)
def test_what_is_no_text_fails_with_the_way_to_have_it_worked_on(layout: Layout, tasks: Tasks, raw: bytes) -> None:
    drop(layout, "report.bin", raw)
    assert tasks.claim("scout") is None
    error = (layout.failed / "report" / "error.md").read_text()
    assert "hivemind task add" in error
    assert "--attach" in error
    assert (layout.failed / "report" / "report.bin").read_bytes() == raw


def test_what_is_no_text_is_attached_to_a_question_if_a_person_says_so(layout: Layout) -> None:
    drop(layout, "report.pdf", b"%PDF-1.7\n")
    task = opened(layout, ask_about_files=True).claim("scout")
    assert task is not None
    assert "report.pdf" in task.steps[0].argument["human"]
    assert [path.read_bytes() for path in task.attachments] == [b"%PDF-1.7\n"]
    assert task.maker == "human"


@pytest.mark.shows("file: .hive/reading")
def test_a_task_over_whose_reading_two_processes_died_fails_before_a_third(layout: Layout, tmp_path: Path) -> None:
    from hivemind.fs import DeadlyInputs

    path = drop(layout, "bad.md", "---\ntitle: x\n---\n")
    found = path.stat()

    def die() -> None:
        with DeadlyInputs(layout.reading).reading("task", "bad.md", f"{found.st_size} {found.st_mtime_ns}"):
            os.kill(os.getpid(), 9)

    assert [in_process(die) for _ in range(2)] == [9, 9]
    tasks = opened(layout, settle_ms=0)
    assert tasks.claim("scout") is None
    assert "processes died" in (layout.failed / "bad" / "error.md").read_text()


@pytest.mark.parametrize("taken", [False, True])
def test_a_file_that_the_hives_user_may_not_read_fails_alone(layout: Layout, taken: bool) -> None:
    drop(layout, "closed.md", "x").chmod(0)
    if taken:
        (layout.claimed / "scout").mkdir(parents=True)
        (layout.inbox / "closed.md").rename(layout.claimed / "scout/closed.md")
    drop(layout, "good.md", "good")

    def work() -> None:
        as_anyone()
        tasks = opened(layout)
        assert sorted(task.id for task in tasks.list()) == ["closed", "good"]
        assert [task.id for task in iter(lambda: tasks.claim("scout"), None)] == ["good"]

    in_process(work)
    assert "cannot be read (PermissionError: Permission denied)" in (layout.failed / "closed/error.md").read_text()
    assert not os.listdir(layout.inbox)


@pytest.mark.parametrize("closed", ["", "inner", "task.md"])
def test_a_folder_that_the_hives_user_may_not_read_is_passed_over_until_it_may(layout: Layout, closed: str) -> None:
    (layout.inbox / "closed/inner").mkdir(parents=True)
    (layout.inbox / "closed/task.md").write_text("x")
    (layout.inbox / "closed" / closed).chmod(0)
    for name in ("good.md", "other.md"):
        drop(layout, name, "good")

    def work() -> None:
        as_anyone()
        tasks = opened(layout, settle_ms=0)
        assert {task.id: task.waiting for task in tasks.list()}["closed"] == (
            "it may not be read and moved by the user of the hive: chmod -R a+rwX closed"
        )
        with pytest.raises(UserError, match="chmod -R"):
            tasks.cancel("closed")
        tasks.cancel("other")
        assert [task.id for task in iter(lambda: tasks.claim("scout"), None)] == ["good"]
        (layout.inbox / "closed" / closed).chmod(0o700)
        assert [task.id for task in iter(lambda: tasks.claim("scout"), None)] == ["closed"]

    in_process(work)


def test_a_folder_that_was_closed_after_it_was_looked_at_stops_nobody(layout: Layout) -> None:
    (layout.inbox / "closed").mkdir()
    (layout.inbox / "closed/task.md").write_text("x")
    drop(layout, "good.md", "good")

    def work() -> None:
        as_anyone()
        tasks = opened(layout, settle_ms=0, rename=close_and_rename)
        assert [task.id for task in iter(lambda: tasks.claim("scout"), None)] == ["good"]

    def close_and_rename(source: str, target: str) -> None:
        (layout.inbox / "closed").chmod(0)
        move(source, target)

    in_process(work)


def test_a_folder_that_is_closed_while_its_claim_is_unfinished_stops_nobody(layout: Layout) -> None:
    for agent in ("scout", "clerk"):
        (layout.claimed / agent / "closed").mkdir(parents=True)
        (layout.claimed / agent / "closed/task.md").write_text("x")
        (layout.claimed / agent / "closed").chmod(0)
        (layout.claimed / agent / ".build").mkdir()
        (layout.claimed / agent / ".build/task.md").write_text("x")
        (layout.claimed / agent / ".build").chmod(0)
        (layout.claimed / agent / "taken.md").write_text("x")

    def work() -> None:
        as_anyone()
        tasks = opened(layout)
        assert [task.id for task in tasks.mine("scout", 1)] == ["taken"]
        assert tasks.recovery.reclaim("clerk") == [layout.inbox / "taken.md"]
        assert {found.location for found in check_folders(layout)} == {
            layout.claimed / agent / name for agent in ("clerk", "scout") for name in ("closed", ".build")
        }
        for name in ("closed", ".build"):
            (layout.claimed / "scout" / name).chmod(0o700)
        assert {task.id for task in opened(layout).mine("scout", 2)} == {"closed", "taken", "task"}

    in_process(work)


def test_what_another_user_dropped_into_a_sticky_inbox_waits_and_the_rest_goes_on(layout: Layout) -> None:
    drop(layout, "theirs.md", "x")
    (layout.inbox / "folder").mkdir(mode=0o777)
    (layout.inbox / "folder/task.md").write_text("x")
    (layout.inbox / "link").symlink_to("theirs.md")
    drop(layout, "mine.md", "x")
    for path in (*(layout.inbox / name for name in ("theirs.md", "folder", "link")), layout.inbox):
        os.chown(path, 4711, -1, follow_symlinks=False)
    layout.inbox.chmod(0o1777)

    def work() -> None:
        as_anyone()
        tasks = opened(layout, settle_ms=0)
        assert [task.id for task in iter(lambda: tasks.claim("scout"), None)] == ["mine"]
        assert {task.id for task in tasks.list("inbox") if "sticky" in str(task.waiting)} == {
            "theirs",
            "folder",
            "link",
        }

    in_process(work)
    tasks = opened(layout, settle_ms=0)  # root may move them
    assert {task.id for task in iter(lambda: tasks.claim("scout"), None)} == {"folder", "theirs"}


def test_a_stray_file_in_active_is_named_and_no_task(layout: Layout, tasks: Tasks) -> None:
    (layout.active / "stray.txt").write_text("x")
    (layout.active / "link").symlink_to("/nowhere")
    (layout.active / "README.md").write_text("x")
    assert tasks.list("active") == []
    assert [(one.name, one.why) for one in tasks.listing.ignored()] == [
        ("active/link", "it is not a folder"),
        ("active/stray.txt", "it is not a folder"),
    ]
