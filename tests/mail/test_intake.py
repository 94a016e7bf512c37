from __future__ import annotations

import json
import mailbox
import os
import random
import resource
import shutil
import threading
from pathlib import Path

import pytest

from hivemind.errors import UnknownVersion, UserError
from hivemind.layout import Layout
from hivemind.mail import Intake, Mail
from tests.fs.children import run_child, start_child
from tests.fs.small_disk import fill, small_disk

from .hive import open_intake, open_mail

# An agent: each message becomes a block, a line in a file that is written before the message is taken in.
_AGENT = """
import sys
from pathlib import Path
from tests.mail.hive import open_intake, open_mail
root = Path(sys.argv[1])
intake = open_intake(open_mail(root, durable=True), root)
with open(root / "blocks", "a") as blocks:
    for message in intake.new_messages():
        print(message.id, file=blocks, flush=True)
        if message.subject == "poison":
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
        if message.subject == "bad":
            intake.count_failure(message, "it is bad")
        else:
            intake.mark_taken(message)
"""


def _blocks(root: Path) -> list[str]:
    return (root / "blocks").read_text().splitlines()


def _subjects(intake: Intake) -> list[str]:
    return [message.subject for message in intake.new_messages()]


def _take_all(intake: Intake) -> list[str]:
    found = []
    for message in intake.new_messages():
        intake.mark_taken(message)
        found.append(message.subject)
    return found


def _record(root: Path) -> Path:
    return Layout.at(root).agent_state("bob") / "mail-taken"


def test_a_message_is_given_until_it_is_taken_and_never_after(tmp_path: Path, mail: Mail, bob: Path) -> None:
    mail.send("alice", "bob", "one", "b")
    intake = open_intake(mail, tmp_path)
    assert _subjects(intake) == _subjects(intake) == ["one"]
    assert _take_all(intake) == ["one"]
    assert _subjects(intake) == []
    (file,) = (bob / "cur").iterdir()
    assert file.name.endswith(":2,S")
    assert _subjects(open_intake(mail, tmp_path)) == []


def test_messages_come_oldest_first_and_no_more_than_asked(tmp_path: Path, mail: Mail) -> None:
    for number in range(25):
        mail.send("alice", "bob", str(number), "b")
    intake = open_intake(mail, tmp_path)
    found: list[str] = []
    while messages := intake.new_messages(limit=4):
        assert len(messages) <= 4
        for message in messages:
            intake.mark_taken(message)
            found.append(message.subject)
    assert found == [str(number) for number in range(25)]


@pytest.mark.parametrize("point", ["mail.intake.recorded", "mail.intake.moved"])
def test_an_agent_killed_while_taking_in_makes_each_block_once(tmp_path: Path, point: str) -> None:
    mail = open_mail(tmp_path)
    sent = [mail.send("alice", "bob", str(number), "b").message_id for number in range(5)]
    for nth in (1, 2):
        run_child(_AGENT, tmp_path, crash_at=f"{point}:{nth}")
    run_child(_AGENT, tmp_path)
    assert _blocks(tmp_path) == sent
    assert mail.count_unread("bob") == 0


def test_what_a_power_cut_undid_of_the_moves_is_done_again(tmp_path: Path, mail: Mail, bob: Path) -> None:
    for subject in ("one", "two", "three"):
        mail.send("alice", "bob", subject, "b")
    intake = open_intake(mail, tmp_path)
    for message in intake.new_messages():
        intake.mark_taken(message)
    for path in (bob / "cur").iterdir():
        path.rename(bob / "new" / path.name.partition(":")[0])
    assert open_intake(mail, tmp_path).new_messages() == []
    assert not list((bob / "new").iterdir())
    assert len(mail.list("bob")) == 3
    assert mail.count_unread("bob") == 0


def test_an_agent_killed_before_it_records_gets_the_message_again_under_the_same_id(tmp_path: Path) -> None:
    mail = open_mail(tmp_path)
    sent = mail.send("alice", "bob", "poison", "b").message_id
    for _ in range(2):
        child = start_child(_AGENT, tmp_path)
        child.communicate()
    assert _blocks(tmp_path) == [sent, sent]


@pytest.mark.parametrize("point", ["mail.intake.counted", "mail.dead.explained", "mail.dead.moved"])
def test_a_message_whose_handler_fails_three_times_is_dead(tmp_path: Path, point: str) -> None:
    mail = open_mail(tmp_path)
    mail.send("alice", "bob", "bad", "b")
    for _ in range(2):
        run_child(_AGENT, tmp_path)
    run_child(_AGENT, tmp_path, crash_at=point)
    run_child(_AGENT, tmp_path)
    assert mail.list("bob") == []
    assert len(_blocks(tmp_path)) == 3
    (dead,) = mail.list("bob", "dead")
    sidecar = tmp_path / f"mailboxes/bob/.Dead/{Path(dead.path).name.partition(':')[0]}.why"
    assert "failed 3 times" in sidecar.read_text()
    assert mail.status("alice", dead.id) == {"bob": "dead"}


def test_a_dead_letter_moved_back_by_hand_is_tried_again(tmp_path: Path, mail: Mail, bob: Path) -> None:
    mail.send("alice", "bob", "bad", "b")
    intake = open_intake(mail, tmp_path)
    for times in (1, 2, 3):
        (message,) = intake.new_messages()
        assert intake.count_failure(message, "no") == (times == 3)
    assert intake.new_messages() == []
    (dead,) = (bob / ".Dead" / "cur").iterdir()
    dead.rename(bob / "new" / dead.name.partition(":")[0])
    assert _take_all(intake) == ["bad"]


def test_failures_are_counted_across_restarts(tmp_path: Path, mail: Mail) -> None:
    mail.send("alice", "bob", "bad", "b")
    for times in (1, 2, 3):
        intake = open_intake(mail, tmp_path)
        (message,) = intake.new_messages()
        assert intake.count_failure(message, "no") == (times == 3)


def _png(new: Path) -> None:
    (new / "photo.png").write_bytes(b"\x89PNG\0\0")


def _folder(new: Path) -> None:
    (new / "folder").mkdir()
    (new / "folder" / "file").write_text("x")
    os.utime(new / "folder", (0, 0))


def _fifo(new: Path) -> None:
    os.mkfifo(new / "fifo")
    os.utime(new / "fifo", (0, 0))


def _link_out(new: Path) -> None:
    os.symlink("/etc/passwd", new / "link")


def _link_to_nothing(new: Path) -> None:
    os.symlink("nothing", new / "1763765432.M1P1Q1R00000000.host")


@pytest.mark.parametrize("make", [_png, _folder, _fifo, _link_out, _link_to_nothing])
def test_what_cannot_be_read_goes_to_dead_at_once_with_the_reason(
    tmp_path: Path, mail: Mail, bob: Path, make: object
) -> None:
    assert callable(make)
    make(bob / "new")
    (name,) = os.listdir(bob / "new")
    mail.send("alice", "bob", "good", "b")
    intake = open_intake(mail, tmp_path)
    assert _subjects(intake) == ["good"]
    assert [one.name.partition(":")[0] for one in (bob / ".Dead" / "cur").iterdir()] == [name]
    assert "cannot be read" in (bob / ".Dead" / f"{name}.why").read_text()
    assert "root:" not in (bob / ".Dead" / f"{name}.why").read_text()
    assert len(mail.list("bob", "dead")) == 1


@pytest.mark.parametrize("name", ["note", "1763765432.M1P1Q1R00000000.host"])
def test_a_link_that_stays_in_the_hive_is_read(tmp_path: Path, mail: Mail, bob: Path, name: str) -> None:
    (tmp_path / "note").write_text("from a link")
    os.symlink(tmp_path / "note", bob / "new" / name)
    assert _take_all(open_intake(mail, tmp_path)) == ["from a link"]


def test_a_note_by_hand_is_a_message_from_human(tmp_path: Path, mail: Mail, bob: Path) -> None:
    (bob / "new" / "note.txt").write_text("Buy milk\n\nand bread\n")
    intake = open_intake(mail, tmp_path)
    (message,) = intake.new_messages()
    assert (message.sender, message.subject, message.trusted) == ("human", "Buy milk", False)
    assert mail.list("bob")[0].id == message.id
    intake.mark_taken(message)
    assert os.listdir(bob / "cur") == ["note.txt:2,S"]
    assert mail.read("bob", message.id).body == "Buy milk\n\nand bread"


def test_the_same_file_name_dropped_again_is_another_message(tmp_path: Path, mail: Mail, bob: Path) -> None:
    intake = open_intake(mail, tmp_path)
    ids = set()
    for _ in range(3):
        (bob / "new" / "note.txt").write_text("go on\n")
        (message,) = intake.new_messages()
        ids.add(message.id)
        intake.mark_taken(message)
        assert _subjects(intake) == []
    assert len(ids) == 3
    assert len(os.listdir(bob / "cur")) == 3
    assert {mail.read("bob", id_).id for id_ in ids} == ids
    assert _subjects(open_intake(mail, tmp_path)) == []


def test_in_a_hive_that_was_put_back_from_a_copy_nothing_is_given_out_again(tmp_path: Path) -> None:
    root, copy = tmp_path / "hive", tmp_path / "copy"
    mail = open_mail(root)
    mail.send("human", ["bob"], "Sent", "x")
    intake = open_intake(mail, root)
    note = mail.mailboxes.get("bob").new
    Path(note, "note").write_text("By hand.")
    assert len(_take_all(intake)) == 2
    shutil.copytree(root, copy)
    assert _subjects(open_intake(open_mail(copy), copy)) == []


def test_a_half_written_file_is_left_alone_until_it_is_closed(tmp_path: Path, mail: Mail, bob: Path) -> None:
    intake = open_intake(mail, tmp_path)
    with open(bob / "new" / "note", "w") as file:
        file.write("half")
        file.flush()
        assert _subjects(intake) == []
        assert intake.unsettled_count == 1
        assert mail.list("bob") == []
        file.write(" and half")
    assert _subjects(intake) == ["half and half"]
    assert intake.unsettled_count == 0


def test_half_written_files_do_not_keep_mail_back(tmp_path: Path, mail: Mail, bob: Path) -> None:
    intake = open_intake(mail, tmp_path)
    files = [open(bob / "new" / f"note{number}", "w") for number in range(3)]  # noqa: SIM115 (held open)
    assert intake.new_messages(limit=1) == []
    mail.send("alice", "bob", "whole", "b")
    assert [message.subject for message in intake.new_messages(limit=1)] == ["whole"]
    for file in files:
        file.close()


def test_running_out_of_descriptors_is_not_held_against_a_message(tmp_path: Path, mail: Mail) -> None:
    mail.send("alice", "bob", "one", "b")
    intake = open_intake(mail, tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            intake.new_messages()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert _subjects(intake) == ["one"]


def test_what_editors_leave_is_no_message(tmp_path: Path, mail: Mail, bob: Path) -> None:
    for name in (".note.swp", "note~", "4913", ".hidden"):
        (bob / "new" / name).write_text("x")
    assert _subjects(open_intake(mail, tmp_path)) == []
    assert mail.count_unread("bob") == 0


def test_a_mailbox_program_that_reads_first_hides_nothing(tmp_path: Path, mail: Mail, bob: Path) -> None:
    intake = open_intake(mail, tmp_path)
    assert _subjects(intake) == []
    for number in range(3):
        mail.send("alice", "bob", str(number), "b")
    person = mailbox.Maildir(bob, create=False)
    for key, message in person.items():
        message.set_subdir("cur")
        message.add_flag("S")
        person[key] = message
    assert _take_all(intake) == ["0", "1", "2"]
    assert _subjects(intake) == []


def test_nothing_that_a_mail_program_does_afterwards_brings_a_message_back(
    tmp_path: Path, mail: Mail, bob: Path
) -> None:
    intake = open_intake(mail, tmp_path)
    mail.send("alice", "bob", "one", "b")
    (bob / "new" / "note").write_text("two")
    assert _take_all(intake) == ["one", "two"]
    for file in list((bob / "cur").iterdir()):
        file.rename(bob / "new" / file.name.partition(":")[0])
    assert _subjects(intake) == []
    for file in list((bob / "new").iterdir()):
        file.rename(bob / "cur" / f"{file.name}:2,FRS")
    assert _subjects(intake) == []
    assert _subjects(open_intake(mail, tmp_path)) == []


def test_an_agent_and_a_mail_program_at_the_same_time_lose_and_repeat_nothing(tmp_path: Path) -> None:
    mail = open_mail(tmp_path)
    box = tmp_path / "mailboxes" / "bob"
    mail.ensure("bob")
    done = threading.Event()
    seen: list[str] = []
    deleted: set[str] = set()

    def person() -> None:
        dice = random.Random(1)
        program = mailbox.Maildir(box, create=False)
        while not done.is_set():
            for key in list(program.iterkeys()):
                try:
                    message = program[key]
                    choice = dice.randrange(4)
                    if choice == 0:
                        message.set_subdir(dice.choice(["new", "cur"]))
                        message.add_flag(dice.choice("SF"))
                        os.rename(*_moved(box, program, key, message.get_subdir(), message.get_flags()))
                    elif choice == 1 and str(message["Message-ID"]) in seen:
                        program.discard(key)
                except (KeyError, FileNotFoundError):
                    continue

    thread = threading.Thread(target=person)
    thread.start()
    intake = open_intake(mail, tmp_path)
    sent = []
    for number in range(300):
        sent.append(mail.send("alice", "bob", str(number), "b").message_id)
        if number % 7 == 0:
            for message in intake.new_messages():
                seen.append(message.id)
                intake.mark_taken(message)
    done.set()
    thread.join()
    intake._cur_folder._listed_at = intake._new_folder._listed_at = float("-inf")  # as the slow heartbeat will have it
    for message in intake.new_messages():
        seen.append(message.id)
        intake.mark_taken(message)
    assert not deleted
    assert sorted(seen) == sorted(sent)


def _moved(box: Path, program: mailbox.Maildir[object], key: str, subdir: str, flags: str) -> tuple[str, str]:
    name = program._toc[key]  # type: ignore[attr-defined]
    target = key if subdir == "new" else f"{key}:2,{flags}"
    return os.path.join(box, name), os.path.join(box, subdir, target)


def test_a_message_deleted_before_it_is_read_is_passed_over(tmp_path: Path, mail: Mail, bob: Path) -> None:
    intake = open_intake(mail, tmp_path)
    mail.send("alice", "bob", "one", "b")
    mail.send("alice", "bob", "two", "b")
    (one, _) = intake.new_messages()
    os.unlink(one.path)
    assert _subjects(intake) == ["two"]
    intake.mark_taken(one)


def test_an_idle_look_lists_nothing(tmp_path: Path, mail: Mail, bob: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mail.send("alice", "bob", "one", "b")
    intake = open_intake(mail, tmp_path)
    _take_all(intake)
    for folder in ("new", "cur"):
        os.utime(bob / folder, (1e9, 1e9))  # long ago: no doubt about the time stamp
    assert _subjects(intake) == []

    def refuse(*_: object) -> list[str]:
        raise AssertionError("listed")

    monkeypatch.setattr(os, "listdir", refuse)
    assert _subjects(intake) == []


def test_taking_in_does_not_list_what_was_read_before(
    tmp_path: Path, mail: Mail, bob: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake = open_intake(mail, tmp_path)
    for number in range(5):
        mail.send("alice", "bob", str(number), "b")
    listed: list[str] = []
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(str(path)) or real(path))
    while messages := intake.new_messages(limit=1):
        intake.mark_taken(messages[0])
    assert listed.count(str(bob / "cur")) <= 1


def test_a_full_disk_keeps_the_message_for_later(tmp_path: Path, mail: Mail) -> None:
    intake = open_intake(mail, tmp_path)
    mail.send("alice", "bob", "zero", "b")
    assert _take_all(intake) == ["zero"]
    mail.send("alice", "bob", "one", "b")
    (message,) = intake.new_messages()
    before = _record(tmp_path).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, hard))
    try:
        with pytest.raises(UserError, match="cannot be written"):
            intake.mark_taken(message)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert _record(tmp_path).read_bytes() == before
    assert _take_all(intake) == ["one"]


def test_a_record_cut_short_by_a_crash_is_mended(tmp_path: Path, mail: Mail) -> None:
    intake = open_intake(mail, tmp_path)
    for number in range(3):
        mail.send("alice", "bob", str(number), "b")
        _take_all(intake)
    record = _record(tmp_path)
    record.write_bytes(record.read_bytes()[:-10])
    again = open_intake(mail, tmp_path)
    assert _take_all(again) == ["2"]
    assert record.read_bytes().endswith(b"\n")
    assert _subjects(open_intake(mail, tmp_path)) == []


def test_a_record_of_another_version_is_refused_and_kept(tmp_path: Path, mail: Mail) -> None:
    mail.send("alice", "bob", "0", "b")
    _take_all(open_intake(mail, tmp_path))
    future = '{"kind":"mail-taken","version":99}\n'
    _record(tmp_path).write_text(future)
    with pytest.raises(UnknownVersion, match="knows version 2"):
        open_intake(mail, tmp_path)
    assert _record(tmp_path).read_text() == future


def test_the_record_forgets_what_is_gone_and_nothing_that_is_there(
    tmp_path: Path, mail: Mail, bob: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hivemind.mail.intake._MAX_GONE_KEYS", 2)
    intake = open_intake(mail, tmp_path)
    for number in range(40):
        mail.send("alice", "bob", str(number), "b")
    assert len(_take_all(intake)) == 40
    for file in sorted((bob / "cur").iterdir())[:37]:
        file.unlink()
    intake._cur_folder._listed_at = intake._new_folder._listed_at = float("-inf")
    assert _subjects(intake) == []
    lines = _record(tmp_path).read_text().splitlines()
    assert len([line for line in lines if "taken" in json.loads(line)]) == 3 + 2
    again = open_intake(mail, tmp_path)
    assert _subjects(again) == []
    mail.send("alice", "bob", "new", "b")
    assert _take_all(again) == ["new"]


def test_a_hostile_file_name_is_recorded_on_one_line(tmp_path: Path, mail: Mail, bob: Path) -> None:
    names = [b"+ x\n+ y", b"\xff\xfe", "ünï %2B ".encode(), b"a:2,S:2,S", b"x" * 240]
    for name in names:
        (bob / "new" / os.fsdecode(name)).write_bytes(b"text of " + name)
    intake = open_intake(mail, tmp_path)
    assert len(_take_all(intake)) == len(names)
    assert _subjects(intake) == []
    assert _subjects(open_intake(mail, tmp_path)) == []


def test_a_new_agent_takes_in_what_came_before_it(tmp_path: Path, mail: Mail) -> None:
    mail.send("alice", "bob", "early", "b")
    assert _take_all(open_intake(mail, tmp_path)) == ["early"]


def test_seen_mail_is_taken_in_even_if_someone_read_it_first(tmp_path: Path, mail: Mail) -> None:
    report = mail.send("alice", "bob", "one", "b")
    assert mail.read("bob", report.message_id).flags == "S"
    assert _take_all(open_intake(mail, tmp_path)) == ["one"]


def test_a_letter_that_cannot_be_set_aside_on_a_full_disk_keeps_no_other_back(tmp_path: Path) -> None:
    with small_disk(tmp_path / "hive", "size=512k"):
        root = tmp_path / "hive"
        mail = open_mail(root)
        mail.ensure("bob")
        (root / "mailboxes/bob/new/1763765400.M1P1.host").write_bytes(b"a:\n" * 1_001 + b"\nx\n")
        mail.send("alice", "bob", "good", "b")
        intake = open_intake(mail, root)
        ballast = fill(root)
        assert _subjects(intake) == ["good"]
        assert intake.unsettled_count == 1
        ballast.unlink()
        assert _subjects(intake) == ["good"]
        assert [one.base for one in mail.mailboxes.get("bob", "dead").mail_files()] == ["1763765400.M1P1.host"]
