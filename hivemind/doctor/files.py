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
    missing_folders = [folder for folder in folders if not os.path.lexists(folder)]
    tasks = (path for parent in (layout.active, layout.done, layout.failed) for path in parent.glob("*/"))
    if layout.state in missing_folders and not any(tasks):
        names = ", ".join(map(layout.relative, missing_folders))
        message = "is not there yet: this hive has never been used here"
        remedy = f"the first command that writes makes what is missing: {names}"
        yield CheckFinding(layout.state, message, remedy, lambda: "; ".join(map(_make, missing_folders)), note=True)
        folders = tuple(folder for folder in folders if folder not in missing_folders)
    for folder in folders:
        yield from _look(patient, folder, "the next command that writes makes it anew")


def check_mailbox_folders(patient: CheckContext) -> Iterator[CheckFinding]:
    """Every known mailbox with its sub-folders."""
    parts = [Path(subfolder, part) for subfolder in _SUBFOLDERS for part in _PARTS]
    for name in patient.names:
        mailbox = patient.layout.mailbox(name)
        if not os.path.lexists(mailbox):
            yield CheckFinding(mailbox, "is not there yet", "the first message, or the first start, makes it", note=True)
            continue
        missing_folders = [str(part) for part in parts if not os.path.lexists(mailbox / part)]
        if missing_folders:
            message = f"lacks {', '.join(missing_folders)}: mail of {name} cannot be delivered, read or put away there"
            yield CheckFinding(
                mailbox, message, "hivemind doctor --fix makes what is missing", partial(_ensure, patient, name)
            )
        for part in parts:
            if os.path.lexists(mailbox / part):
                yield from _look(patient, mailbox / part, f"mail of {name} passes through it")


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

    if unusable_paths := closed():
        other_note = f", nor can {len(unusable_paths) - 1} more" if unusable_paths[1:] else ""
        message = f"cannot be used by the group of the hive's folder{other_note}, though hive.yaml says access: group"
        yield CheckFinding(unusable_paths[0], message, "hivemind doctor --fix opens them; tokens and logins stay yours alone", fix)


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
    required_mode = SHARED if stat.S_ISDIR(found.st_mode) else _SHARED_FILE if stat.S_ISREG(found.st_mode) else 0
    return found.st_uid == os.geteuid() and bool(required_mode) and (found.st_mode & required_mode, found.st_gid) != (required_mode, group)


def _look(patient: CheckContext, folder: Path, use: str) -> Iterator[CheckFinding]:
    try:
        inside(folder, patient.layout.root, patient.roots)
        folder_stat = folder.stat()
    except UserError as error:
        yield CheckFinding(folder, error.message, error.remedy or "make it a folder of the hive's own")
        return
    except FileNotFoundError:
        if folder.is_symlink():
            yield CheckFinding(folder, "is a symbolic link that leads nowhere", "remove the link, or make its target")
        else:
            yield CheckFinding(folder, f"is missing; {use}", "hivemind doctor --fix makes it", partial(_make, folder))
        return
    if stat.S_ISDIR(folder_stat.st_mode):
        yield from _permissions(patient, folder, folder_stat, use)
        return
    remedy = "hivemind doctor --fix sets the file aside and makes the folder"
    yield CheckFinding(
        folder, f"is not a folder, and {use}", remedy, lambda: f"{patient.aside.take(folder)}; {_make(folder)}"
    )


def _make(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return f"made {folder}"


def _permissions(patient: CheckContext, folder: Path, found: os.stat_result, use: str) -> Iterator[CheckFinding]:
    is_own, mode = found.st_uid == os.geteuid(), stat.S_IMODE(found.st_mode)
    required_mode = stat.S_IRWXU if is_own else 0
    required_access = os.R_OK | os.X_OK | (0 if patient.read_only else os.W_OK)  # told once, by the check of the file system
    if mode & required_mode != required_mode or not os.access(folder, required_access):
        message = f"cannot be read, written and entered by its owner (mode {mode:o}), and {use}"
        chown_remedy = f"give it to the user that runs the hive: chown {os.geteuid()} {folder}"
        fix = partial(_chmod, folder, stat.S_IRWXU, 0) if is_own else None
        yield CheckFinding(folder, message, f"chmod u+rwx {folder}" if is_own else chown_remedy, fix)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        message = f"can be written by everybody here (mode {mode:o}), who could put tasks or mail there"
        fix = partial(_chmod, folder, 0, stat.S_IWOTH) if is_own else None
        yield CheckFinding(folder, message, f"chmod o-w {folder}", fix)


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
            remedy = "put it back from a copy, or hivemind doctor --fix sets it aside"
            yield patient.aside.finding(path, f"{error.message}: what it said is lost to its owner", remedy, quiet=True)


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
            message = "is not a regular file, and what needs it there stands still"
            if (folder == layout.journal and path.suffix == ".jsonl") or path.suffix == ".db":
                yield CheckFinding(path, message, "put the file back from a copy", quiet=True)
            else:
                yield patient.aside.finding(path, message, quiet=True)


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
    for parent in (layout.inbox, layout.active, layout.done, layout.failed):
        yield from sorted(parent.glob(f"*/{RECORD}"))
