"""A person answers an agent's question without the command line: with a file from the shell, and with mutt."""

from __future__ import annotations

import os
import pty
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from hivemind import Hive
from tests.cli.conftest import make_hive
from tests.program import run

ROOT = Path(__file__).parent.parent.parent
MANUAL = (ROOT / "knowledge" / "manual" / "04-mail.md").read_text("utf-8")
QUESTION = "---\ntitle: Paint\nsteps:\n- wait: {human: Which colour shall it be?}\n---\nPaint it.\n"


def _up(root: Path) -> int:
    words = ["--hive", str(root), "up", "--until-idle"]
    return run(words, capture_output=True, timeout=60, check=False).returncode


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """A hive whose one task waits for a person's answer."""
    root = make_hive(tmp_path / "hive")
    hive = Hive.open(root)
    (hive.layout.inbox / "paint.md").write_text(QUESTION)
    assert _up(root) == 3
    return root


def _question(root: Path) -> dict[str, str]:
    """The headers of the one message in the person's mailbox."""
    (message,) = (root / "mailboxes" / "human" / "new").iterdir()
    return dict(re.findall(r"^([\w-]+): (.*)$", message.read_text().split("\n\n")[0], re.MULTILINE))


def test_an_answer_from_the_shell_needs_in_reply_to_and_nothing_else(asked: Path) -> None:
    headers = _question(asked)
    agent = headers["From"].partition("@")[0]
    answer = f"In-Reply-To: {headers['Message-ID']}\n\nDark blue.\n"
    (asked / "mailboxes" / agent / "new" / "answer").write_text(answer)
    assert _up(asked) == 0
    assert "Dark blue." in (asked / "tasks" / "done" / "paint" / "result.md").read_text()


def test_mail_that_answers_nothing_leaves_the_task_waiting(asked: Path) -> None:
    agent = _question(asked)["From"].partition("@")[0]
    (asked / "mailboxes" / agent / "new" / "hello").write_text("Subject: colours\n\nDark blue.\n")
    assert _up(asked) == 3


@pytest.mark.skipif(shutil.which("mutt") is None, reason="mutt is not installed")
def test_an_answer_written_in_mutt_as_the_manual_sets_it_up_lets_the_task_go_on(asked: Path, tmp_path: Path) -> None:
    _mutt_replies(asked, tmp_path, "Dark blue.")
    assert _up(asked) == 0
    assert "Dark blue." in (asked / "tasks" / "done" / "paint" / "result.md").read_text()
    (seen,) = (asked / "mailboxes" / "human" / "cur").iterdir()
    assert "R" in seen.name.partition(":2,")[2]


@pytest.mark.skipif(shutil.which("mutt") is None, reason="mutt is not installed")
@pytest.mark.parametrize("to", ["nobody@hive", "analyst@elsewhere", "nobody"])
def test_a_letter_from_mutt_to_an_unknown_name_reaches_nobody_and_mutt_says_so(tmp_path: Path, to: str) -> None:
    root = make_hive(tmp_path / "hive")
    Hive.open(root).mail.ensure("analyst")
    muttrc = _muttrc(root, tmp_path, "")
    words = ["mutt", "-F", muttrc, "-s", "Sails"]
    sent = subprocess.run([*words, f"analyst@hive,{to}"], input=b"Which?", capture_output=True, timeout=60, check=False)
    assert (sent.returncode, b"child exited 67" in sent.stderr + sent.stdout) == (1, True), sent
    assert not [*root.glob("mailboxes/*/new/*"), *root.glob("mailboxes/*/tmp/*")]
    sent = subprocess.run([*words, "analyst"], input=b"Which?", capture_output=True, timeout=60, check=False)
    assert (sent.returncode, len([*root.glob("mailboxes/analyst/new/*")])) == (0, 1), sent


def _muttrc(root: Path, folder: Path, text: str) -> Path:
    """Return the configuration that the manual gives, with its script, and an editor that writes a text."""
    settings = re.search(r"((?:^    set .*\n)+)", MANUAL, re.MULTILINE)
    script = re.search(r"^    #!/bin/sh\n    # hive-send(?:.*\n)+?(?=^\S)", MANUAL, re.MULTILINE)
    assert settings is not None
    assert script is not None
    send, muttrc, editor = folder / "hive-send", folder / "muttrc", folder / "editor"
    placed = [
        ("/home/you/my-hive", str(root)),
        ("@my-hive", "@hive"),
        ('"my-hive"', '"hive"'),
        ("/home/you/bin/hive-send", str(send)),
        ("\n    ", "\n"),
    ]
    texts = {send: script[0].strip(), muttrc: settings[0].strip(), editor: f"#!/bin/sh\necho '{text}' >> \"$1\"\n"}
    for path, content in texts.items():
        for old, new in placed:
            content = content.replace(old, new)
        path.write_text(content + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    with open(muttrc, "a") as more:
        more.write(
            f'set editor="{editor}"\nset fast_reply=yes\nset include=no\nset wait_key=no\nset recall=no\nset quit=yes\n'
        )
    return muttrc


def _mutt_replies(root: Path, folder: Path, text: str) -> None:
    """Reply to the first message as the manual sets mutt up."""
    keys = "push '<first-entry><reply><send-message><quit>'"
    master, slave = pty.openpty()
    mutt = subprocess.Popen(
        ["mutt", "-F", _muttrc(root, folder, text), "-f", root / "mailboxes" / "human", "-e", keys],
        env={**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm"}, stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    screen = b""
    try:
        while more_screen := os.read(master, 65536):
            screen += more_screen
    except OSError:  # EIO: mutt has ended
        pass
    os.close(master)
    assert mutt.wait(30) == 0, screen
