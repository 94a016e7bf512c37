"""What is over goes to dated archives, where every command finds it; nothing is lost, doubled or deleted on the way."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.config import RetentionConfig
from hivemind.coordination import Journal
from hivemind.layout import month_of
from hivemind.swarm.archive import archive
from hivemind.swarm.due import do_due
from hivemind.tasks import TaskProblem
from tests.durability import relaxed
from tests.swarm.conftest import Swarm

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
ALL = RetentionConfig(tasks=86_400 * 90, mail=86_400 * 90, journal=86_400 * 90)


def opened(tmp_path: Path, settings: dict | None = None) -> Hive:
    root = tmp_path / "hive"
    Hive.init(root)
    (root / "hive.yaml").write_text(json.dumps({"durability": "relaxed", "settle_ms": 0, **(settings or {})}))
    return Hive.open(root)


def ended(hive: Hive, task_id: str, when: datetime, *, fails: bool = False, **fields: object) -> Path:
    """A task that ended at that time."""
    hive.tasks.add(f"About {task_id}", id=task_id, **fields)
    task = hive.tasks.claim("researcher")
    assert task is not None
    folder = hive.tasks.fail(task, "It leaks.") if fails else hive.tasks.finish(task, f"The result of {task_id}.\n")
    os.utime(folder / ("error.md" if fails else "result.md"), (when.timestamp(),) * 2)
    return folder


def test_tasks_that_ended_long_ago_lie_in_the_folder_of_their_month_as_they_were(tmp_path: Path):
    hive = opened(tmp_path)
    before = {path.name: path.read_bytes() for path in ended(hive, "old", NOW - timedelta(days=200)).glob("*.*")}
    ended(hive, "leaky", NOW - timedelta(days=100), fails=True)
    ended(hive, "young", NOW - timedelta(days=3))
    done = archive(hive, ALL, NOW)
    assert done.tasks == ("tasks/archive/2026-05/done/old", "tasks/archive/2026-08/failed/leaky")
    moved = hive.layout.root / done.tasks[0]
    assert {path.name: path.read_bytes() for path in moved.glob("*.*")} == before
    assert [one.id for one in hive.tasks.list("done")] == ["young"]
    assert [(one.id, one.state, f"{one.since:%Y-%m}") for one in hive.tasks.listing.list_archived()] == [
        ("old", "done", "2026-05"),
        ("leaky", "failed", "2026-08"),
    ]
    assert archive(hive, ALL, NOW).tasks == (), "a second run finds nothing"


def test_an_archived_task_is_still_that_task_for_all_who_name_it(tmp_path: Path):
    hive = opened(tmp_path)
    ended(hive, "old", NOW - timedelta(days=200))
    ended(hive, "leaky", NOW - timedelta(days=200), fails=True)
    archive(hive, ALL, NOW)
    assert hive.tasks.get("old").state == "done"
    assert hive.tasks.listing.outcome("leaky") == "failed"
    assert hive.tasks.add("Another", title="old") == "old-2", "its id stays its own"
    hive.tasks.add("Needs it", id="next", dependencies=["old"])
    hive.tasks.add("Waits", id="later", dependencies=["leaky"])
    assert hive.tasks.listing.waiting_for("next") is None
    assert "failed and was not retried" in (hive.tasks.listing.waiting_for("later") or "")
    assert hive.tasks.retry("leaky") == hive.layout.inbox / "leaky"
    assert hive.tasks.listing.list_archived("failed") == []


def test_a_file_that_could_not_become_a_task_is_told_of_in_the_archive_too(tmp_path: Path):
    hive = opened(tmp_path)
    (hive.layout.inbox / "slip.md").write_text("---\nprioritty: high\n---\nWhat is a lease?\n")
    assert hive.tasks.claim("researcher") is None
    os.utime(hive.layout.failed / "slip" / "error.md", (0, 0))
    archive(hive, ALL, NOW)
    with pytest.raises(TaskProblem):
        hive.tasks.get("slip")
    told = hive.tasks.listing.unreadable_summary("Slip")
    assert told is not None
    assert (told.state, told.path.parent.parent.name) == ("failed", "1970-01")
    assert "did you mean 'priority'?" in (told.error or "")


def test_a_part_of_a_task_that_goes_on_stays_where_it_is(tmp_path: Path):
    hive = opened(tmp_path)
    hive.tasks.add("The whole", id="whole")
    whole = hive.tasks.claim("researcher")
    assert whole is not None
    hive.tasks.add("A part", id="part", parent="whole", by="researcher")
    part = hive.tasks.claim("writer")
    assert part is not None
    folder = hive.tasks.finish(part, "The part.\n")
    os.utime(folder / "result.md", (0, 0))
    assert archive(hive, ALL, NOW).tasks == ()
    hive.tasks.finish(whole, "All of it.\n")
    assert archive(hive, ALL, NOW).tasks == ("tasks/archive/1970-01/done/part",)


def test_read_mail_is_kept_by_the_month_of_each_letter_and_found_as_before(tmp_path: Path):
    at = [NOW - timedelta(days=120)]
    hive = opened(tmp_path)
    hive.mail.clock = hive.mail._sender.clock = lambda: at[0]
    first = hive.mail.send("human", "researcher", "First", "One")
    unread = hive.mail.send("human", "researcher", "Unread", "Two")
    flagged = hive.mail.send("human", "researcher", "Flagged", "Three")
    hive.mail.read("researcher", first.message_id)
    answer = hive.mail.reply("researcher", first.message_id, "Yes")
    entry = hive.mail.reader.locate("researcher", flagged.message_id, ("inbox",))
    assert entry is not None
    hive.mail.mailboxes.get("researcher").flag(entry[1], "FS")
    hive.mail.read("human", answer.message_id)
    at[0] = NOW
    again = hive.mail.reply("human", answer.message_id, "Good")
    assert archive(hive, ALL, NOW).letters == 6, "one read, one read answer, four that were sent"
    root = hive.layout.mailboxes
    assert len(list((root / "researcher/.Archive.2026-07/cur").iterdir())) == 1
    assert {one.subject for one in hive.mail.list("researcher")} == {"Unread", "Flagged", "Re: First"}
    assert [one.subject for one in hive.mail.list("researcher", "archive")] == ["First"]
    assert len(hive.mail.list("human", "sent")) == 4
    assert hive.mail.read("researcher", first.message_id).body.strip() == "One"
    assert hive.mail.status("human", first.message_id) == {"researcher": "answered"}
    assert hive.mail.status("human", unread.message_id) == {"researcher": "delivered"}
    for box, start in (("researcher", first.message_id), ("human", again.message_id)):
        assert [one.body.strip() for one in hive.mail.thread(box, start)] == ["One", "Yes", "Good"]
    assert archive(hive, ALL, NOW).letters == 0


def test_a_letter_that_was_archived_is_not_delivered_again(tmp_path: Path):
    hive = opened(tmp_path)
    sent = hive.mail.send("human", "researcher", "Once", "One")
    hive.mail.read("researcher", sent.message_id)
    later = datetime.now(UTC) + timedelta(days=100)
    assert archive(hive, ALL, later).letters == 2
    assert hive.mail.send("human", "researcher", "Once", "One", message_id=sent.message_id).delivered == ("researcher",)
    assert hive.mail.list("researcher") == []


def test_closed_segments_of_the_journal_are_read_where_they_lie(tmp_path: Path):
    folder = tmp_path / "journal"
    journal = Journal(folder, segment_bytes=200)
    for number in range(40):
        journal.append("note", number=number)
    looking = Journal(folder, read_only=True)
    assert next(looking.events()).seq == 1
    there = len(list(folder.glob("*.jsonl")))
    moved = journal.archive(time.time() + 10)
    assert len(moved) == there - 1
    assert (folder / f"archive/{month_of(time.time())}/journal-000000000001.jsonl").is_file()
    assert all(re.fullmatch(r".*/archive/\d{4}-\d{2}/journal-\d{12}\.jsonl", path) for path in moved)
    journal.append("note", number=40)
    for one in (journal, looking, Journal(folder)):
        assert [event.payload["number"] for event in one.events()] == list(range(41))
        assert [event.seq for event in one.read(20)] == list(range(21, 42))
    (next(folder.glob("snapshot-*.json"))).unlink()
    assert Journal(folder).fingerprint() == journal.fingerprint(), "it is folded anew from the archive"
    journal.archive(time.time() + 10)
    assert journal.archive(time.time() + 10) == []


def test_a_journal_whose_archive_lacks_a_segment_says_so(tmp_path: Path):
    journal = Journal(tmp_path, segment_bytes=200)
    for number in range(40):
        journal.append("note", number=number)
    moved = journal.archive(time.time() + 10)
    os.unlink(moved[1])
    with pytest.raises(Exception, match="instead of"):
        list(journal.events())
    assert journal.append("note", number=40).seq == 41, "what is not asked for is not missed"


def test_it_is_done_once_a_day_if_hive_yaml_says_how_old_is_old(tmp_path: Path):
    hive = opened(tmp_path, {"retention": {"tasks": "90d"}})
    ended(hive, "old", NOW - timedelta(days=200))
    now = [NOW]
    first = do_due(hive, lambda: now[0])
    assert first.archived is not None
    assert first.archived.tasks == ("tasks/archive/2026-05/done/old",)
    assert first.next == NOW + timedelta(days=1)
    ended(hive, "older", NOW - timedelta(days=300))
    now[0] += timedelta(hours=23)
    assert do_due(hive, lambda: now[0]).archived is None
    now[0] += timedelta(hours=2)
    again = do_due(hive, lambda: now[0]).archived
    assert again is not None
    assert again.tasks == ("tasks/archive/2026-01/done/older",)
    assert do_due(opened(tmp_path / "other"), lambda: now[0]).next is None


def full_of_history(root: Path) -> Hive:
    """A hive with three tasks that are over, letters that were read, and a journal in several segments."""
    Hive.init(root)
    (root / "hive.yaml").write_text('{"durability": "relaxed", "settle_ms": 0}')
    hive = Hive.open(root)
    journal = Journal(relaxed(hive.layout.journal), segment_bytes=200)
    for number in range(30):
        journal.append("note", number=number)
    for name in ("one", "two", "three"):
        ended(hive, name, NOW - timedelta(days=200))
        hive.mail.read("researcher", hive.mail.send("human", "researcher", name, name).message_id)
    return hive


def files_in(folder: Path) -> list[str]:
    """The contents of the files in a folder and below, in order: whatever is moved about, each is there once."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "maildirfolder")
    return sorted(path.read_bytes().hex() for path in found)


@pytest.mark.shows("promise: P55")
@pytest.mark.parametrize("point", ["tasks.archive.moved", "mail.archive.moved", "journal.archive.moved"])
def test_killed_in_the_middle_the_next_run_goes_on_and_everything_is_there_once(tmp_path: Path, point: str):
    hive = full_of_history(tmp_path)
    events = hive.journal.read()
    tasks, mail = files_in(tmp_path / "tasks"), files_in(tmp_path / "mailboxes")
    command = Swarm(tmp_path)
    assert command.run("archive", "--older-than", "0s", status=None, HIVEMIND_CRASH_AT=point) == ""
    assert files_in(tmp_path / "tasks") == tasks
    told = json.loads(command.run("archive", "--older-than", "0s", "--json"))
    assert len(told["tasks"]) == {"tasks.archive.moved": 2}.get(point, 0)
    assert files_in(tmp_path / "tasks") == tasks
    assert files_in(tmp_path / "mailboxes") == mail
    assert len(list((tmp_path / "tasks/archive/2026-05/done").iterdir())) == 3
    assert hive.journal.read() == events
    assert json.loads(command.run("log", "--json"))[: len(events)] == [event.as_dict() for event in events]


@pytest.mark.shows("promise: P55")
def test_runs_at_once_move_each_thing_once(tmp_path: Path):
    full_of_history(tmp_path)
    mail, command = files_in(tmp_path / "mailboxes"), Swarm(tmp_path)
    runs = [command.start("archive", "--older-than", "0s", "--json") for _ in range(2)]
    assert [one.wait() for one in runs] == [0, 0]
    told = [json.loads((tmp_path / f"started-{at}.log").read_text()) for at in range(2)]
    assert sorted(Path(one).name for found in told for one in found["tasks"]) == ["one", "three", "two"]
    assert sum(found["letters"] for found in told) == 6
    assert files_in(tmp_path / "mailboxes") == mail


def test_the_command_line_shows_what_is_archived_and_a_swarm_archives_by_itself(tmp_path: Path):
    full_of_history(tmp_path)
    command = Swarm(tmp_path)
    command.configure(durability="relaxed", retention={"tasks": "90d", "mail": "90d", "journal": "90d"})
    command.run("up", "--until-idle")
    rows = json.loads(command.run("task", "list", "--archived", "--json"))
    assert sorted(row["id"] for row in rows) == ["one", "three", "two"]
    shown = json.loads(command.run("task", "show", "two", "--json"))
    assert (shown["state"], shown["result"]) == ("done", "The result of two.\n")
    read = command.run("tool", "call", "read_file", "--agent", "researcher", "path=tasks/done/two/result.md")
    assert "The result of two." in read, "a source that was named before leads there still"
