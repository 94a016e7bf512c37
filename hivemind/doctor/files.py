"""The hive's folders: there, ours to use, nobody else's to write, not led out of the hive by a link; and in them the program's
own small files: records of a kind and version that it knows, nothing else in their places, no leftovers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.config import SHARED
from hivemind.coordination import CoordinationError, check_workspace
from hivemind.coordination.workspace import WORKSPACE_VERSION
from hivemind.doctor.patient import CheckContext
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import inside, walk
from hivemind.fs.atomic import TEMPORARY_PREFIX
from hivemind.fs.check import CheckFinding, check_temporary, listed
from hivemind.fs.records import load_record
from hivemind.layout import Layout
from hivemind.tasks.record import RECORD, load

_PARTS = ("tmp", "new", "cur")
_SECRETS = (".token", TEMPORARY_PREFIX)  # a temporary file may be a token's
_SHARED_FILE = 0o660
_SUBFOLDERS = ("", ".Sent", ".Archive", ".Dead")
_FILES = ("heartbeat", "mail-taken")
"""Files under .hive whose names have no ending."""
_KINDS = {"workspace.json": ("workspace", WORKSPACE_VERSION)}
"""The kind and version of a record by its file's name; of any other the name is the kind, and the version is 1."""


def check_folders(patient: CheckContext) -> Iterator[CheckFinding]:
    """Every folder of the layout; those that a hive lacks which has never been used are told of at once."""
    layout = patient.layout
    folders = layout.folders()
    missing = [folder for folder in folders if not os.path.lexists(folder)]
    tasks = (path for place in (layout.active, layout.done, layout.failed) for path in place.glob("*/"))
    if layout.state in missing and not any(tasks):
        names = ", ".join(map(layout.relative, missing))
        what = "is not there yet: this hive has never been used here"
        mend = f"the first command that writes makes what is missing: {names}"
        yield CheckFinding(layout.state, what, mend, lambda: "; ".join(map(_make, missing)), note=True)
        folders = tuple(folder for folder in folders if folder not in missing)
    for folder in folders:
        yield from _look(patient, folder, "the next command that writes makes it anew")


def check_mailbox_folders(patient: CheckContext) -> Iterator[CheckFinding]:
    """Every known mailbox with its sub-folders."""
    parts = [Path(sub, part) for sub in _SUBFOLDERS for part in _PARTS]
    for name in patient.names:
        box = patient.layout.mailbox(name)
        if not os.path.lexists(box):
            yield CheckFinding(box, "is not there yet", "the first message, or the first start, makes it", note=True)
            continue
        missing = [str(part) for part in parts if not os.path.lexists(box / part)]
        if missing:
            what = f"lacks {', '.join(missing)}: mail of {name} cannot be delivered, read or put away there"
            yield CheckFinding(
                box, what, "hivemind doctor --fix makes what is missing", partial(_ensure, patient, name)
            )
        for part in parts:
            if os.path.lexists(box / part):
                yield from _look(patient, box / part, f"mail of {name} passes through it")


def _ensure(patient: CheckContext, name: str) -> str:
    return f"made {patient.layout.relative(patient.mail.ensure(name))} whole"


def check_access(patient: CheckContext) -> Iterator[CheckFinding]:
    """With `access: group`: what its group cannot use, since it was made while the hive was private, or is of another group."""
    if patient.config is None or patient.config.access != "group":
        return
    group = patient.layout.root.stat().st_gid

    def closed() -> list[Path]:
        return [path for path in _shared(patient.layout) if _is_closed(path.lstat(), group)]

    def fix() -> str:
        for path in (paths := closed()):  # those that other checks have made meanwhile, too
            os.chown(path, -1, group)
            path.chmod(stat.S_IMODE(path.stat().st_mode) | (SHARED if path.is_dir() else _SHARED_FILE))
        return f"opened for the group: {len(paths)}"

    if found := closed():
        more = f", nor can {len(found) - 1} more" if found[1:] else ""
        what = f"cannot be used by the group of the hive's folder{more}, though hive.yaml says access: group"
        yield CheckFinding(found[0], what, "hivemind doctor --fix opens them; tokens and logins stay yours alone", fix)


def _shared(layout: Layout) -> Iterator[Path]:
    """What people who work in one hive share: its folder and all in its own folders, but for secrets."""
    yield from (layout.root, layout.config)
    logins = {
        path for homes in ("agents/*/program", "prompt-*") for path in layout.state.glob(homes)
    }  # of coding agents
    for top in (layout.agents, layout.rom, layout.knowledge, layout.mailboxes, layout.tasks, layout.state):
        for folder, folders, names in walk(top) if not top.is_symlink() else ():
            folders[:] = [name for name in folders if Path(folder, name) not in logins]
            yield Path(folder)
            yield from (Path(folder, name) for name in names if not any(part in name for part in _SECRETS))


def _is_closed(found: os.stat_result, group: int) -> bool:
    wanted = SHARED if stat.S_ISDIR(found.st_mode) else _SHARED_FILE if stat.S_ISREG(found.st_mode) else 0
    return found.st_uid == os.geteuid() and bool(wanted) and (found.st_mode & wanted, found.st_gid) != (wanted, group)


def _look(patient: CheckContext, folder: Path, use: str) -> Iterator[CheckFinding]:
    try:
        inside(folder, patient.layout.root, patient.roots)
        found = folder.stat()
    except UserError as error:
        yield CheckFinding(folder, error.message, error.remedy or "make it a folder of the hive's own")
        return
    except FileNotFoundError:
        if folder.is_symlink():
            yield CheckFinding(folder, "is a symbolic link that leads nowhere", "remove the link, or make its target")
        else:
            yield CheckFinding(folder, f"is missing; {use}", "hivemind doctor --fix makes it", partial(_make, folder))
        return
    if stat.S_ISDIR(found.st_mode):
        yield from _permissions(patient, folder, found, use)
        return
    mend = "hivemind doctor --fix sets the file aside and makes the folder"
    yield CheckFinding(
        folder, f"is not a folder, and {use}", mend, lambda: f"{patient.aside.take(folder)}; {_make(folder)}"
    )


def _make(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return f"made {folder}"


def _permissions(patient: CheckContext, folder: Path, found: os.stat_result, use: str) -> Iterator[CheckFinding]:
    ours, mode = found.st_uid == os.geteuid(), stat.S_IMODE(found.st_mode)
    wanted = stat.S_IRWXU if ours else 0
    needed = os.R_OK | os.X_OK | (0 if patient.read_only else os.W_OK)  # told once, by the check of the file system
    if mode & wanted != wanted or not os.access(folder, needed):
        what = f"cannot be read, written and entered by its owner (mode {mode:o}), and {use}"
        theirs = f"give it to the user that runs the hive: chown {os.geteuid()} {folder}"
        fix = partial(_chmod, folder, stat.S_IRWXU, 0) if ours else None
        yield CheckFinding(folder, what, f"chmod u+rwx {folder}" if ours else theirs, fix)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        what = f"can be written by everybody here (mode {mode:o}), who could put tasks or mail there"
        fix = partial(_chmod, folder, 0, stat.S_IWOTH) if ours else None
        yield CheckFinding(folder, what, f"chmod o-w {folder}", fix)


def _chmod(folder: Path, more: int, less: int) -> str:
    mode = (stat.S_IMODE(folder.stat().st_mode) | more) & ~less
    folder.chmod(mode)
    return f"mode {mode:o} now"


# -- the program's own small files ---------------------------------------------------------------------------------


def check_records(patient: CheckContext) -> Iterator[CheckFinding]:
    """Records of agents and tasks. Those that are damaged are set aside; those of another version only told of."""
    for path in _records(patient):
        try:
            if path.name == RECORD:
                load(path.parent)
            else:
                load_record(path, *_KINDS.get(path.name, (path.stem, 1)))
        except UnknownVersion as error:
            yield CheckFinding(path, error.message, "use the hivemind that wrote it; it is refused and kept")
        except UserError as error:
            if isinstance(error.__cause__, OSError):  # nothing is known of what it says
                yield CheckFinding(path, error.message, error.remedy or "make it readable")
                continue
            mend = "put it back from a copy, or hivemind doctor --fix sets it aside"
            yield patient.aside.finding(path, f"{error.message}: what it said is lost to its owner", mend, quiet=True)


def check_workspace_record(patient: CheckContext) -> Iterator[CheckFinding]:
    """State of another project or workspace, as in a copied or cloned hive: all that would change it is refused."""
    layout, config = patient.layout, patient.config
    if config is None or not layout.workspace_record.exists():
        return
    try:
        check_workspace(layout.workspace_record, config.workspace, layout.root, config.guard)
    except CoordinationError as error:
        yield CheckFinding(layout.workspace_record, f"{error.message}: nothing starts here", error.remedy or "")
    except UserError:
        pass  # told by the check of records


def check_places(patient: CheckContext) -> Iterator[CheckFinding]:
    """What lies below .hive in the place of a file and is none: a folder, a pipe. Whoever needs the file makes a new one."""
    layout = patient.layout
    for folder in (layout.state, layout.journal, layout.locks, layout.logs, *listed(layout.state / "agents")):
        for path in listed(folder):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISSOCK(mode) or _may_be_folder(path, mode):
                continue
            what = "is not a regular file, and what needs it there stands still"
            if (folder == layout.journal and path.suffix == ".jsonl") or path.suffix == ".db":
                yield CheckFinding(path, what, "put the file back from a copy", quiet=True)
            else:
                yield patient.aside.finding(path, what, quiet=True)


def check_leftovers(patient: CheckContext) -> Iterator[CheckFinding]:
    """Temporary files of writes that were never finished, below the hive's own folders."""
    layout = patient.layout
    for top in (layout.agents, layout.rom, layout.mailboxes, layout.knowledge, layout.tasks, layout.state):
        for folder, folders, names in walk(top):
            if Path(folder) == layout.state:
                folders[:] = [name for name in folders if name != "aside"]
            for path in (Path(folder, name) for name in names):
                yield from check_temporary(path, patient.aside, patient.now, shared=patient.shared)


def _may_be_folder(path: Path, mode: int) -> bool:
    return (
        stat.S_ISDIR(mode) and path.name not in _FILES and path.suffix.partition("-")[0] in ("", ".vectors", ".damaged")
    )


def _records(patient: CheckContext) -> Iterator[Path]:
    layout = patient.layout
    for pattern in ("agents/*/*.json", "*.json"):
        yield from sorted(layout.state.glob(pattern))
    for place in (layout.inbox, layout.active, layout.done, layout.failed):
        yield from sorted(place.glob(f"*/{RECORD}"))
