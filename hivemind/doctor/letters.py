"""Mail: every message readable, in a place where it is looked for, under a name that mail programs understand."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind import fs
from hivemind.boundary import Unreadable
from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient
from hivemind.layout import HUMAN
from hivemind.mail.maildir import SUBFOLDERS, Entry, Maildir, is_dropping, is_unique, join, split
from hivemind.mail.seal import Seal

__all__ = ["check_letters", "check_mail_key", "check_strangers"]

_NAME = "mail"
_TMP_S = 36 * 3600  # Maildir's own rule: what lies in tmp/ that long belongs to nobody
_PROGRAMS_OWN = re.compile(
    r"\..*|dovecot.*|subscriptions|maildir.*|courier.*|.*\.why|readme.*|tmp|new|cur", re.IGNORECASE
)


def check_letters(patient: Patient) -> Iterator[Finding]:
    """Every mailbox and sub-folder of the known names."""
    for name in patient.names:
        box = Maildir(patient.layout.mailbox(name))
        for folder in SUBFOLDERS:
            maildir = box.sub(folder)
            if not os.path.isdir(maildir.path):
                continue  # told by the check of folders
            yield from _litter(patient, maildir)
            yield from _astray(patient, maildir)
            yield from _names(patient, maildir)
            if folder != "dead":
                yield from _unreadable(patient, name, maildir, folder)
        yield from _dead(patient, box.sub("dead"))


def check_mail_key(patient: Patient) -> Iterator[Finding]:
    """The key that the runtime seals its messages with."""
    path = patient.layout.mail_key
    if Seal(path, durable=False).is_damaged():
        yield Finding(
            _NAME,
            patient.layout.relative(path),
            "is no mail key: what was sealed counts as unsealed, and the next send makes another",
            "put it back from a copy, or hivemind doctor --fix sets it aside",
            partial(patient.aside.take, path),
        )


def check_strangers(patient: Patient) -> Iterator[Finding]:
    """Mailboxes of nobody: an agent that was renamed or taken away may have left mail behind."""
    if patient.agents is None:
        return
    for path in _listed(patient.layout.mailboxes):
        if path.is_dir() and not path.name.startswith(".") and path.name != HUMAN and path.name not in patient.agents:
            left = sum(1 for _ in Maildir(path).entries())
            yield Finding(
                _NAME,
                patient.layout.relative(path),
                f"is nobody's mailbox: there is no agent {path.name!r} ({left} messages in it)",
                f"hivemind agent add {path.name} brings the agent back, or move the folder away",
                note=True,
            )


def _listed(folder: str | os.PathLike[str]) -> list[Path]:
    try:
        return sorted(Path(folder, name) for name in os.listdir(folder))
    except OSError:  # told by the check of folders
        return []


def _litter(patient: Patient, maildir: Maildir) -> Iterator[Finding]:
    for path in _listed(maildir.tmp):
        if patient.now - path.lstat().st_mtime > _TMP_S:
            yield Finding(
                _NAME,
                patient.layout.relative(path),
                "has been in tmp/ for over 36 hours: a delivery that was never finished, which nobody will read",
                "hivemind doctor --fix sets it aside",
                partial(patient.aside.take, path),
            )


def _astray(patient: Patient, maildir: Maildir) -> Iterator[Finding]:
    """Files beside new/ and cur/, and what is no file in them: no mail program looks there."""
    for path in _listed(maildir.path):
        if _PROGRAMS_OWN.fullmatch(path.name) is None and path.is_file():
            message = is_unique(split(path.name)[0])
            yield Finding(
                _NAME,
                patient.layout.relative(path),
                "lies beside new/ and cur/, where no mail program looks",
                "hivemind doctor --fix moves it to new/" if message else f"move it to {maildir.new} if it is a message",
                partial(_move, path, Path(maildir.new, split(path.name)[0])) if message else None,
            )
    for folder in (maildir.new, maildir.cur):
        for path in _listed(folder):
            if not stat.S_ISREG(path.lstat().st_mode) and not path.name.startswith("."):
                yield Finding(
                    _NAME,
                    patient.layout.relative(path),
                    "is no regular file, and is never read as a message",
                    "hivemind doctor --fix sets it aside",
                    partial(patient.aside.take, path),
                )


def _names(patient: Patient, maildir: Maildir) -> Iterator[Finding]:
    """Flags where Maildir has none, none where it has them, and flags that are not in ASCII order."""
    for folder in (maildir.new, maildir.cur):
        for path in _listed(folder):
            base, flags = split(path.name)
            good = base if folder == maildir.new else join(base, "".join(filter(str.isalpha, flags)))
            if path.name == good or is_dropping(path.name) or not stat.S_ISREG(path.lstat().st_mode):
                continue
            if folder == maildir.new:
                what, target = (
                    "has flags in its name and lies in new/: mail programs take it for unread",
                    join(base, flags),
                )
            else:
                what, target = f"has no proper flags in its name (it should be {good!r})", good
            yield Finding(
                _NAME,
                patient.layout.relative(path),
                what,
                "hivemind doctor --fix renames it",
                partial(_move, path, Path(maildir.cur, target)),
            )


def _move(path: Path, target: Path) -> str:
    fs.move(path, target)
    return f"moved to {target.parent.name}/{target.name}"


def _unreadable(patient: Patient, name: str, maildir: Maildir, folder: str) -> Iterator[Finding]:
    for entry in maildir.entries():
        try:
            patient.mail.reader.read_head(maildir, entry)
        except Unreadable as error:
            inbox = folder == "inbox"
            yield Finding(
                _NAME,
                patient.layout.relative(entry.path),
                error.what,
                f"hivemind doctor --fix {'moves it to .Dead, with the reason beside it' if inbox else 'sets it aside'}",
                partial(_bury, patient, name, entry, error.what)
                if inbox
                else partial(patient.aside.take, Path(entry.path)),
            )


def _bury(patient: Patient, name: str, entry: Entry, reason: str) -> str:
    buried = patient.mail.bury(name, entry, reason)
    return "gone already" if buried is None else f"moved to {patient.layout.relative(buried.path)}"


def _dead(patient: Patient, dead: Maildir) -> Iterator[Finding]:
    count = sum(1 for _ in dead.entries())
    if count:
        yield Finding(
            _NAME,
            patient.layout.relative(dead.path),
            f"{count} dead letter{'s' if count > 1 else ''}: could not be read, or failed three times",
            "the .why files beside say why; a message moved back to new/ is tried again",
            note=True,
        )
