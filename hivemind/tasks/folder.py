"""A task's folder: reading the task in it, setting an earlier attempt aside, holding it while it is closed."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hivemind.fs import fsync_folder, move, reached
from hivemind.layout import HUMAN
from hivemind.tasks.drops import RESERVED, attachments, id_of, read_regular, text_name
from hivemind.tasks.form import Written, read_text
from hivemind.tasks.records import MAKER, Claim, load_claim, load_handed, load_maker, load_parked
from hivemind.tasks.task import Task, TaskProblem, TaskState

__all__ = ["ATTEMPTS", "held", "read_folder", "read_task", "set_aside", "task_of"]

ATTEMPTS = "attempts"
_ENDS = ("error.md", "result.md")
_OF_AN_ATTEMPT = tuple(sorted(RESERVED - {MAKER, ATTEMPTS, *_ENDS}))
_NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)


def read_folder(folder: Path, max_bytes: int) -> tuple[Written, str]:
    """(what the task in a folder says, the name of its text file). Raises TaskProblem, FileNotFoundError."""
    name = text_name(os.fspath(folder), folder.name)
    raw, _ = read_regular(os.path.join(folder, name), name, max_bytes)
    return read_text(raw, name), name


def read_task(folder: Path, state: TaskState, max_bytes: int, root: Path, roots: Collection[Path]) -> Task:
    """The task in a folder of active, done or failed, or a folder in the inbox. Raises UserError, FileNotFoundError."""
    written, text = read_folder(folder, max_bytes)
    claim = load_claim(folder) if state is not TaskState.INBOX else None
    if claim is not None:
        beside, notes = tuple(folder / name for name in claim.attachments), claim.notes
    else:
        beside, notes = attachments(folder, text, root, roots)
    maker = load_maker(folder)
    task_id = folder.name if state is not TaskState.INBOX else written.form.id or id_of(folder.name, True)
    task = task_of(written, task_id, folder, state, maker.by if maker else HUMAN, claim, beside, notes)
    if (handed := load_handed(folder)) is not None:
        task = replace(task, assignee=handed.to, role=handed.role)
    parked = load_parked(folder) if state is TaskState.ACTIVE else None
    return task if parked is None else replace(task, parked=parked)


def task_of(
    written: Written,
    task_id: str,
    path: Path,
    state: TaskState,
    maker: str,
    claim: Claim | None = None,
    beside: tuple[Path, ...] = (),
    notes: tuple[str, ...] = (),
) -> Task:
    """The task that a text, its place and its records make."""
    form = written.form
    return Task(
        id=task_id,
        title=written.title,
        text=written.text,
        path=path,
        state=state,
        maker=maker,
        project=form.project,
        priority=form.priority,
        assignee=form.assignee,
        role=form.role,
        dependencies=form.dependencies,
        deadline=form.deadline,
        steps=tuple(step.step() for step in form.steps),
        proof=form.proof,
        view=form.view,
        max_tokens=form.max_tokens,
        attachments=beside,
        notes=notes,
        owner=claim.agent if claim else None,
        claim=claim.key if claim else None,
    )


def set_aside(folder: Path, *, durable: bool) -> None:
    """Move what an ended attempt left (log, graph, artifacts, claim, error or result) to `attempts/<n>/`.

    An attempt that did not end (released, reclaimed, moved by hand) is left as it is, and whoever claims the task goes
    on with its log. The error or result is moved last, so that a crash is made good by doing it again. Raises
    TaskProblem if `attempts` is no folder of the task's own.
    """
    if not any(os.path.lexists(folder / name) for name in _ENDS):
        return
    attempts = folder / ATTEMPTS
    if attempts.is_symlink() or (attempts.exists() and not attempts.is_dir()):
        raise TaskProblem("is no folder of the task's own", where=attempts, mend="take it away")
    target = attempts / str(_attempt(attempts))
    target.mkdir(parents=True, exist_ok=True)
    for name in (*_OF_AN_ATTEMPT, *_ENDS):
        if os.path.lexists(folder / name):
            move(folder / name, target / name, durable=False)
            reached("tasks.retry.moved")
    if durable:
        fsync_folder(target)
        fsync_folder(attempts)
        fsync_folder(folder)


def _attempt(attempts: Path) -> int:
    """The number of the attempt to set aside: the last one if a crash left it without its end, else the next."""
    numbers = [int(name) for name in os.listdir(attempts) if name.isdecimal()] if attempts.is_dir() else []
    last = max(numbers, default=0)
    open_still = last and not any(os.path.lexists(attempts / str(last) / name) for name in _ENDS)
    return last if open_still else last + 1


@contextmanager
def held(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a task's folder, wherever it is moved meanwhile; yields False if another process has it and `wait` is False.

    Guards the moments in which its claim is read and acted upon: closing a task against claiming it anew. A lock on
    the folder itself, freed when its holder dies; where the file system has none, the claim's key alone decides.
    Raises FileNotFoundError if the folder is gone.
    """
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield _lock(file, wait)
    finally:
        os.close(file)


def _lock(file: int, wait: bool) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True
