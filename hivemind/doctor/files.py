"""Checks of the hive's folders (present, usable, not writable by others, not linked to the outside) and of small files
in them: valid records, only regular files where files belong, no leftovers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.config import GROUP_FOLDER_MODE
from hivemind.coordination import CoordinationError, check_workspace
from hivemind.coordination.workspace import WORKSPACE_VERSION
from hivemind.doctor.context import DoctorContext
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import resolve_inside, walk
from hivemind.fs.atomic import TEMPORARY_PREFIX
from hivemind.fs.integrity import DoctorFinding, check_temporary, list_folder
from hivemind.fs.records import load_record
from hivemind.layout import Layout
from hivemind.tasks.record import RECORD, load

_MAILDIR_PARTS = ("tmp", "new", "cur")
_SECRET_NAMES = (".token", TEMPORARY_PREFIX)  # a temporary file may contain a token
_SHARED_FILE_MODE = 0o660
_SUBFOLDERS = ("", ".Sent", ".Archive", ".Dead")
_SUFFIXLESS_FILES = ("heartbeat", "mail-taken")
"""The names of files under .hive that have no suffix."""
_KINDS = {"workspace.json": ("workspace", WORKSPACE_VERSION)}
"""The kinds and versions of records by file name. For any other record, the kind is the file's name and the version is 1."""


def check_folders(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Check every folder of the layout. A hive that was never used yields one note for all missing folders."""
    layout = context.layout
    folders = layout.folders()
    missing_folders = [folder for folder in folders if not os.path.lexists(folder)]
    tasks = (path for parent in (layout.active, layout.done, layout.failed) for path in parent.glob("*/"))
    if layout.state in missing_folders and not any(tasks):
        names = ", ".join(map(layout.relative, missing_folders))
        message = "does not exist yet: this hive was never used here"
        remedy = f"the first command that writes creates the missing folders: {names}"
        yield DoctorFinding(layout.state, message, remedy, lambda: "; ".join(map(_create, missing_folders)), note=True)
        folders = tuple(folder for folder in folders if folder not in missing_folders)
    for folder in folders:
        yield from _check_folder(context, folder, "the next command that writes creates it")


def check_mailbox_folders(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Check each mailbox with its subfolders."""
    parts = [Path(subfolder, part) for subfolder in _SUBFOLDERS for part in _MAILDIR_PARTS]
    for name in context.mailbox_owners:
        mailbox = context.layout.mailbox(name)
        if not os.path.lexists(mailbox):
            yield DoctorFinding(
                mailbox, "does not exist yet", "the first letter or the first start creates it", note=True
            )
            continue
        missing_folders = [str(part) for part in parts if not os.path.lexists(mailbox / part)]
        if missing_folders:
            message = f"lacks {', '.join(missing_folders)}: mail of {name} cannot be delivered, read or filed there"
            yield DoctorFinding(
                mailbox,
                message,
                "hivemind doctor --fix creates the missing folders",
                partial(_ensure_mailbox, context, name),
            )
        for part in parts:
            if os.path.lexists(mailbox / part):
                yield from _check_folder(context, mailbox / part, f"mail of {name} needs it")


def _ensure_mailbox(context: DoctorContext, name: str) -> str:
    return f"made {context.layout.relative(context.mail.ensure(name))} whole"


def check_access(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Find files that the group cannot use despite `access: group`: made while the hive was private, or of another group."""
    if context.config is None or context.config.access != "group":
        return
    group = context.layout.root.stat().st_gid

    def closed_paths() -> list[Path]:
        return [path for path in _group_paths(context.layout) if _is_closed(path.lstat(), group)]

    def fix() -> str:
        for path in (paths := closed_paths()):  # again, since other fixes may have created files
            os.chown(path, -1, group)
            path.chmod(stat.S_IMODE(path.stat().st_mode) | (GROUP_FOLDER_MODE if path.is_dir() else _SHARED_FILE_MODE))
        return f"opened for the group: {len(paths)}"

    if unusable_paths := closed_paths():
        other_note = f", nor can {len(unusable_paths) - 1} more" if unusable_paths[1:] else ""
        message = f"cannot be used by the group of the hive's folder{other_note}, though hive.yaml says access: group"
        yield DoctorFinding(
            unusable_paths[0], message, "hivemind doctor --fix opens them; tokens and logins stay private", fix
        )


def _group_paths(layout: Layout) -> Iterator[Path]:
    """Yield the files and folders that the group shares: all in the hive's own folders except secrets."""
    yield from filter(Path.exists, (layout.root, layout.config, layout.root / ".gitignore"))
    # of coding agents
    logins = {path for homes in ("agents/*/program", "prompt-*") for path in layout.state.glob(homes)}
    tops = (layout.agents, layout.rom, layout.skills, layout.knowledge, layout.mailboxes, layout.tasks, layout.state)
    for top in tops:
        for folder, folders, names in walk(top) if not top.is_symlink() else ():
            folders[:] = [name for name in folders if Path(folder, name) not in logins]
            yield Path(folder)
            yield from (Path(folder, name) for name in names if not any(part in name for part in _SECRET_NAMES))


def _is_closed(file_stat: os.stat_result, group: int) -> bool:
    required_mode = (
        GROUP_FOLDER_MODE
        if stat.S_ISDIR(file_stat.st_mode)
        else _SHARED_FILE_MODE
        if stat.S_ISREG(file_stat.st_mode)
        else 0
    )
    return (
        file_stat.st_uid == os.geteuid()
        and bool(required_mode)
        and (file_stat.st_mode & required_mode, file_stat.st_gid) != (required_mode, group)
    )


def _check_folder(context: DoctorContext, folder: Path, consequence: str) -> Iterator[DoctorFinding]:
    try:
        resolve_inside(folder, context.layout.root, context.roots)
        folder_stat = folder.stat()
    except UserError as error:
        yield DoctorFinding(folder, error.message, error.remedy or "replace it by a folder inside the hive")
        return
    except FileNotFoundError:
        if folder.is_symlink():
            yield DoctorFinding(folder, "is a broken symbolic link", "remove the link, or create its target")
        else:
            yield DoctorFinding(
                folder, f"is missing; {consequence}", "hivemind doctor --fix creates it", partial(_create, folder)
            )
        return
    if stat.S_ISDIR(folder_stat.st_mode):
        yield from _permissions(context, folder, folder_stat, consequence)
        return
    remedy = "hivemind doctor --fix sets the file aside and creates the folder"
    yield DoctorFinding(
        folder,
        f"is not a folder, and {consequence}",
        remedy,
        lambda: f"{context.aside.set_aside(folder)}; {_create(folder)}",
    )


def _create(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return f"made {folder}"


def _permissions(
    context: DoctorContext, folder: Path, folder_stat: os.stat_result, consequence: str
) -> Iterator[DoctorFinding]:
    is_own, mode = folder_stat.st_uid == os.geteuid(), stat.S_IMODE(folder_stat.st_mode)
    required_mode = stat.S_IRWXU if is_own else 0
    # reported once, by check_file_system
    required_access = os.R_OK | os.X_OK | (0 if context.is_read_only else os.W_OK)
    if mode & required_mode != required_mode or not os.access(folder, required_access):
        message = f"cannot be read, written and entered by its owner (mode {mode:o}), and {consequence}"
        chown_remedy = f"give it to the user that runs the hive: chown {os.geteuid()} {folder}"
        fix = partial(_chmod, folder, stat.S_IRWXU, 0) if is_own else None
        yield DoctorFinding(folder, message, f"chmod u+rwx {folder}" if is_own else chown_remedy, fix)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        message = f"is writable by every user (mode {mode:o}): any of them could add tasks or mail"
        fix = partial(_chmod, folder, 0, stat.S_IWOTH) if is_own else None
        yield DoctorFinding(folder, message, f"chmod o-w {folder}", fix)


def _chmod(folder: Path, added_bits: int, removed_bits: int) -> str:
    mode = (stat.S_IMODE(folder.stat().st_mode) | added_bits) & ~removed_bits
    folder.chmod(mode)
    return f"mode {mode:o} now"


# -- the program's own small files ---------------------------------------------------------------------------------


def check_records(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Check the records of agents and tasks. Damaged records can be set aside; records of another version are kept."""
    for path in _record_paths(context):
        try:
            if path.name == RECORD:
                load(path.parent)
            else:
                load_record(path, *_KINDS.get(path.name, (path.stem, 1)))
        except UnknownVersion as error:
            yield DoctorFinding(
                path, error.message, "use the version of hivemind that wrote it; this version refuses it and keeps it"
            )
        except UserError as error:
            if isinstance(error.__cause__, OSError):  # the content is unknown
                yield DoctorFinding(path, error.message, error.remedy or "make it readable")
                continue
            remedy = "restore it from a copy, or hivemind doctor --fix sets it aside"
            yield context.aside.finding(path, f"{error.message}: its content is lost", remedy, quiet=True)


def check_workspace_record(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Check that the hive's state belongs to this project and workspace. If not, as in some copied hives, no agent starts."""
    layout, config = context.layout, context.config
    if config is None or not layout.workspace_record.exists():
        return
    try:
        check_workspace(layout.workspace_record, config.workspace, layout.root, config.guard)
    except CoordinationError as error:
        yield DoctorFinding(layout.workspace_record, f"{error.message}: no agent starts here", error.remedy or "")
    except UserError:
        pass  # reported by check_records


def check_file_types(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Find folders, pipes and the like where the hive needs files under .hive. Most of the files are created again when
    needed."""
    layout = context.layout
    for folder in (layout.state, layout.journal, layout.locks, layout.logs, *list_folder(layout.state / "agents")):
        for path in list_folder(folder):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISSOCK(mode) or _may_be_folder(path, mode):
                continue
            message = "is not a regular file, and the hive needs a file there"
            if (folder == layout.journal and path.suffix == ".jsonl") or path.suffix == ".db":
                yield DoctorFinding(path, message, "restore the file from a copy", quiet=True)
            else:
                yield context.aside.finding(path, message, quiet=True)


def check_leftovers(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Find temporary files of interrupted writes in the hive's own folders."""
    layout = context.layout
    for top in (layout.agents, layout.rom, layout.mailboxes, layout.knowledge, layout.tasks, layout.state):
        for folder, folders, names in walk(top):
            if Path(folder) == layout.state:
                folders[:] = [name for name in folders if name != "aside"]
            for path in (Path(folder, name) for name in names):
                yield from check_temporary(path, context.aside, context.now, on_shared_filesystem=context.is_shared)


def _may_be_folder(path: Path, mode: int) -> bool:
    return (
        stat.S_ISDIR(mode)
        and path.name not in _SUFFIXLESS_FILES
        and path.suffix.partition("-")[0] in ("", ".vectors", ".damaged")
    )


def _record_paths(context: DoctorContext) -> Iterator[Path]:
    layout = context.layout
    for pattern in ("agents/*/*.json", "*.json"):
        yield from sorted(layout.state.glob(pattern))
    for parent in (layout.inbox, layout.active, layout.done, layout.failed):
        yield from sorted(parent.glob(f"*/{RECORD}"))
