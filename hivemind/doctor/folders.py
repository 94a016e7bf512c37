"""The hive's folders: there, ours to use, nobody else's to write, not led out of the hive by a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from hivemind.config import SHARED
from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient
from hivemind.errors import UserError
from hivemind.fs import inside

__all__ = ["check_access", "check_folders", "check_mailbox_folders"]

_NAME = "folders"
_PARTS = ("tmp", "new", "cur")
_SECRETS = (".key", ".token")
_SUBFOLDERS = ("", ".Sent", ".Archive", ".Dead")


def check_folders(patient: Patient) -> Iterator[Finding]:
    """Every folder of the layout; those that a hive lacks which has never been used are told of at once."""
    layout = patient.layout
    folders = layout.folders()
    missing = [folder for folder in folders if not os.path.lexists(folder)]
    if layout.state in missing and not any(map(_has_tasks, (layout.active, layout.done, layout.failed))):
        yield _unused(patient, missing)
        folders = tuple(folder for folder in folders if folder not in missing)
    for folder in folders:
        yield from _look(patient, folder, "the next command that writes makes it anew")


def _has_tasks(place: Path) -> bool:
    return place.is_dir() and any(path.is_dir() for path in place.iterdir())


def _unused(patient: Patient, missing: Sequence[Path]) -> Finding:
    names = ", ".join(map(patient.layout.relative, missing))
    return Finding(
        _NAME,
        patient.layout.relative(patient.layout.state),
        "is not there yet: this hive has never been used here",
        f"the first command that writes makes what is missing: {names}",
        lambda: "; ".join(map(_make, missing)),
        note=True,
    )


def check_mailbox_folders(patient: Patient) -> Iterator[Finding]:
    """Every known mailbox with its sub-folders."""
    for name in patient.names:
        box = patient.layout.mailbox(name)
        if not os.path.lexists(box):
            where = patient.layout.relative(box)
            yield Finding(
                "mailboxes", where, "is not there yet", "the first message, or the first start, makes it", note=True
            )
            continue
        yield from _missing(patient, name, box)
        for sub in _SUBFOLDERS:
            for part in _PARTS:
                if os.path.lexists(box / sub / part):
                    yield from _look(patient, box / sub / part, f"mail of {name} passes through it")


def _missing(patient: Patient, name: str, box: Path) -> Iterator[Finding]:
    parts = [f"{sub}/{part}".lstrip("/") for sub in _SUBFOLDERS for part in _PARTS]
    missing = [part for part in parts if not os.path.lexists(box / part)]
    if missing:
        yield Finding(
            "mailboxes",
            patient.layout.relative(box),
            f"lacks {', '.join(missing)}: mail of {name} cannot be delivered, read or put away there",
            "hivemind doctor --fix makes what is missing",
            partial(_ensure, patient, name),
        )


def _ensure(patient: Patient, name: str) -> str:
    return f"made {patient.layout.relative(patient.mail.ensure(name))} whole"


def check_access(patient: Patient) -> Iterator[Finding]:
    """With `access: group`: what the program made while it was said to be private, which the group cannot use."""
    if patient.config is None or patient.config.access != "group":
        return
    layout = patient.layout
    closed = [path for top in (layout.state, layout.mailboxes, layout.tasks) for path in _closed_to_group(top)]
    if closed:
        yield Finding(
            _NAME,
            layout.relative(closed[0]),
            f"and {len(closed) - 1} more cannot be used by the group, though hive.yaml says access: group",
            "hivemind doctor --fix opens them for the group; keys and tokens stay yours alone",
            lambda: f"{sum(map(_open_to_group, closed))} are the group's to use now",
        )


def _closed_to_group(top: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(top):
        for path in (Path(folder), *(Path(folder, name) for name in names if not name.endswith(_SECRETS))):
            found = path.lstat()
            wanted = SHARED if stat.S_ISDIR(found.st_mode) else 0o660 if stat.S_ISREG(found.st_mode) else 0
            if found.st_uid == os.geteuid() and found.st_mode & wanted != wanted:
                yield path


def _open_to_group(path: Path) -> bool:
    path.chmod(stat.S_IMODE(path.stat().st_mode) | (SHARED if path.is_dir() else 0o660))
    return True


def _look(patient: Patient, folder: Path, use: str) -> Iterator[Finding]:
    where = patient.layout.relative(folder)
    try:
        inside(folder, patient.layout.root, patient.roots)
        mode = folder.stat().st_mode
    except UserError as error:
        yield Finding(_NAME, where, error.what, error.mend or "make it a folder of the hive's own")
        return
    except FileNotFoundError:
        if folder.is_symlink():
            yield Finding(_NAME, where, "is a symbolic link that leads nowhere", "remove the link, or make its target")
        else:
            yield Finding(_NAME, where, f"is missing; {use}", "hivemind doctor --fix makes it", lambda: _make(folder))
        return
    if not stat.S_ISDIR(mode):
        yield Finding(
            _NAME,
            where,
            f"is no folder, and {use}",
            "hivemind doctor --fix sets the file aside and makes the folder",
            lambda: f"{patient.aside.take(folder)}; {_make(folder)}",
        )
        return
    yield from _permissions(patient, folder, where, use)


def _make(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return f"made {folder}"


def _permissions(patient: Patient, folder: Path, where: str, use: str) -> Iterator[Finding]:
    found = folder.stat()
    ours = found.st_uid == os.geteuid()
    wanted = stat.S_IRWXU if ours else 0
    needed = os.R_OK | os.X_OK | (0 if patient.read_only else os.W_OK)  # told once, by the check of the file system
    if (found.st_mode & wanted) != wanted or not os.access(folder, needed):
        yield Finding(
            _NAME,
            where,
            f"cannot be read, written and entered by its owner (mode {stat.S_IMODE(found.st_mode):o}), and {use}",
            f"chmod u+rwx {folder}"
            if ours
            else f"give it to the user that runs the hive: chown {os.geteuid()} {folder}",
            (lambda: _chmod(folder, stat.S_IRWXU, 0)) if ours else None,
        )
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        yield Finding(
            _NAME,
            where,
            f"can be written by everybody here (mode {stat.S_IMODE(found.st_mode):o}), who could put tasks or mail there",
            f"chmod o-w {folder}",
            (lambda: _chmod(folder, 0, stat.S_IWOTH)) if ours else None,
        )


def _chmod(folder: Path, more: int, less: int) -> str:
    mode = stat.S_IMODE(folder.stat().st_mode) | more
    mode &= ~less
    folder.chmod(mode)
    return f"mode {mode:o} now"
