"""A task's folder: where it lies and under which id, reading the task in it, its log, how an attempt ended (README.md)."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from hivemind import fs
from hivemind.errors import UserError
from hivemind.fs import Log, fsync_folder, make_folder, move, reached, write
from hivemind.fs.doorbell import ring
from hivemind.fs.locks import lock, try_lock
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN, Layout, archived_places
from hivemind.names import MAX_LENGTH
from hivemind.outcome import OUTCOME_FILES
from hivemind.tasks.drop import attachments, dropped_text, id_of
from hivemind.tasks.form import ParsedTask, TextReader, is_yaml, read_text
from hivemind.tasks.record import ENDS, RECORD, TaskRecord, has_ended, load
from hivemind.tasks.task import Task, TaskProblem, TaskState

ATTEMPTS = "attempts"
LOG = "messages.jsonl"
_OF_AN_ATTEMPT = ("artifacts", "graph.json", "graph.jsonl", "graph.lock", LOG, "account.json")
_MOST_BYTES = 8192
_LAST_S = 2.0**37  # a file system may hold times that no calendar has
_ERROR_PART = re.compile(r"\* (where|what|how to mend it): (.*)")
_NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
_SHOWN_CHANGES = 40
_EDITED = (
    "{name} was changed after the task was claimed, and the change has no effect: hivemind task say {id} TEXT adds to it, "
    "a retry takes the text as it lies then"
)


# ids: no two tasks have the same


def folder_of(layout: Layout, task_id: str) -> Path | None:
    """The folder of the task with that id, looked for in the direction in which tasks move; None if it has none. Costs a look
    for each month of the archive, however many tasks lie there."""
    if os.path.lexists(layout.active / task_id):
        return layout.active / task_id
    return ended_folder(layout, task_id)


def ended_folder(layout: Layout, task_id: str) -> Path | None:
    """The same, of a task that is done or failed."""
    for folder in (layout.done, layout.failed):
        if os.path.lexists(folder / task_id):
            return folder / task_id
    return next((folder / task_id for folder in archived_places(layout) if os.path.lexists(folder / task_id)), None)


def ended_at(folder: str | os.PathLike[str]) -> float:
    """When the task in a folder of done or failed ended, in seconds since 1970: its result says so, wherever it is moved to.
    Raises FileNotFoundError."""
    for name in ENDS:
        with suppress(FileNotFoundError):
            return min(max(0.0, os.lstat(os.path.join(folder, name)).st_mtime), _LAST_S)
    return min(max(0.0, os.lstat(folder).st_mtime), _LAST_S)


def is_open(layout: Layout, task_id: str) -> bool:
    """Whether a task that was claimed once is worked on, or lies in the inbox again, handed over or given back; a task
    that a person has deleted is not. Looks at active/ twice, between which it may have come from the inbox."""
    active = layout.active / task_id
    is_there = os.path.lexists
    return is_there(active) or is_there(layout.inbox / task_id) or is_being_claimed(layout, task_id) or is_there(active)


def is_being_claimed(layout: Layout, task_id: str) -> bool:
    """Whether a claim that is not finished yet may be this task's: it is then neither in the inbox nor in active/."""
    return any(
        task_id in (id_of(drop, True), id_of(drop, False))
        for agent in names_in(layout.claimed)
        for name in names_in(layout.claimed / agent)
        if (drop := _drop_name(layout.claimed / agent / name) if name.startswith(".") else name) is not None
    )


def _drop_name(build: Path) -> str | None:
    """The name of the drop that a folder is being made for; None while that lies beside it still."""
    try:
        record = load(build)
    except UserError:  # cut off by the power: then the drop's name stands on what is in it
        return next((name for name in names_in(build) if name != RECORD), None)
    return None if record is None else record.source or None


def _with_number(name: str, number: int) -> str:
    """`name-2`, shortened so that it stays a name."""
    ending = f"-{number}"
    return name[: MAX_LENGTH - len(ending)] + ending


def free_name(name: str, is_taken: Callable[[str], bool]) -> str:
    """`name` if it is free, else `name-2`, `name-3` …; asks about few names, however many are taken."""
    if not is_taken(name):
        return name
    low, high = 1, 2
    while is_taken(_with_number(name, high)):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if is_taken(_with_number(name, middle)):
            low = middle
        else:
            high = middle
    return _with_number(name, high)


# what is in it


def open_log(folder: Path, *, durable: bool) -> Log:
    """The conversation in a task's folder. A line is on the disk if it was appended `now` to a durable one."""
    return Log(folder / LOG, "messages", 1, durable=durable, lazy=True)


def text_file(record: TaskRecord) -> str:
    """The name under which the text of a claimed task lies in its folder, for people to read."""
    return "task.yaml" if is_yaml(record.name) else "task.md"


def changes(record: TaskRecord, raw: bytes) -> tuple[str, ...]:
    """What a person changed in the text between two attempts, as a note; nothing if it is the same."""
    if record.text is None or record.raw == raw:
        return ()
    now = raw.decode(errors="replace")
    lines = difflib.unified_diff(record.text.splitlines(), now.splitlines(), "before", "now", lineterm="", n=0)
    changed_lines = [line for line in list(lines)[2:] if not line.startswith("@@")]
    more = [f"… and {len(changed_lines) - _SHOWN_CHANGES} lines more"] if len(changed_lines) > _SHOWN_CHANGES else []
    return ("\n".join(["its text was changed for this attempt:", *changed_lines[:_SHOWN_CHANGES], *more]),)


def read_task(folder: Path, state: TaskState, reader: TextReader, root: Path, roots: Collection[Path]) -> Task:
    """The task in a folder of active, done or failed, or a folder in the inbox. Raises UserError, FileNotFoundError."""
    record = load(folder)
    if state is TaskState.INBOX or record is None or record.text is None:
        raw, text, file_stat = dropped_text(folder, record, reader.max_bytes)
        parsed_task = reader.read(raw, text, file_stat)
        if record is None or record.text is None:
            attached_paths, notes = attachments(folder, text, root, roots)
            names = tuple(os.path.relpath(path, folder) for path in attached_paths)
            record = replace(record or TaskRecord(), attachments=names, notes=notes)
    else:
        parsed_task = read_text(record.raw, record.name)
        if _was_edited(folder / text_file(record), record.raw):
            record = replace(record, notes=(*record.notes, _EDITED.format(name=text_file(record), id=folder.name)))
    task = task_of(parsed_task, folder, state, record)
    if state is TaskState.INBOX:
        return replace(task, id=parsed_task.form.id or id_of(folder.name, True), owner=None, claim=None)
    return task if state is TaskState.ACTIVE else replace(task, parked=None)


def _was_edited(path: Path, raw: bytes) -> bool:
    try:
        file_stat = os.lstat(path)
        return file_stat.st_size != len(raw) or path.read_bytes() != raw
    except OSError:
        return False  # moved, or taken away: nobody was told anything by that


def task_of(
    parsed_task: ParsedTask, path: Path, state: TaskState, record: TaskRecord, task_id: str | None = None
) -> Task:
    """The task that a text, its place and its record make."""
    form, claim, handed = parsed_task.form, record.claim, record.handed
    return Task(
        id=task_id or path.name, title=parsed_task.title, text=parsed_task.text, path=path, state=state,
        maker=record.maker or HUMAN, parent=record.parent, project=form.project, priority=form.priority,
        assignee=handed.to if handed else form.assignee, role=handed.role if handed else form.role,
        dependencies=form.dependencies, deadline=form.deadline, steps=tuple(step.step() for step in form.steps),
        proof=form.proof, view=form.view, max_tokens=form.max_tokens, finish=form.finish,
        review=None if form.review is None else form.review.review(), budget=form.budget.budget(), notify=form.notify,
        attachments=tuple(path / name for name in record.attachments), notes=record.notes,
        owner=claim.agent if claim else None, claim=claim.key if claim else None,
        parked=record.parked, said=record.said, kept=record.kept,
    )  # fmt: skip


def move_task(layout: Layout, folder: Path, place: Path, *, durable: bool) -> Path:
    """Move a task's folder to `place`, where it never replaces anything: if something has its name, it gets a number,
    and its log says so. Raises FileNotFoundError if the folder is gone."""
    target = place / folder.name
    while True:
        try:
            move(folder, target, durable=durable)
        except FileExistsError:
            taken_path = layout.relative(target)
            target = place / free_name(folder.name, lambda candidate: os.path.lexists(place / candidate))
            reason = f"something lies at {taken_path}: this task goes to {layout.relative(target)}"
            open_log(folder, durable=durable).append({"event": "task.renamed", "why": reason}, sync_now=True)
        else:
            wake_parent(layout, target)
            return target


def wake_parent(layout: Layout, folder: Path) -> None:
    """Ring for the agent of the task that one which has just ended is a part of: it may wait for that."""
    try:
        record = load(folder)
        parent = None if record is None or record.parent is None else load(layout.active / record.parent)
    except UserError:  # said where that one is opened; who waits looks by itself, later
        return
    if parent is not None and parent.claim is not None:
        ring(layout.doorbells, parent.claim.agent)


def set_aside(folder: Path, *, durable: bool, before: Callable[[], object] | None = None) -> None:
    """Move what an ended attempt left (log, graph, artifacts, error or result) to `attempts/<n>/`, with a copy of its
    record; `before` is called once that is there, to replace the record.

    The error or result is moved last, so that a crash is made good by doing it again. Raises TaskProblem if `attempts`
    is no folder of the task's own.
    """
    attempts = folder / ATTEMPTS
    if attempts.is_symlink() or (attempts.exists() and not attempts.is_dir()):
        raise TaskProblem("is no folder of the task's own", location=attempts, remedy="take it away")
    target = attempts / str(_attempt(attempts))
    make_folder(target, durable=durable)
    if not (target / RECORD).exists():
        write(target / RECORD, (folder / RECORD).read_bytes(), durable=durable)
    if before is not None:
        before()
    for name in (*_OF_AN_ATTEMPT, *ENDS):
        if os.path.lexists(folder / name):
            move(folder / name, target / name, durable=False)
            reached("tasks.retry.moved")
    if durable:
        fsync_folder(target)
        fsync_folder(attempts)
        fsync_folder(folder)


def _attempt(attempts: Path) -> int:
    """The number of the attempt to set aside: the last one if a crash left it without its end, else the next."""
    last = max((int(name) for name in names_in(attempts) if name.isdecimal()), default=0)
    folder = attempts / str(last)
    open_still = folder.is_dir() and not has_ended(folder)
    return last if open_still else last + 1


def remove_ends(path: Path, but: str = "") -> None:
    """Take away a result or an error that the program did not write: it would count as this task's end. The one that is about
    to be written replaces a file, but no folder."""
    for name in ENDS:
        if os.path.isdir(path / name) or (name != but and os.path.lexists(path / name)):
            remove(path / name)


def remove(path: Path) -> None:
    """Take away a file, or give a folder that has a file's name another one."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):  # POSIX says EPERM of a folder, Linux EISDIR
        fs.set_aside(path)


@contextmanager
def hold(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a task's folder, wherever it is moved meanwhile; yields False if another process has it and `wait` is False.

    Guards the moments in which its claim is read and acted upon: closing a task against claiming it anew. A lock on
    the folder itself, freed when its holder dies; where the file system has none, the claim's key alone decides.
    Raises FileNotFoundError if the folder is gone.
    """
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        is_held = True
        try:
            if wait:
                lock(file)
            else:
                is_held = try_lock(file)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield is_held
    finally:
        os.close(file)


def read_outcome(folder: Path) -> str | None:
    """The text of result.md or error.md in the folder of a task that is over; None for any other."""
    name = OUTCOME_FILES.get(folder.parent.name)
    try:
        return None if name is None else (folder / name).read_text("utf-8", "replace")
    except OSError:
        return None


def why_failed(folder: str | os.PathLike[str]) -> str | None:
    """The first paragraph of the error.md in a failed task's folder; None if there is none, or nothing in it.

    Of a drop that could not become a task it is `where: what; how to mend it`, as the refusal itself says it.
    """
    try:
        with open(Path(folder, "error.md"), "rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:  # a folder that a person is moving, a file that nobody may read: a listing goes on without it
        return None
    parts = {match[1]: match[2].strip("`") for line in text.splitlines() if (match := _ERROR_PART.fullmatch(line))}
    if "where" in parts and "what" in parts:
        summary = f"{parts['where']}: {parts['what']}"
        return f"{summary}; {parts['how to mend it']}" if "how to mend it" in parts else summary
    paragraphs = (part.strip() for part in re.split(r"\n\s*\n", text))
    return next((" ".join(part.split()) for part in paragraphs if part and not part.startswith("#")), None)
