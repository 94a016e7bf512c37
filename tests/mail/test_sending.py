from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind.errors import UserError
from hivemind.fs import Doorbell
from hivemind.layout import Layout
from hivemind.mail import Delivery, Mail
from hivemind.mail.maildir import Maildir
from hivemind.mail.reading import MAX_BYTES
from hivemind.mail.sending import SendRecord
from tests.fs.children import run_child, start_child
from tests.fs.small_disk import small_disk

from .hive import open_intake, open_mail

_SEND = """
import sys
from pathlib import Path
from tests.mail.hive import open_mail
id = sys.argv[2] or None
print(open_mail(Path(sys.argv[1]), durable=True).send("alice", ["bob", "carol"], "s", "b", message_id=id).message_id)
"""
_POINTS = [
    "mail.send.written", "mail.send.kept", "mail.send.staged", "mail.send.delivered", "mail.send.delivered:2"
]  # fmt: skip

listed: list[str] = []
"""The folders that were listed."""


@sys.addaudithook
def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event == "os.listdir":
        listed.append(str(arguments[0]))


def _files(root: Path, box: str, *subs: str) -> list[Path]:
    folder = root / "mailboxes" / box
    return [file for sub in subs or ("new", "cur") if (folder / sub).exists() for file in (folder / sub).iterdir()]


def test_a_message_stands_once_in_each_mailbox_and_in_sent(tmp_path: Path, mail: Mail) -> None:
    report = mail.send("alice", ["bob", "carol", "bob@hive", "Bob <BOB@HIVE>"], "s", "b", cc=["human", "carol"])
    assert report == Delivery(report.message_id, ("bob", "carol", "human"))
    assert report.ok
    files = [_files(tmp_path, box) for box in ("bob", "carol", "human")] + [_files(tmp_path, "alice", ".Sent/cur")]
    assert [len(found) for found in files] == [1, 1, 1, 1]
    assert len({found[0].stat().st_ino for found in files}) == 1
    assert files[3][0].name == files[0][0].name + ":2,S"
    assert _files(tmp_path, "alice", ".Sent/tmp") == []


def test_a_message_to_nobody_is_refused(mail: Mail) -> None:
    with pytest.raises(UserError, match="recipient"):
        mail.send("alice", [], "s", "b")


@pytest.mark.parametrize("sender", ["../etc", "", "a\nBcc: x", "a@b"])
def test_a_sender_that_is_no_name_is_refused(mail: Mail, sender: str) -> None:
    with pytest.raises(UserError):
        mail.send(sender, "bob", "s", "b")


@pytest.mark.parametrize("name", ["bobb", "bob@elsewhere", "../../etc", "a b c", "bob\nBcc: carol", "-", "é"])
def test_mail_to_somebody_unknown_bounces_with_the_reason(tmp_path: Path, mail: Mail, name: str) -> None:
    report = mail.send("alice", ["carol", name], "Hello", "the text")
    assert report.delivered == ("carol",)
    assert list(report.failed) == list(report.bounced)
    (shown,) = report.bounced
    (bounce,) = open_intake(mail, tmp_path, "alice").new_messages()
    assert (bounce.sender, bounce.automatic, bounce.trusted) == ("postmaster", True, True)
    assert (bounce.subject, bounce.in_reply_to) == ("Undelivered: Hello", report.message_id)
    assert report.failed[shown] in bounce.body
    assert "> the text" in bounce.body
    assert sorted(os.listdir(tmp_path / "mailboxes")) == ["alice", "carol"]


def test_a_near_name_is_suggested(mail: Mail) -> None:
    assert "did you mean bob?" in mail.send("alice", "bobb", "s", "b").failed["bobb"]
    with pytest.raises(UserError, match="did you mean bob"):
        mail.recipients(["carol", "bobb"])
    assert mail.recipients("carol, Human@hive") == ("carol", "human")


def test_a_bell_is_rung_for_each_recipient(tmp_path: Path, mail: Mail) -> None:
    folder = Layout.at(tmp_path).doorbells
    folder.parent.mkdir(exist_ok=True)
    with Doorbell(folder, "bob") as bell:
        mail.send("alice", ["carol", "bob"], "s", "b")
        assert bell.wait(0)


def test_sending_again_delivers_only_what_is_missing(tmp_path: Path, mail: Mail) -> None:
    first = mail.send("alice", "bob", "s", "b", message_id="step-1")
    assert first.message_id == "step-1@hive"
    again = mail.send("alice", ["bob", "carol"], "s", "b", message_id="<step-1@hive>")
    assert again == Delivery("step-1@hive", ("bob", "carol"))
    assert [len(_files(tmp_path, box)) for box in ("bob", "carol")] == [1, 1]
    assert len(_files(tmp_path, "alice", ".Sent/cur")) == 1


def test_a_message_that_was_deleted_after_delivery_does_not_come_back(tmp_path: Path, mail: Mail) -> None:
    mail.send("alice", "bob", "s", "b", message_id="step-1")
    _files(tmp_path, "bob")[0].unlink()
    assert mail.send("alice", "bob", "s", "b", message_id="step-1").delivered == ("bob",)
    assert _files(tmp_path, "bob") == []


def test_a_new_id_is_sent_without_looking_through_all_that_was_sent_before(mail: Mail) -> None:
    mail.send("alice", "bob", "First", "One.", message_id="first@elsewhere")
    listed.clear()
    mail.send("alice", "bob", "Second", "Two.", message_id="second@elsewhere")
    assert not [path for path in listed if ".Sent" in path]


def test_an_id_of_ours_can_be_sent_again_wherever_the_message_lies(tmp_path: Path, mail: Mail) -> None:
    report = mail.send("alice", ["bob", "carol"], "s", "b")
    box = tmp_path / "mailboxes" / "bob"
    (file,) = _files(tmp_path, "bob")
    file.rename(box / ".Archive" / "cur" / f"{file.name}:2,FS")
    _files(tmp_path, "carol")[0].unlink()
    again = mail.send("alice", ["bob", "carol"], "s", "b", message_id=report.message_id)
    assert again.delivered == ("bob", "carol")
    assert _files(tmp_path, "bob") == []
    assert len(_files(tmp_path, "carol")) == 1  # nobody can tell it from one that never came


def test_a_repeated_send_bounces_once(tmp_path: Path, mail: Mail) -> None:
    for _ in range(2):
        report = mail.send("alice", ["bob", "ghost"], "s", "b", message_id="step-1")
        assert (report.delivered, report.bounced) == (("bob",), ("ghost",))
    assert len(_files(tmp_path, "alice")) == 1


def test_what_stands_in_sent_is_what_is_delivered(tmp_path: Path, mail: Mail) -> None:
    mail.send("alice", "bob", "first", "b", message_id="step-1")
    mail.send("alice", "carol", "second", "b", message_id="step-1")
    assert mail.list("carol")[0].subject == "first"


@pytest.mark.parametrize("bad", ["a b", "a\nX: y", "<>", "x" * 300, "é", "a@b@c", "a,b"])
def test_a_bad_message_id_is_refused(mail: Mail, bad: str) -> None:
    with pytest.raises(UserError, match="Message-ID"):
        mail.send("alice", "bob", "s", "b", message_id=bad)


@pytest.mark.parametrize("bad", ["a b", "a\nX: y", "<>", "x" * 1000, "é", "a><b"])
def test_an_id_that_would_break_a_header_is_not_referred_to(mail: Mail, bad: str) -> None:
    with pytest.raises(UserError, match="Message-ID"):
        mail.send("alice", "bob", "s", "b", in_reply_to=bad)
    with pytest.raises(UserError, match="Message-ID"):
        mail.send("alice", "bob", "s", "b", references=[bad])


@pytest.mark.parametrize("point", _POINTS)
def test_a_send_killed_anywhere_goes_on_where_it_stopped(tmp_path: Path, point: str) -> None:
    run_child(_SEND, tmp_path, "step-1", crash_at=point)
    assert run_child(_SEND, tmp_path, "step-1") == "step-1@hive\n"
    names = {file.name for box in ("bob", "carol") for file in _files(tmp_path, box)}
    assert [len(_files(tmp_path, box)) for box in ("bob", "carol")] == [1, 1]
    assert len(names) == 1
    assert len(_files(tmp_path, "alice", ".Sent/cur")) == 1
    assert _files(tmp_path, "alice", ".Sent/tmp") == []
    assert open_mail(tmp_path).status("alice", "step-1@hive") == {"bob": "delivered", "carol": "delivered"}


@pytest.mark.parametrize("point", ["mail.send.remembered", *_POINTS])
def test_a_killed_send_shows_no_part_of_a_message(tmp_path: Path, point: str) -> None:
    run_child(_SEND, tmp_path, "step-1", crash_at=point)
    for box in ("bob", "carol"):
        for file in _files(tmp_path, box):
            assert file.read_text().endswith("\n\nb\n")


def test_a_copy_in_sent_that_a_power_cut_emptied_is_written_anew(tmp_path: Path) -> None:
    run_child(_SEND, tmp_path, "step-1", crash_at="mail.send.staged")
    (kept,) = _files(tmp_path, "alice", ".Sent/cur")
    kept.write_bytes(b"")
    run_child(_SEND, tmp_path, "step-1")
    assert open_mail(tmp_path).list("bob")[0].preview == "b"


def test_a_memory_of_a_send_that_was_cut_short_is_mended(tmp_path: Path, mail: Mail) -> None:
    mail.send("alice", "bob", "s", "b", message_id="step-1")
    (memo,) = Layout.at(tmp_path).send_records("alice").iterdir()
    memo.write_bytes(memo.read_bytes()[:-4])
    assert mail.send("alice", "bob", "s", "b", message_id="step-1").ok
    assert len(_files(tmp_path, "bob")) == 1


def test_a_memory_of_another_version_is_refused_and_kept(tmp_path: Path, mail: Mail) -> None:
    mail.send("alice", "bob", "s", "b", message_id="step-1")
    (memo,) = Layout.at(tmp_path).send_records("alice").iterdir()
    future = '{"kind":"mail-sent","version":99}\n'
    memo.write_text(future)
    with pytest.raises(UserError, match="knows version 2"):
        mail.send("alice", "bob", "s", "b", message_id="step-1")
    assert memo.read_text() == future


def test_the_memory_of_an_id_is_locked_while_its_send_runs(tmp_path: Path) -> None:
    with SendRecord(tmp_path / "sends", "step-1@hive").open():
        (path,) = (tmp_path / "sends").iterdir()
        with open(path) as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_two_processes_that_send_the_same_id_deliver_it_once(tmp_path: Path) -> None:
    children = [start_child(_SEND, tmp_path, "step-1") for _ in range(4)]
    for child in children:
        child.communicate()
        assert child.returncode == 0
    assert [len(_files(tmp_path, box)) for box in ("bob", "carol")] == [1, 1]


def test_a_full_disk_fails_for_everyone_and_leaves_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "hive", "size=256k"):
        mail = open_mail(tmp_path / "hive", durable=True)
        mail.send("alice", ["bob", "carol"], "small", "b")
        report = mail.send("alice", ["bob", "carol", "ghost"], "large", "x" * 300_000)
        assert report.delivered == ()
        assert all("No space left" in report.failed[name] for name in ("bob", "carol"))
        assert [summary.subject for summary in mail.list("bob")] == ["small"]
        assert [summary.subject for summary in mail.list("alice", "sent")] == ["small"]
        assert _files(tmp_path / "hive", "alice", ".Sent/tmp") == []


def test_one_full_mailbox_does_not_keep_it_from_the_others(tmp_path: Path) -> None:
    with small_disk(tmp_path / "mailboxes" / "bob", "size=64k"):
        mail = open_mail(tmp_path, durable=True)
        mail.ensure("bob")
        report = mail.send("alice", ["bob", "carol"], "s", "x" * 100_000)
        assert report.delivered == ("carol",)
        assert "No space left" in report.failed["bob"]
        assert _files(tmp_path, "bob", "new", "cur", "tmp") == []
        small = mail.send("alice", "bob", "s", "x")  # another disk: a copy instead of a link
        assert small.delivered == ("bob",)
        assert mail.read("bob", small.message_id).trusted


def test_a_read_only_mailbox_gets_it_when_it_can_be_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "mailboxes" / "bob"
    with small_disk(folder, "size=1m"):
        mail = open_mail(tmp_path)
        mail.ensure("bob")
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        report = mail.send("alice", ["bob", "carol"], "s", "b")
        assert report.delivered == ("carol",)
        assert "Read-only" in report.failed["bob"]
        _files(tmp_path, "carol")[0].unlink()
        subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
        again = mail.send("alice", ["bob", "carol"], "s", "b", message_id=report.message_id)
        assert again.delivered == ("bob", "carol")
        assert _files(tmp_path, "carol") == []  # she had it, and has deleted it
        assert len(_files(tmp_path, "bob")) == 1


def test_a_file_in_the_way_of_a_mailbox_fails_for_that_one_only(tmp_path: Path, mail: Mail) -> None:
    (tmp_path / "mailboxes").mkdir()
    (tmp_path / "mailboxes" / "bob").write_text("in the way")
    report = mail.send("alice", ["bob", "carol"], "s", "b")
    assert report.delivered == ("carol",)
    assert set(report.failed) == {"bob"}


def test_a_mailbox_that_is_a_link_out_of_the_hive_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "hive" / "mailboxes").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "hive" / "mailboxes" / "bob").symlink_to(tmp_path / "outside")
    mail = open_mail(tmp_path / "hive")
    report = mail.send("alice", ["bob", "carol"], "s", "b")
    assert report.delivered == ("carol",)
    assert "leads out" in report.failed["bob"]
    assert list((tmp_path / "outside").iterdir()) == []


def test_where_files_cannot_be_linked_they_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr("hivemind.mail.seal.create", lambda path, text, **_: Path(path).write_text(text))
    mail = open_mail(tmp_path, durable=True)
    report = mail.send("alice", ["bob", "carol"], "s", "b")
    assert report.ok
    assert mail.read("bob", report.message_id).trusted
    assert [len(_files(tmp_path, "alice", sub)) for sub in (".Sent/cur", ".Sent/tmp")] == [1, 0]


def test_old_litter_is_cleared_and_fresh_files_are_not(tmp_path: Path, mail: Mail) -> None:
    tmp = Path(mail.ensure("bob")) / "tmp"
    for name in ("old", "fresh"):
        (tmp / name).write_text("x")
    os.utime(tmp / "old", (0, 0))
    mail.ensure("bob")
    assert os.listdir(tmp) == ["fresh"]


def test_a_mailbox_is_a_maildir_plus_plus(tmp_path: Path, mail: Mail) -> None:
    mail.ensure("bob")
    box = tmp_path / "mailboxes" / "bob"
    assert sorted(os.listdir(box)) == [".Archive", ".Dead", ".Sent", "cur", "new", "tmp"]
    assert sorted(os.listdir(box / ".Sent")) == ["cur", "maildirfolder", "new", "tmp"]


def test_flags_set_by_a_mail_program_meanwhile_are_kept(tmp_path: Path, mail: Mail) -> None:
    mail.send("alice", "bob", "s", "b")
    box = Maildir(tmp_path / "mailboxes" / "bob")
    (entry,) = box.mail_files()
    os.rename(entry.path, os.path.join(box.cur, entry.base + ":2,FT"))
    found = box.flag(entry, "S")
    assert found is not None
    assert os.path.basename(found.path) == entry.base + ":2,FST"
    os.unlink(found.path)
    assert box.flag(entry, "R") is None


def test_a_message_that_nobody_could_read_is_refused_and_reaches_nobody(tmp_path: Path, mail: Mail) -> None:
    for id_ in (None, "long@hive"):
        with pytest.raises(UserError, match="at most 32 MiB"):
            mail.send("alice", ["bob"], "s", "b" * MAX_BYTES, message_id=id_)
    assert _files(tmp_path, "bob") == _files(tmp_path, "alice", ".Sent/cur") == []
