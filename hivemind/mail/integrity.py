"""Check mailboxes for unreadable messages, misplaced files and file names that mail programs misread."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container, Iterator
from functools import partial
from pathlib import Path

from hivemind import fs
from hivemind.boundary import Unreadable
from hivemind.config import RESERVED_NAMES
from hivemind.errors import UserError
from hivemind.fs.integrity import Aside, DoctorFinding, list_folder
from hivemind.layout import Layout
from hivemind.mail.mail import Mail
from hivemind.mail.maildir import SUBFOLDERS, Maildir, MailFile, is_leftover, is_unique_name, join_name, split_name
from hivemind.mail.seal import Seal

_MAX_TMP_AGE_S = 36 * 3600  # Maildir's rule for files in tmp/: an unfinished delivery this old has been abandoned
_MAIL_PROGRAM_FILES = re.compile(
    r"\..*|dovecot.*|subscriptions|maildir.*|courier.*|.*\.why|readme.*|tmp|new|cur", re.IGNORECASE
)


def check_key(layout: Layout, aside: Aside) -> Iterator[DoctorFinding]:
    """Check the key with which the runtime seals its messages."""
    seal = Seal(layout.mail_key)
    try:
        is_damaged = seal.is_damaged()
    except UserError as error:
        yield DoctorFinding(layout.mail_key, error.message, error.remedy or "")
        return
    if seal.is_gone():
        message = "is missing: messages sealed with it count as unsealed, and the next send creates a new key"
        remedy = "restore it from a copy, or hivemind doctor --fix creates a new one"
        yield DoctorFinding(layout.mail_key, message, remedy, partial(_make_key, seal))
    elif is_damaged:
        message = "does not contain a mail key: sealed messages count as unsealed, and the next send creates a new key"
        remedy = "restore it from a copy, or hivemind doctor --fix sets it aside and creates a new one"
        yield DoctorFinding(
            layout.mail_key, message, remedy, lambda: f"{aside.set_aside(layout.mail_key)}; {_make_key(seal)}"
        )


def _make_key(seal: Seal) -> str:
    seal.key()
    return "created a new key"


def check_letters(mail: Mail, layout: Layout, name: str, aside: Aside, now: float) -> Iterator[DoctorFinding]:
    """Check the mailbox of one agent or of the operator, with its sub-folders."""
    box = Maildir(layout.mailbox(name))
    for folder in SUBFOLDERS:
        maildir = box.subfolder(folder)
        if not os.path.isdir(maildir.path):
            continue  # the check of folders reports it
        for path in list_folder(Path(maildir.tmp)):
            if now - path.lstat().st_mtime > _MAX_TMP_AGE_S:
                message = "has been in tmp/ for over 36 hours: an unfinished delivery, which nobody will read"
                yield aside.finding(path, message)
        yield from _misplaced_files(maildir, aside)
        yield from _misnamed_files(maildir)
        if folder != "dead":
            yield from _unreadable_messages(mail, layout, name, maildir, folder, aside)
    count = sum(1 for _ in box.subfolder("dead").mail_files())
    if count:
        message = f"{count} dead letter{'s' if count > 1 else ''}: unreadable, or not answered by its agent"
        remedy = "the .why files next to them say why; a message moved back to new/ is tried again"
        yield DoctorFinding(Path(box.subfolder("dead").path), message, remedy, note=True)


def check_ownerless_mailboxes(layout: Layout, agents: Container[str]) -> Iterator[DoctorFinding]:
    """Report mailboxes without an agent: a renamed or removed agent may have left mail behind."""
    for path in list_folder(layout.mailboxes):
        if (
            path.is_dir()
            and not path.name.startswith(".")
            and path.name not in RESERVED_NAMES
            and path.name not in agents
        ):
            message_count = sum(1 for _ in Maildir(path).mail_files())
            message = f"is a mailbox without an agent: no agent is named {path.name!r} ({message_count} messages in it)"
            remedy = f"hivemind agent add {path.name} restores the agent, or move the folder away"
            yield DoctorFinding(path, message, remedy, note=True)


def _misplaced_files(maildir: Maildir, aside: Aside) -> Iterator[DoctorFinding]:
    """Report files outside new/ and cur/, where no mail program looks, and entries of new/ and cur/ that are not files."""
    for path in list_folder(Path(maildir.path)):
        if _MAIL_PROGRAM_FILES.fullmatch(path.name) is None and path.is_file():
            message = "is outside new/ and cur/, where no mail program looks"
            if is_unique_name(base := split_name(path.name)[0]):
                fix = partial(_move, path, Path(maildir.new, base))
                yield DoctorFinding(path, message, "hivemind doctor --fix moves it to new/", fix)
            else:
                yield DoctorFinding(path, message, f"move it to {maildir.new} if it is a message")
    for folder in (maildir.new, maildir.cur):
        for path in list_folder(Path(folder)):
            if not stat.S_ISREG(path.lstat().st_mode) and not path.name.startswith("."):
                yield aside.finding(path, "is not a regular file and is never read as a message")


def _misnamed_files(maildir: Maildir) -> Iterator[DoctorFinding]:
    """Report names with flags in new/, without flags in cur/, and with flags that are not in ASCII order."""
    for folder in (maildir.new, maildir.cur):
        for path in list_folder(Path(folder)):
            base, flags = split_name(path.name)
            proper_name = base if folder == maildir.new else join_name(base, "".join(filter(str.isalpha, flags)))
            if path.name == proper_name or is_leftover(path.name) or not stat.S_ISREG(path.lstat().st_mode):
                continue
            message = f"has no proper flags in its name (it should be {proper_name!r})"
            if folder == maildir.new:
                message, proper_name = (
                    "has flags in its name but is in new/: mail programs take it for unread",
                    join_name(base, flags),
                )
            yield DoctorFinding(
                path, message, "hivemind doctor --fix renames it", partial(_move, path, Path(maildir.cur, proper_name))
            )


def _move(path: Path, target: Path) -> str:
    fs.move(path, target)
    return f"moved to {target.parent.name}/{target.name}"


def _unreadable_messages(
    mail: Mail, layout: Layout, name: str, maildir: Maildir, folder: str, aside: Aside
) -> Iterator[DoctorFinding]:
    for mail_file in maildir.mail_files():
        try:
            mail.reader.read_head(maildir, mail_file)
        except Unreadable as error:
            path = Path(mail_file.path)
            if folder == "inbox":
                remedy = "hivemind doctor --fix moves it to .Dead and records the reason"
                yield DoctorFinding(
                    path, error.message, remedy, partial(_bury, mail, layout, name, mail_file, error.message)
                )
            else:
                yield aside.finding(path, error.message)


def _bury(mail: Mail, layout: Layout, name: str, mail_file: MailFile, reason: str) -> str:
    dead_letter = mail.bury(name, mail_file, reason)
    return "already gone" if dead_letter is None else f"moved to {layout.relative(dead_letter.path)}"
