"""How a task's folder leaves active/: finished, failed, released, parked (spec 1, *Tasks*; README.md, *The end*).

Everything is written while the folder still lies in active/, result.md or error.md last; then one rename moves it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from hivemind.fs import inside, make_folder, move, reached, write
from hivemind.layout import Layout
from hivemind.masking import harmless, mask
from hivemind.tasks import log
from hivemind.tasks.folder import ATTEMPTS, held
from hivemind.tasks.ids import free_name, place_of
from hivemind.tasks.records import CLAIM, HANDED, MAKER, PARKED, Handed, load_claim, save_parked
from hivemind.tasks.taking import Taking
from hivemind.tasks.task import Parked, Task, TaskMoved, TaskProblem

__all__ = ["ERROR", "RESULT", "Closing", "leave"]

RESULT, ERROR = "result.md", "error.md"
_OURS = frozenset({CLAIM, HANDED, MAKER, PARKED, ATTEMPTS, "task.md", "task.yaml"})
Files = Mapping[str, bytes | str]


def leave(layout: Layout, folder: Path, place: Path, *, durable: bool) -> Path:
    """Move a task's folder to `place`, where it never replaces anything: if something has its name, it gets a number,
    and its log says so. Raises FileNotFoundError if the folder is gone."""
    target = place / folder.name
    while True:
        try:
            move(folder, target, durable=durable)
        except FileExistsError:
            taken = layout.relative(target)
            target = place / free_name(folder.name, lambda one: os.path.lexists(place / one))
            why = f"something lies at {taken}: this task goes to {layout.relative(target)}"
            log.append(folder, {"event": "task.renamed", "why": why}, durable=durable)
        else:
            return target


class Closing:
    """Ends claims. Each method takes a Task as `claim` or `mine` gave it; raises TaskMoved if its claim is over."""

    def __init__(self, layout: Layout, taking: Taking, *, durable: bool, clock: Callable[[], datetime]) -> None:
        self._layout = layout
        self._taking = taking
        self._durable = durable
        self._clock = clock

    def finish(self, task: Task, result: str, files: Files) -> Path:
        """The task's folder in done/, with result.md and the files in it."""
        return self._close(task, RESULT, result, files, self._layout.done)

    def fail(self, task: Task, reason: str, files: Files) -> Path:
        """The task's folder in failed/, with error.md (the reason, in words) and the files in it."""
        text = reason if reason.startswith("#") else f"# {task.title}\n\n{reason.rstrip()}\n"
        return self._close(task, ERROR, text, files, self._layout.failed)

    def _close(self, task: Task, name: str, text: str, files: Files, place: Path) -> Path:
        text = harmless(mask(text))
        try:
            with self._own(task):
                for path, content in files.items():
                    self._write(task.path, path, content)
                reached("tasks.close.files")
                write(task.path / name, text, durable=self._durable)
                reached("tasks.close.written")
                _remove(task.path / PARKED)
                target = leave(self._layout, task.path, place, durable=self._durable)
                reached("tasks.close.moved")
                return target
        except TaskMoved as moved:
            kept = self._keep(task, {name: text, **files})
            raise TaskMoved(moved.what, where=task.id, kept=kept) from None

    def release(self, task: Task) -> Path:
        """Back into the inbox, with its log: whoever claims it goes on."""
        with self._own(task):
            _remove(task.path / PARKED)
            reached("tasks.release.ready")
            return self._taking.put_back(task.path)

    def hand_over(self, task: Task, to: str | None, role: str | None, reason: str) -> None:
        """Record that the task goes to another agent or to a role. From then on it is on its way: `release` is what is left."""
        with self._own(task):
            claim = load_claim(task.path)
            assert claim is not None
            handed = Handed(claim.agent, to, role, mask(reason), claim.claimed)
            handed.save(task.path, durable=self._durable)
            reached("tasks.hand_over.written")

    def park(self, task: Task, reason: str, until: datetime | None) -> Parked:
        """Record why the task does not go on by itself."""
        parked = Parked(reason, until, self._clock())
        with self._own(task):
            save_parked(task.path, parked, durable=self._durable)
        return parked

    def unpark(self, task: Task) -> None:
        with self._own(task):
            _remove(task.path / PARKED)

    def log(self, task: Task, record: Mapping[str, object], *, durable: bool) -> None:
        """Append to log.jsonl. Raises OSError if it could not be written whole; the log is then as it was."""
        with self._own(task):
            log.append(task.path, record, durable=durable and self._durable)

    def cancel(self, path: Path, reason: str) -> Path:
        """Move an active task to failed/ under its agent's hands; what the agent still writes is turned away."""
        with held(path, wait=True):
            write(path / ERROR, harmless(mask(reason)), durable=self._durable)
            reached("tasks.cancel.written")
            return leave(self._layout, path, self._layout.failed, durable=self._durable)

    @contextmanager
    def _own(self, task: Task) -> Iterator[None]:
        """Hold the task's folder while it is this claim's. Raises TaskMoved if it is not, or goes away meanwhile."""
        try:
            with held(task.path, wait=True):
                claim = load_claim(task.path)
                if claim is None or claim.key != task.claim:
                    owner = "nobody" if claim is None else claim.agent
                    raise TaskMoved(f"the claim is over, the task belongs to {owner} now", where=task.id)
                yield
        except (FileNotFoundError, NotADirectoryError):
            if task.path.is_dir():
                raise
            raise TaskMoved("the claim is over, the task was moved out of active/", where=task.id) from None

    def _write(self, folder: Path, name: str, content: bytes | str) -> None:
        if name.split("/", 1)[0] in _OURS or os.path.isabs(name):
            raise TaskProblem("is not for an agent to write", where=f"{folder.name}/{name}", mend="use artifacts/")
        path = inside(name, folder)
        make_folder(path.parent, durable=self._durable)
        write(path, content, durable=self._durable)

    def _keep(self, task: Task, files: Files) -> Path | None:
        """Put a late result where the task lies now; None if the task is gone, which withdraws it."""
        layout = self._layout
        for folder in (layout.inbox / task.id, place_of(layout, task.id)):
            if folder is None or not folder.is_dir():
                continue
            attempts = folder / ATTEMPTS
            late = attempts / free_name(f"late-{task.owner}", set(_names(attempts)).__contains__)
            try:
                late.mkdir(parents=True)
                for name, content in files.items():
                    self._write(late, name, content)
            except FileNotFoundError:
                continue  # moved on under our hands
            return late
        return None


def _remove(path: Path) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # not parked


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []
