"""Any bytes at any entrance of the room: lists, intakes, doctors and agents go on with all the other letters."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hivemind import Hive
from hivemind.doctor import DoctorContext, examine
from hivemind.errors import UnknownVersion, UserError
from hivemind.layout import Layout
from tests.agent.conftest import Crew, doing, until_idle
from tests.sample import examples

from .hive import open_intake, open_mail

_WORDS = st.sampled_from(
    [
        b"From: alice@hive\n", b"From: =?utf-7?q?+2AA-?= <a>\n", b"Subject: =?utf-7?b?KzJBQS0=?=\n",
        b"Message-ID: <" + b"i" * 2000 + b"@x>\n", "Message-ID: <ö@x>\n".encode(), b"In-Reply-To: <\xed\xa0\x80>\n",
        b"To: (" * 40, b"Date: 31 Dec 9999 23:59:59 -2359\n", b"Content-Type: text/html; charset=utf-7\n",
        b"Content-Type: multipart/mixed; boundary=b\n", b"\n", b"\n\n", b"--b\n", b"--b--\n", b"+2AA-", b"<a href=x><b",
        b"Content-Disposition: attachment; filename*=utf-7''%2B2AA-\n", b"<!--", b"&#xd800;", b"&#99999999;", b"\0",
        b'{"kind":"mail-taken","version":2}\n', b'{"taken":"1763765432.M000001P1Q0R00000000.host"}\n', b'{"failed":"x"}\n',
        b'{"kind":"mail-sent","version":2}\n', b'[{"taken":7},[]]\n', b'{"seq":1,"id":7}\n',
        b'{"seq":1,"id":"step@hive","name":"x"}\n', b'{"seq":2,"to":"bob","is":"delivered"}\n', b"\xff\xfe",
        b'{"kind":"mail-taken","version":99}\n', b'{"kind":"mail-sent","version":99}\n',
        b"0123456789abcdef" * 4,
    ]
)  # fmt: skip
_QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of folders
ANY = st.lists(_WORDS | st.binary(max_size=30), max_size=12).map(b"".join)


@contextmanager
def _hive() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=_QUICK) as root:
        yield Path(root)


@examples(100, 40)
@given(ANY, st.sampled_from(["new/note", "new/1763765400.M1P1Q1R00000000.host", "cur/1763765400.M1P1.host:2,S"]))
def test_any_bytes_as_a_letter(raw: bytes, name: str) -> None:
    with _hive() as root:
        mail = open_mail(root)
        mail.ensure("bob")
        mail.send("alice", "bob", "good", "b")
        (root / "mailboxes/bob" / name).write_bytes(raw)
        listed = mail.list("bob")
        assert "good" in [one.subject for one in listed]
        json.dumps([one.as_record() for one in listed], ensure_ascii=False).encode()
        intake = open_intake(mail, root)
        for message in intake.new_messages():
            json.dumps(
                [message.body, message.id, message.sender, [one.name for one in message.attachments]],
                ensure_ascii=False,
            ).encode()
            if message.sender in ("alice", "human"):
                mail.reply("bob", message.id, message.body)
            else:
                mail.send(
                    "bob", "alice", "s", "b", in_reply_to=message.id, references=(*message.references, message.id)
                )
            intake.mark_taken(message)
        assert [one.subject for one in intake.new_messages()] == []
        assert all("S" in one.flags for one in mail.list("bob"))


@examples(100, 40)
@given(ANY)
def test_any_bytes_as_the_record_of_what_was_taken_in(raw: bytes) -> None:
    with _hive() as root:
        mail = open_mail(root)
        mail.send("alice", "bob", "old", "b")
        intake = open_intake(mail, root)
        intake.mark_taken(intake.new_messages()[0])
        mail.send("alice", "bob", "good", "b")
        record = Layout.at(root).agent_state("bob") / "mail-taken"
        record.write_bytes(raw)
        assert len(mail.list("bob")) == 2
        try:
            intake = open_intake(mail, root)
        except UnknownVersion:
            assert b'"version":' in raw
            return
        subjects = [message.subject for message in intake.new_messages()]
        assert subjects[-1:] == ["good"]
        for message in intake.new_messages():
            intake.mark_taken(message)
        assert open_intake(mail, root).new_messages() == []


def test_a_damaged_record_is_kept_and_what_was_seen_is_not_given_out_again(tmp_path: Path) -> None:
    mail = open_mail(tmp_path)
    for number in range(3):
        mail.send("alice", "bob", str(number), "b")
    intake = open_intake(mail, tmp_path)
    for message in intake.new_messages():
        intake.mark_taken(message)
    mail.send("alice", "bob", "new", "b")
    record = Layout.at(tmp_path).agent_state("bob") / "mail-taken"
    record.write_bytes(b"\0\0garbage")
    assert [message.subject for message in open_intake(mail, tmp_path).new_messages()] == ["new"]
    (kept,) = record.parent.glob("mail-taken.damaged-*")
    assert kept.read_bytes() == b"\0\0garbage"


@examples(100, 40)
@given(ANY)
@example(b"\x00From: alice@hive\n")  # a hole before a line is no send that was cut short
def test_any_bytes_as_the_record_of_what_was_sent(raw: bytes) -> None:
    with _hive() as root:
        mail = open_mail(root)
        mail.send("alice", "bob", "first", "b", message_id="step@hive")
        (record,) = (path for path in Layout.at(root).state.rglob("*/alice/*") if path.is_file())
        record.write_bytes(raw)
        refused = ""
        try:
            assert mail.send("alice", "bob", "first", "b", message_id="step@hive").ok
        except UserError as error:
            refused = str(error)
        assert not refused or os.fspath(record) in refused
        assert mail.send("alice", "bob", "good", "b").ok
        assert [one.subject for one in mail.list("bob")].count("good") == 1
        if raw.count(b"\n") > 1:  # one without a whole line behind its header a crash has left before anything was sent
            assert [one.subject for one in mail.list("bob")].count("first") == 1


@pytest.mark.parametrize("rest", [b"", b"\0"], ids=["the rest is missing", "the rest is zeros"])
def test_a_send_whose_record_the_power_has_cut_short_is_sent_under_its_id(rest: bytes) -> None:
    """Found by make faults (power/stores, seed 2): it was refused as damaged, header and half a line, and never went."""
    with _hive() as root:
        open_mail(root).send("alice", "bob", "first", "b", message_id="step@hive")
        (record,) = (path for path in Layout.at(root).state.rglob("*/alice/*") if path.is_file())
        where, written = record.relative_to(root), b"".join(record.read_bytes().splitlines(keepends=True)[:2])
    for whole in range(len(written)):
        with _hive() as root:
            (root / where).parent.mkdir(parents=True)
            (root / where).write_bytes(written[:whole] + rest * (len(written) - whole))
            assert open_mail(root).send("alice", "bob", "first", "b", message_id="step@hive").ok
            assert [one.subject for one in open_mail(root).list("bob")] == ["first"]


@examples(100, 40)
@given(ANY)
def test_any_bytes_as_the_key(raw: bytes) -> None:
    with _hive() as root:
        open_mail(root).send("alice", "bob", "old", "b")
        Layout.at(root).mail_key.write_bytes(raw)
        mail = open_mail(root)
        assert [one.subject for one in mail.list("bob")] == ["old"]
        assert mail.send("alice", "bob", "good", "b").ok
        found = {message.subject: message.trusted for message in open_intake(mail, root).new_messages()}
        assert found["good"]
        assert set(found) == {"old", "good"}


@pytest.mark.parametrize("place", ["letter", "record", "key", "sidecar", "sent"])
@settings(max_examples=8, deadline=None)
@given(ANY)
def test_an_agent_and_the_doctor_go_on_with_all_other_letters(place: str, raw: bytes) -> None:
    with _hive() as root:
        crew = Crew(root / "hive")
        try:
            layout = Layout.at(crew.root)
            hive = Hive.open(crew.root)
            hive.mail.send("human", "ada", "first", "b", message_id="step@hive")
            path = {
                "letter": layout.mailbox("ada") / "new" / "note",
                "record": layout.agent_state("ada") / "mail-taken",
                "key": layout.mail_key,
                "sidecar": layout.mailbox("ada") / ".Dead" / "x.why",
                "sent": next(path for path in layout.state.rglob("*/human/*") if path.is_file()),
            }[place]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw)
            hive.mail.send("human", "ada", "good", "b")
            list(examine(DoctorContext(layout)))
            try:
                agent = crew.start(doing())
            except UnknownVersion:
                assert b'"version":' in raw
                return
            until_idle(agent)
            assert [one.flags for one in hive.mail.list("ada") if one.subject == "good"] == ["S"]
        finally:
            crew.close()
