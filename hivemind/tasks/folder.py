"""A task's folder: its path and id, the task in it, its log, and how an attempt ended (README.md)."""

from __future__ import annotations

import errno
import itertools
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from hivemind import fs
from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.errors import UserError
from hivemind.fs import move
from hivemind.fs.doorbell import ring
from hivemind.fs.locks import lock, try_lock
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN, LANDING, Layout, archived_folders
from hivemind.names import MAX_LENGTH
from hivemind.outcome import OUTCOME_FILES
from hivemind.pattern import pattern
from hivemind.tasks.drop import attachments, dropped_text
from hivemind.tasks.form import ParsedTask, TextReader, is_yaml, read_text
from hivemind.tasks.ids import id_of
from hivemind.tasks.record import ENDS, RECORD, TaskRecord, has_ended, load, load_sound, open_log
from hivemind.tasks.task import Task, TaskState, TaskSummary

_MOST_BYTES = 8192
_LAST_S = 2.0**37  # file systems can store times beyond the calendar
_ERROR_PART = pattern(r"\* (where|what|how to mend it): (.*)")
_NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
_MAX_REVERTED = 52  # characters of a task's id in the id of the task that undoes it
_EDITED = (
    "{name} was changed after the task was claimed, and the change has no effect: hivemind task say {id} TEXT adds to it, "
    "a retry uses the text at that time"
)


# ids: no two tasks have the same id


def folder_of(layout: Layout, task_id: str) -> Path | None:
    """Return the folder of a claimed or ended task, or None if no folder has that id. The archive costs one stat for
    each month and state.

    The folders are checked in the order in which tasks move.
    """
    if os.path.lexists(layout.active / task_id):
        return layout.active / task_id
    return ended_folder(layout, task_id)


def ended_folder(layout: Layout, task_id: str) -> Path | None:
    """Return the folder of a task that is done or failed, also in the archive, or None if the task is not over."""
    for folder in (layout.done, layout.failed):
        if os.path.lexists(folder / task_id):
            return folder / task_id
    return next((folder / task_id for folder in archived_folders(layout) if os.path.lexists(folder / task_id)), None)


def ended_at(folder: str | os.PathLike[str]) -> float:
    """Return the time at which a task in done/ or failed/ ended, in seconds since 1970: the time of its result.

    Raises FileNotFoundError if the folder is gone.
    """
    for name in ENDS:
        with suppress(FileNotFoundError):
            return min(max(0.0, os.lstat(os.path.join(folder, name)).st_mtime), _LAST_S)
    return min(max(0.0, os.lstat(folder).st_mtime), _LAST_S)


def is_open(layout: Layout, task_id: str) -> bool:
    """Check that a task which was claimed before is unfinished: in active/, being claimed, or back in the inbox.

    active/ is checked twice, because the task may move there from the inbox between the checks.
    """
    active = layout.active / task_id
    is_there = os.path.lexists
    return is_there(active) or is_there(layout.inbox / task_id) or is_being_claimed(layout, task_id) or is_there(active)


def is_being_claimed(layout: Layout, task_id: str) -> bool:
    """Check whether an unfinished claim may be about the task. If so, it is neither in the inbox nor in active/."""
    return any(task_id in (id_of(drop, True), id_of(drop, False)) for _, drop in unfinished_claims(layout))


def unfinished_claims(layout: Layout) -> Iterator[tuple[Path, str]]:
    """Yield the drops that are being made into tasks, as (path, name in the inbox)."""
    for agent in names_in(layout.claimed):
        for name in names_in(layout.claimed / agent):
            path = layout.claimed / agent / name
            if (drop := _drop_name(path) if name.startswith(".") else name) is not None:
                yield path, drop


def _drop_name(build: Path) -> str | None:
    """Return the name of the drop from which the folder `build` is being made, or None if it is not recorded yet."""
    try:
        record = load(build)
    except UserError:  # torn by a power cut: the moved drop has the name
        return next((name for name in names_in(build) if name != RECORD), None)
    return None if record is None else record.source or None


def _with_number(name: str, number: int) -> str:
    """Return `name-2` for `name` and 2, shortened to the maximum length of a name."""
    ending = f"-{number}"
    return name[: MAX_LENGTH - len(ending)] + ending


def free_name(name: str, is_taken: Callable[[str], bool]) -> str:
    """Return `name` if it is free, else `name-2`, `name-3` …. A binary search keeps the number of checks small."""
    if not is_taken(name):
        return name
    high = 2
    while is_taken(_with_number(name, high)):
        high *= 2
    numbers = range(high // 2 + 1, high)
    return _with_number(
        name, numbers.start + bisect_left(numbers, True, key=lambda number: not is_taken(_with_number(name, number)))
    )


# its contents


def text_file(record: TaskRecord) -> str:
    """Return the name of the file that shows a claimed task's text to people."""
    return "task.yaml" if is_yaml(record.name) else "task.md"


def read_task(folder: Path, state: TaskState, reader: TextReader, root: Path, roots: Collection[Path]) -> Task:
    """Read the task in a folder. Raises UserError if it is damaged, FileNotFoundError if the folder is gone.

    Links among the attachments may lead to files in `root` or `roots`.
    """
    record = load(folder)
    if state is TaskState.INBOX or record is None or record.text is None:
        raw, text, file_stat = dropped_text(folder, record, reader.max_bytes)
        parsed_task = reader.read(raw, text, file_stat)
        if record is not None and has_ended(folder):
            record = replace(record, handed=None)
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
        return read_input(path, len(raw)) != raw
    except Unreadable:  # longer, or not a file
        return True
    except OSError:
        return False  # moved or removed, which is not an edit


def task_of(
    parsed_task: ParsedTask, path: Path, state: TaskState, record: TaskRecord, task_id: str | None = None
) -> Task:
    form, claim, handed = parsed_task.form, record.claim, record.handed
    owner = None if claim is None else claim.agent
    if owner == LANDING and state is not TaskState.ACTIVE and LANDING in record.kept:  # it belongs to who did the work
        owner = str(record.kept[LANDING]["agent"])
    return Task(
        id=task_id or path.name, title=parsed_task.title, text=parsed_task.text, path=path, state=state,
        maker=record.maker or HUMAN, parent=record.parent, project=form.project, priority=form.priority,
        assignee=handed.to if handed else form.assignee, role=handed.role if handed else form.role,
        candidates=form.candidates, dependencies=form.dependencies, deadline=form.deadline,
        steps=tuple(step.step() for step in form.steps),
        proof=form.proof, view=form.view, max_tokens=form.max_tokens, fresh=form.fresh, finish=form.finish,
        review=form.review, budget=form.budget, notify=form.notify,
        attachments=tuple(path / name for name in record.attachments), notes=record.notes,
        owner=owner, claim=claim.key if claim else None,
        claimed=claim.claimed if claim else None, parked=record.parked, said=record.said, kept=record.kept,
        traceparent=None if record.trace is None else record.trace.traceparent,
    )  # fmt: skip


def landing_state(task: Task | TaskSummary) -> str | None:
    """Return the state of a finished task's landing (the merge of its branches): `lands`, the reason why it waits, or `undone by
    TASK`.

    Return None for a task without a landing.
    """
    if task.state is TaskState.DONE:
        revert_id = task.undone_by if isinstance(task, TaskSummary) else revert_of(task.path)
        return None if revert_id is None else f"undone by {revert_id}"
    if task.owner != LANDING or task.state is not TaskState.ACTIVE:
        return None
    return "lands" if task.parked is None or task.parked.until is not None else task.parked.reason


def revert_ids(task_id: str) -> Iterator[str]:
    """Yield the ids for tasks that undo the landing (the merge) of a task's work: `ID.revert`, `ID.revert.2` …"""
    start = f"{task_id[:_MAX_REVERTED].rstrip('.-_')}.revert"
    return (start if number == 1 else f"{start}.{number}" for number in itertools.count(1))


def revert_of(folder: Path) -> str | None:
    """Return the id of the task that has undone the landing (the merge) of a task in done/, or None if none has."""
    for revert_id in revert_ids(folder.name):
        places = [folder.parents[1] / state / revert_id for state in (TaskState.DONE, TaskState.FAILED)]
        if not any(map(os.path.lexists, places)):
            return None
        record, revert = load_sound(folder), load_sound(places[0])
        with suppress(Unreadable), boundary("task's landing entry"):
            commits = [branch["commit"] for branch in record.kept[LANDING]["branches"]] if record else []
            if revert and revert.kept[LANDING]["reverts"] in filter(None, commits):
                return revert_id
    raise AssertionError


def move_task(layout: Layout, folder: Path, place: Path, record: TaskRecord | None = None) -> Path:
    """Move a task's folder to the folder `place` and return its new path. If the name is taken there, the folder gets a number,
    and the task's log says so.

    The agent of the parent is woken. `record` is the task's, by default read after the move. Raises FileNotFoundError if the
    folder is gone.
    """
    target = place / folder.name
    while True:
        try:
            move(folder, target)
        except FileExistsError:
            taken_path = layout.relative(target)
            target = place / free_name(folder.name, lambda candidate: os.path.lexists(place / candidate))
            reason = f"{taken_path} exists already: this task goes to {layout.relative(target)}"
            open_log(folder).append({"event": "task.renamed", "why": reason}, sync_now=True)
        else:
            wake_parent(layout, record or load_sound(target))
            return target


def wake_parent(layout: Layout, record: TaskRecord | None) -> None:
    """After a task's end, wake the agent that works on the task's parent, because that agent may be waiting.

    If `record` is None because it is unreadable, the parent's agent notices the end at its next regular look.
    """
    parent = None if record is None or record.parent is None else load_sound(layout.active / record.parent)
    if parent is not None and parent.claim is not None:
        ring(layout.doorbells, parent.claim.agent)


def remove_ends(path: Path, but: str = "") -> None:
    """Remove each result.md and error.md that the program did not write, since their presence would count as the task's end.

    `but` names the file that the caller is about to replace. It stays, unless it is a folder.
    """
    for name in ENDS:
        if name != but or os.path.isdir(path / name):
            remove(path / name)


def remove(path: Path) -> None:
    """Remove a file. If the path is a folder, set it aside under another name."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):  # POSIX says EPERM of a folder, Linux EISDIR
        fs.set_aside(path)


@contextmanager
def locked_folder(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a task's folder, even if it is moved meanwhile. Yield True, or False if another process has the lock and `wait` is
    False.

    A process holds this lock while it reads a claim and acts on it. The lock is on the folder itself and ends with the process.
    On file systems without locks, only the claim's key decides who may write. Raises FileNotFoundError if the folder is gone.
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
    """Return the text of result.md or error.md in a task's folder, or None if the task is not over."""
    name = OUTCOME_FILES.get(folder.parent.name)
    try:
        return None if name is None else (folder / name).read_text("utf-8", "replace")
    except OSError:
        return None


def why_failed(folder: str | os.PathLike[str]) -> str | None:
    """Return the first paragraph of a failed task's error.md, or None if the file cannot be read.

    If a drop could not become a task, that paragraph is `path: problem; remedy`, as in the error message.
    """
    try:
        with open(Path(folder, "error.md"), "rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:  # it is being moved or cannot be read: listed without a reason
        return None
    parts = {match[1]: match[2].strip("`") for line in text.splitlines() if (match := _ERROR_PART.fullmatch(line))}
    if "where" in parts and "what" in parts:
        summary = f"{parts['where']}: {parts['what']}"
        return f"{summary}; {parts['how to mend it']}" if "how to mend it" in parts else summary
    paragraphs = (part.strip() for part in re.split(r"\n\s*\n", text))
    return next((" ".join(part.split()) for part in paragraphs if part and not part.startswith("#")), None)
