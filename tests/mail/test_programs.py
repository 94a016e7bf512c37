"""Other programs read what we write: Python's mailbox, mutt, notmuch, mblaze, Dovecot."""

from __future__ import annotations

import mailbox
import os
import pty
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from email import policy
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest

from hivemind.mail import Attachment, Mail

_SUBJECT = "Größe & Gewicht: ein langer Betreff, der über mehr als eine Zeile geht, damit er gefaltet wird €"
_BODY = "# Überschrift\n\n* eins\n* zwei\n"


def _needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture
def box(tmp_path: Path, mail: Mail) -> Path:
    first = mail.send("alice", "bob", _SUBJECT, _BODY, task="t-1", importance="high")
    mail.send("alice", "bob", "with a file", "see there", attachments=[Attachment("größe.txt", b"12 cm")])
    mail.send(
        "human", "bob", "Re: " + _SUBJECT, "x" * 3000, in_reply_to=first.message_id, references=[first.message_id]
    )
    (tmp_path / "mailboxes/bob/new/note").write_text("no headers at all\n")
    (tmp_path / "mailboxes/bob/.Dead/x.why").write_text("because\n")
    mail.send("bob", "alice", "sent", "b", message_id="own-id")
    return tmp_path / "mailboxes" / "bob"


def _run(*command: str | Path, **environ: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, "LC_ALL": "C.UTF-8", **environ}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pythons_mailbox_reads_it(box: Path) -> None:
    found = mailbox.Maildir(box, factory=lambda file: BytesParser(policy=policy.default).parse(file), create=False)
    subjects = {str(message["subject"]) for message in found}
    assert subjects >= {_SUBJECT, "with a file", "Re: " + _SUBJECT}
    assert sorted(found.list_folders()) == ["Archive", "Dead", "Sent"]
    assert len(found.get_folder("Sent")) == 1
    assert len(found.get_folder("Dead")) == 0
    (with_file,) = (message for message in found if message["subject"] == "with a file")
    (attachment,) = with_file.iter_attachments()
    assert (attachment.get_filename(), attachment.get_content()) == ("größe.txt", b"12 cm")


def test_pythons_mailbox_delivers_to_us(box: Path, mail: Mail) -> None:
    found = mailbox.Maildir(box, create=False)
    key = found.add("From: bob@elsewhere\nSubject: foreign\nMessage-ID: <f@x>\n\nhi\n")
    assert mail.read("bob", "f@x").base == key
    assert not mail.read("bob", "f@x").trusted


@_needs("mutt")
def test_mutt_reads_it(box: Path, tmp_path: Path) -> None:
    (tmp_path / "muttrc").write_text(
        'set folder=""\nset charset=utf-8\nset mark_old=no\nset pipe_decode=yes\nset wait_key=no\n'
    )
    keys = f"push '<tag-pattern>~A<enter><tag-prefix><pipe-message>cat >> {tmp_path}/out<enter><exit>'"
    master, slave = pty.openpty()  # without a terminal mutt only sends
    mutt = subprocess.Popen(
        ["mutt", "-F", tmp_path / "muttrc", "-f", box, "-e", keys],
        env={**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm"}, stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    screen = b""
    try:
        while more := os.read(master, 65536):
            screen += more
    except OSError:  # EIO: mutt has ended
        pass
    os.close(master)
    assert mutt.wait(30) == 0, screen
    shown = " ".join((tmp_path / "out").read_text().split())
    assert _SUBJECT in shown
    assert "# Überschrift * eins * zwei" in shown
    assert "no headers at all" in shown
    assert "x" * 3000 in shown.replace(" ", "")


@pytest.fixture
def served(box: Path) -> Iterator[Path]:
    """The mailbox where Dovecot may serve it from: for root it serves nobody's mail, so that it is nobody's."""
    with tempfile.TemporaryDirectory(prefix="hive-imap-", dir="/tmp") as folder:
        root = Path(folder)
        shutil.copytree(box, root / "bob")
        if os.geteuid() == 0:
            for path in (root, *root.rglob("*")):
                os.chown(path, _NOBODY, _NOBODY)
        yield root


_NOBODY = 65_534
_IMAP = "/usr/lib/dovecot/imap"


@pytest.mark.skipif(not os.path.exists(_IMAP), reason="dovecot-imapd is not installed")
def test_dovecot_serves_it_by_imap_and_what_a_client_flags_is_read_by_us(served: Path, box: Path, mail: Mail) -> None:
    settings = {
        "base_dir": f"{served}/run", "log_path": f"{served}/log", "mail_location": f"maildir:{served}/bob", "ssl": "no",
        "protocols": "imap", "first_valid_uid": "1", "mail_uid": f"{os.geteuid() or _NOBODY}",
    }  # fmt: skip
    (served / "conf").write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    (served / "conf").chmod(0o644)
    asked = (
        'a list "" "*"', "b select INBOX", "c fetch 1:* (body[header.fields (subject message-id)])",
        'd search subject "with a file"', "e fetch 1:* (bodystructure)", "f store 1:* +flags (\\Seen)", "g logout",
    )  # fmt: skip
    user: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    done = subprocess.run(
        [_IMAP, "-c", served / "conf"], input="".join(f"{one}\r\n" for one in asked).encode(), capture_output=True,
        timeout=60, env={**os.environ, "USER": "bob", "HOME": str(served)}, check=False, **user,
    )  # fmt: skip
    told = done.stdout.decode()
    assert done.returncode == 0, (told, done.stderr, (served / "log").read_text() if (served / "log").exists() else "")
    for folder in ("Sent", "Archive", "Dead"):
        assert re.search(rf'LIST .* "?{folder}"?', told.replace("INBOX.", "")), told
    assert "* 4 EXISTS" in told
    assert " ".join(_SUBJECT.split()) in " ".join(told.split())
    assert "größe.txt" in told or "gr%C3%B6%C3%9Fe.txt" in told
    assert told.count("Message-ID: <") == 3
    assert "NO [" not in told
    assert "BAD " not in told
    shutil.rmtree(box / "cur")
    shutil.copytree(served / "bob/cur", box / "cur")
    for path in (box / "new").iterdir():
        path.unlink()
    assert ["S" in one.flags for one in mail.list("bob")] == [True] * 4


@_needs("notmuch")
def test_notmuch_indexes_it_and_joins_the_thread(box: Path, tmp_path: Path) -> None:
    (tmp_path / "notmuch").write_text(f"[database]\npath={tmp_path}/mailboxes\n[user]\nname=x\nprimary_email=x@hive\n")
    environ = {"NOTMUCH_CONFIG": os.fspath(tmp_path / "notmuch"), "HOME": os.fspath(tmp_path)}
    _run("notmuch", "new", "--quiet", **environ)
    assert _run("notmuch", "count", "--output=threads", "from:alice@hive and subject:Gewicht", **environ) == "1\n"
    assert _run("notmuch", "count", "subject:Größe", **environ) == "2\n"
    assert _run("notmuch", "count", "Überschrift", **environ) == "1\n"
    assert _run("notmuch", "count", "attachment:größe.txt", **environ) == "1\n"
    assert _run("notmuch", "count", "id:own-id@hive", **environ) == "1\n"
    thread = _run("notmuch", "search", "--output=threads", "subject:Gewicht", **environ).split()
    assert len(thread) == 1


@_needs("notmuch")
def test_nothing_but_notes_without_headers_is_no_mail_for_notmuch(box: Path, tmp_path: Path) -> None:
    manual = (Path(__file__).parents[2] / "knowledge/manual/04-mail.md").read_text("utf-8")
    (ignored,) = re.findall(r"^    (ignore=.*)$", manual, re.MULTILINE)
    (tmp_path / "notmuch").write_text(f"[database]\npath={tmp_path}/mailboxes\n[new]\n{ignored}\n")
    environ = {**os.environ, "NOTMUCH_CONFIG": os.fspath(tmp_path / "notmuch"), "HOME": os.fspath(tmp_path)}
    done = subprocess.run(["notmuch", "new"], env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert [line for line in done.stderr.splitlines() if not line.endswith("/new/note")] == []


@_needs("mshow")
def test_mblaze_reads_it(box: Path) -> None:
    files = sorted(str(file) for file in (box / "new").iterdir() if file.name != "note")
    subjects = _run("mhdr", "-d", "-h", "subject", *files).splitlines()
    assert _SUBJECT in subjects
    assert "* eins" in _run("mshow", files[0])


def test_cat_shows_it_as_it_was_written(box: Path) -> None:
    texts = [file.read_text() for file in (box / "new").iterdir()]
    assert any(text.endswith("\n\n" + _BODY + "\n") for text in texts)
    assert any(f"\nSubject: {_SUBJECT}\n" in text.replace("\n ", " ") for text in texts)
