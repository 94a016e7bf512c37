"""Mail: unreadable, misplaced, misnamed, never finished."""

from __future__ import annotations

import os
import socket
import time

import pytest

from hivemind import Hive
from hivemind.doctor import DoctorContext, apply_fixes, examine
from hivemind.errors import UserError
from tests.rights import as_anyone
from tests.tasks.conftest import in_process

OLD = time.time() - 37 * 3600


def test_a_delivery_that_was_never_finished_is_set_aside_after_36_hours(hive: Hive, visit, treatment) -> None:
    tmp = hive.layout.mailbox("human") / "tmp"
    for name, age in (("young", time.time()), ("old", OLD)):
        (tmp / name).write_text("From: x\n\nhalf")
        os.utime(tmp / name, (age, age))
    (found,) = visit()
    assert found.location == "mailboxes/human/tmp/old"
    treatment()
    assert sorted(os.listdir(tmp)) == ["young"]
    (kept,) = (hive.layout.state / "aside").glob("*/mailboxes/human/tmp/old")
    assert kept.read_text() == "From: x\n\nhalf"


def test_what_cannot_be_read_goes_to_the_dead_letters_with_the_reason(hive: Hive, visit, treatment) -> None:
    box = hive.layout.mailbox("human")
    huge = box / "new" / "1700000000.M1P1.host"
    with open(huge, "wb") as file:
        file.truncate(33 << 20)  # a sparse file, over what a message may have
    (found,) = visit()
    assert "cannot be read" in found.message
    treatment()
    assert not huge.exists()
    assert list((box / ".Dead" / "cur").iterdir())
    assert list((box / ".Dead").glob("*.why"))
    assert visit() == []


def test_a_message_beside_new_and_cur_is_moved_to_new(hive: Hive, visit, treatment) -> None:
    box = hive.layout.mailbox("human")
    (box / "1700000000.M1P1.host:2,S").write_text("Subject: lost\n\nx")
    (box / "notes").write_text("a person's own")
    assert [finding.fix is None for finding in visit()] == [False, True]
    treatment()
    assert (box / "new" / "1700000000.M1P1.host").is_file()
    assert (box / "notes").is_file()


def test_what_mail_programs_keep_in_a_mailbox_is_left_alone(hive: Hive, visit) -> None:
    box = hive.layout.mailbox("human")
    for name in ("dovecot.index", "subscriptions", "maildirfolder", ".mh_sequences", "dovecot-uidlist"):
        (box / name).write_text("")
    assert visit() == []


def test_flags_are_brought_into_the_order_that_maildir_asks_for(hive: Hive, visit, treatment) -> None:
    box = hive.layout.mailbox("human")
    for name in ("cur/1700000000.M1P1.host:2,SRR", "cur/1700000000.M2P1.host", "new/1700000000.M3P1.host:2,F"):
        (box / name).write_text("Subject: x\n\nx")
    assert len(visit()) == 3
    treatment()
    assert sorted(os.listdir(box / "cur")) == [
        "1700000000.M1P1.host:2,RS",
        "1700000000.M2P1.host:2,",
        "1700000000.M3P1.host:2,F",
    ]
    assert visit() == []


def test_a_rename_never_covers_another_message(hive: Hive, visit, treatment) -> None:
    cur = hive.layout.mailbox("human") / "cur"
    (cur / "1700000000.M1P1.host:2,SR").write_text("Subject: a\n\na")
    (cur / "1700000000.M1P1.host:2,RS").write_text("Subject: b\n\nb")
    (left,) = treatment()
    assert left.unresolved_reason is not None
    assert sorted(path.read_text()[-1] for path in cur.iterdir()) == ["a", "b"]


def test_what_is_no_file_is_set_aside(hive: Hive, visit, treatment) -> None:
    new = hive.layout.mailbox("human") / "new"
    (new / "folder").mkdir()
    os.mkfifo(new / "fifo")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    here = os.getcwd()
    try:
        os.chdir(new)  # a socket's path has 108 bytes
        listener.bind("socket")
    finally:
        os.chdir(here)
    (new / "link").symlink_to("/etc/passwd")
    treatment()
    assert os.listdir(new) == []
    assert visit() == []
    listener.close()


def test_a_key_that_is_gone_is_told(hive: Hive, visit, treatment) -> None:
    assert visit() == []
    hive.mail.send("human", "researcher", "s", "body")
    hive.layout.mail_key.unlink()
    (found,) = visit()
    assert found.message.startswith("is missing: messages sealed with it count as unsealed")
    treatment()
    assert visit() == []


def test_what_is_no_key_is_set_aside_and_another_made(hive: Hive, visit, treatment) -> None:
    hive.mail.send("human", "researcher", "s", "body")
    hive.layout.mail_key.write_text("no key")
    (found,) = visit()
    assert found.message.startswith("does not contain a mail key")
    treatment()
    assert visit() == []
    (kept,) = (hive.layout.state / "aside").glob("*/.hive/mail.key")
    assert kept.read_text() == "no key"


def test_a_message_by_hand_and_a_message_of_ours_are_healthy(hive: Hive, visit) -> None:
    hive.mail.send("human", "researcher", "s", "body")
    (hive.layout.mailbox("researcher") / "new" / "hello").write_text("What is a lease?")
    assert visit() == []


def test_nobodys_mailbox_and_dead_letters_are_notes(hive: Hive) -> None:
    hive.mail.ensure("gone")
    hive.mail.ensure("postmaster")
    (hive.layout.mailbox("human") / ".Dead" / "cur" / "1700000000.M1P1.host:2,").write_text("x")
    said = {note.location: note.message for note in examine(DoctorContext(hive.layout)) if note.note}
    assert "a mailbox without an agent" in said["mailboxes/gone"]
    assert "mailboxes/postmaster" not in said
    assert "1 dead letter:" in said["mailboxes/human/.Dead"]


def test_a_key_that_may_not_be_read_is_told_and_stays_where_it_is(hive: Hive) -> None:
    sent = hive.mail.send("human", "researcher", "s", "body").message_id
    hive.layout.mail_key.chmod(0)

    def look() -> None:
        as_anyone()
        mail = Hive.open(hive.layout.root).mail
        for use in (lambda: mail.send("human", "researcher", "s", "body"), lambda: mail.read("researcher", sent)):
            with pytest.raises(
                UserError, match=r"mail\.key: cannot be read \(Permission denied\); its owner must make it"
            ):
                use()
        patient = DoctorContext(hive.layout)
        told = apply_fixes(patient, [one for one in examine(patient) if not one.note])
        assert {one.unresolved_reason for one in told if one.finding.location == ".hive/mail.key"} == {
            "it must be fixed by hand"
        }

    in_process(look)
    assert sorted(path.name for path in hive.layout.state.rglob("mail.key*")) == ["mail.key", "mail.key.lock"]
