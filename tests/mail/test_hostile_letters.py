"""One letter never stops anyone: whatever its bytes are, it is read or set aside with its reason, and the rest goes on."""

from __future__ import annotations

import json
import os
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from hivemind.errors import UserError
from hivemind.layout import Layout
from hivemind.mail import Mail
from tests.fs.children import run_child, start_child

from .hive import open_intake, open_mail

NAME = "1763765400.M1P1Q1R00000000.host"


def _nested(depth: int) -> bytes:
    heads = [b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (at, at) for at in range(depth)]
    return b"From: x@y\n" + b"".join(heads) + b"\ntext\n"


HOSTILE = {
    "sender of open comments": b"From: " + b"(" * 3000 + b"\nSubject: x\n\nb\n",
    "recipients of groups in groups": b"From: a@b\nTo: " + b"a:" * 3000 + b"\n\nb\n",
    "copies of groups in groups": b'From: a@b\nCc: "x" ' + b"a:" * 3000 + b"\n\nb\n",
    "a date before all others": b"Subject: x\nDate: Mon, 01 Jan 0001 00:00:00 +2359\n\nb\n",
    "a date after all others": b"Subject: x\nDate: Fri, 31 Dec 9999 23:59:59 -2359\n\nb\n",
    "the last second of all": b"Subject: x\nDate: Fri, 31 Dec 9999 23:59:59 +0000\n\nb\n",
    "parts in parts": _nested(3000),
    "many parts": b"From: x@y\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 20_000,
    "many parameters": b"From: x@y\nContent-Type: multipart/mixed"
    + b"; a=b" * 10_000
    + b'; boundary="b"\n\n--b\n\nx\n',
    "many fields": b"Subject: x\n" + b"a:\n" * 20_000 + b"\nb\n",
    "many recipients": b"Subject: x\nTo: " + b"a@b," * 100_000 + b"\n\nb\n",
    "a quadratic charset": b"Subject: x\nContent-Type: text/plain; charset=punycode\n\n" + b"a-" + b"b9" * 20_000,
    "a part of a charset that is none": b"From: x@y\nContent-Type: multipart/mixed; boundary=b\n\n--b\n"
    b"Content-Type: text/plain; charset*=utf-8'en'\xff; charset=\"\x00\"\n\nx\n--b--\n",
}


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest, mail: Mail, bob: Path) -> Path:
    """A hostile letter, the oldest in bob's mailbox, with a good one behind it."""
    path = bob / "new" / NAME
    path.write_bytes(HOSTILE[request.param])
    mail.send("alice", "bob", "good", "b")
    return path


def test_a_hostile_letter_keeps_no_other_from_being_listed(mail: Mail, hostile: Path) -> None:
    listed = mail.list("bob")
    assert [one.subject for one in listed][1:] == ["good"]
    json.dumps([one.as_record() for one in listed])
    assert [one.date.astimezone(timezone(timedelta(hours=hours))) for one in listed for hours in (-12, 14)]
    assert [one.body for one in mail.thread("bob", listed[1].id)] == ["b"]
    with pytest.raises(UserError, match="no message"):
        mail.read("bob", "no@such.id")


def test_a_hostile_letter_keeps_no_other_from_being_taken_in(tmp_path: Path, mail: Mail, hostile: Path) -> None:
    intake = open_intake(mail, tmp_path)
    for message in intake.new_messages():
        intake.mark_taken(message)
    assert [one.subject for one in mail.list("bob") if one.subject == "good" and not one.unread] == ["good"]
    left = {
        path.name.partition(":")[0]
        for folder in ("cur", ".Dead/cur")
        for path in (hostile.parents[1] / folder).iterdir()
    }
    assert NAME in left


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("parts in parts", "10 levels"),
        ("many parts", "1,000 MIME parts"),
        ("many parameters", "8 KiB of parameters"),
        ("many fields", "1,000 header fields"),
        ("many recipients", "field to has more than 64 KiB"),
    ],
)
def test_what_is_beyond_a_bound_lies_in_dead_with_the_reason(
    tmp_path: Path, mail: Mail, bob: Path, name: str, reason: str
) -> None:
    (bob / "new" / NAME).write_bytes(HOSTILE[name])
    assert open_intake(mail, tmp_path).new_messages() == []
    assert reason in (bob / ".Dead" / f"{NAME}.why").read_text()


_READER = """
import sys
from pathlib import Path
from tests.mail.hive import open_intake, open_mail
root = Path(sys.argv[1])
mail = open_mail(root)
intake = open_intake(mail, root)
print([message.subject for message in intake.new_messages()])
"""


def test_a_letter_during_whose_reading_two_processes_died_is_set_aside_before_a_third(tmp_path: Path) -> None:
    mail = open_mail(tmp_path)
    mail.send("alice", "bob", "bad", "b")
    mail.send("alice", "bob", "good", "b")
    for _ in range(2):
        assert run_child(_READER, tmp_path, crash_at="mail.read.opened") == ""
    assert run_child(_READER, tmp_path) == "['good']\n"
    (why,) = (tmp_path / "mailboxes/bob/.Dead").glob("*.why")
    assert "2 processes died" in why.read_text()


def test_a_listing_counts_no_death_of_its_own(tmp_path: Path) -> None:
    mail = open_mail(tmp_path)
    mail.send("alice", "bob", "one", "b")
    for _ in range(4):
        mail.list("bob")
        child = start_child(
            "import os, sys; from pathlib import Path; from tests.mail.hive import open_mail;"
            "open_mail(Path(sys.argv[1])).list('bob'); os.kill(os.getpid(), 9)",
            tmp_path,
        )
        child.communicate()
    assert [one.subject for one in mail.list("bob")] == ["one"]
    assert len(os.listdir(Layout.at(tmp_path).reading)) == 1
    del mail
    assert os.listdir(Layout.at(tmp_path).reading) == []
