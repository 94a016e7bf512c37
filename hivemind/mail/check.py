"""What may be wrong with mail: messages that cannot be read, lie where nobody looks, or have names that mail programs misread."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container, Iterator
from functools import partial
from pathlib import Path

from hivemind import fs
from hivemind.boundary import Unreadable
from hivemind.config import TAKEN
from hivemind.errors import UserError
from hivemind.fs.check import Aside, Finding, listed
from hivemind.layout import Layout
from hivemind.mail.mail import Mail
from hivemind.mail.maildir import SUBFOLDERS, Entry, Maildir, is_dropping, is_unique, join, split
from hivemind.mail.seal import Seal

_TMP_S = 36 * 3600  # Maildir's own rule: what lies in tmp/ that long belongs to nobody
_PROGRAMS_OWN = re.compile(
    r"\..*|dovecot.*|subscriptions|maildir.*|courier.*|.*\.why|readme.*|tmp|new|cur", re.IGNORECASE
)


def check_key(layout: Layout, aside: Aside) -> Iterator[Finding]:
    """The key that the runtime seals its messages with."""
    seal = Seal(layout.mail_key, durable=False)
    try:
        is_damaged = seal.is_damaged()
    except UserError as error:
        yield Finding(layout.mail_key, error.what, error.mend or "")
        return
    if seal.is_gone():
        what = "is gone: what was sealed with it counts as unsealed, and the next send makes another"
        mend = "put it back from a copy, or hivemind doctor --fix makes another"
        yield Finding(layout.mail_key, what, mend, partial(_make, seal))
    elif is_damaged:
        what = "is not a mail key: what was sealed counts as unsealed, and the next send makes another"
        mend = "put it back from a copy, or hivemind doctor --fix sets it aside and makes another"
        yield Finding(layout.mail_key, what, mend, lambda: f"{aside.take(layout.mail_key)}; {_make(seal)}")


def _make(seal: Seal) -> str:
    seal.key()
    return "made another"


def check_letters(mail: Mail, layout: Layout, name: str, aside: Aside, now: float) -> Iterator[Finding]:
    """The mailbox of one name, with its sub-folders."""
    box = Maildir(layout.mailbox(name))
    for folder in SUBFOLDERS:
        maildir = box.sub(folder)
        if not os.path.isdir(maildir.path):
            continue  # told by the check of folders
        for path in listed(Path(maildir.tmp)):
            if now - path.lstat().st_mtime > _TMP_S:
                what = "has been in tmp/ for over 36 hours: a delivery that was never finished, which nobody will read"
                yield aside.finding(path, what)
        yield from _astray(maildir, aside)
        yield from _names(maildir)
        if folder != "dead":
            yield from _unreadable(mail, layout, name, maildir, folder, aside)
    count = sum(1 for _ in box.sub("dead").entries())
    if count:
        what = f"{count} dead letter{'s' if count > 1 else ''}: could not be read, or failed three times"
        mend = "the .why files beside say why; a message moved back to new/ is tried again"
        yield Finding(Path(box.sub("dead").path), what, mend, note=True)


def check_strangers(layout: Layout, agents: Container[str]) -> Iterator[Finding]:
    """Mailboxes of nobody: an agent that was renamed or taken away may have left mail behind."""
    for path in listed(layout.mailboxes):
        if path.is_dir() and not path.name.startswith(".") and path.name not in TAKEN and path.name not in agents:
            left = sum(1 for _ in Maildir(path).entries())
            what = f"is nobody's mailbox: there is no agent {path.name!r} ({left} messages in it)"
            mend = f"hivemind agent add {path.name} brings the agent back, or move the folder away"
            yield Finding(path, what, mend, note=True)


def _astray(maildir: Maildir, aside: Aside) -> Iterator[Finding]:
    """Files beside new/ and cur/, and what is not a file in them: no mail program looks there."""
    for path in listed(Path(maildir.path)):
        if _PROGRAMS_OWN.fullmatch(path.name) is None and path.is_file():
            what = "lies beside new/ and cur/, where no mail program looks"
            if is_unique(base := split(path.name)[0]):
                fix = partial(_move, path, Path(maildir.new, base))
                yield Finding(path, what, "hivemind doctor --fix moves it to new/", fix)
            else:
                yield Finding(path, what, f"move it to {maildir.new} if it is a message")
    for folder in (maildir.new, maildir.cur):
        for path in listed(Path(folder)):
            if not stat.S_ISREG(path.lstat().st_mode) and not path.name.startswith("."):
                yield aside.finding(path, "is not a regular file, and is never read as a message")


def _names(maildir: Maildir) -> Iterator[Finding]:
    """Flags where Maildir has none, none where it has them, and flags that are not in ASCII order."""
    for folder in (maildir.new, maildir.cur):
        for path in listed(Path(folder)):
            base, flags = split(path.name)
            good = base if folder == maildir.new else join(base, "".join(filter(str.isalpha, flags)))
            if path.name == good or is_dropping(path.name) or not stat.S_ISREG(path.lstat().st_mode):
                continue
            what = f"has no proper flags in its name (it should be {good!r})"
            if folder == maildir.new:
                what, good = (
                    "has flags in its name and lies in new/: mail programs take it for unread",
                    join(base, flags),
                )
            yield Finding(path, what, "hivemind doctor --fix renames it", partial(_move, path, Path(maildir.cur, good)))


def _move(path: Path, target: Path) -> str:
    fs.move(path, target)
    return f"moved to {target.parent.name}/{target.name}"


def _unreadable(
    mail: Mail, layout: Layout, name: str, maildir: Maildir, folder: str, aside: Aside
) -> Iterator[Finding]:
    for entry in maildir.entries():
        try:
            mail.reader.read_head(maildir, entry)
        except Unreadable as error:
            path = Path(entry.path)
            if folder == "inbox":
                mend = "hivemind doctor --fix moves it to .Dead, with the reason beside it"
                yield Finding(path, error.what, mend, partial(_bury, mail, layout, name, entry, error.what))
            else:
                yield aside.finding(path, error.what)


def _bury(mail: Mail, layout: Layout, name: str, entry: Entry, reason: str) -> str:
    buried = mail.bury(name, entry, reason)
    return "gone already" if buried is None else f"moved to {layout.relative(buried.path)}"
