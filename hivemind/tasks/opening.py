"""Stage 2 of a claim: a drop becomes `active/ID/`, or, if it cannot be a task, `failed/ID/` (README.md, *A claim*).

The folder is made beside the drop, whole, and then renamed to a name that nothing has: `active/ID` never appears
without its text and the record of who claimed it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hivemind.errors import UserError
from hivemind.fs import fsync_folder, move, reached, write
from hivemind.layout import HUMAN, Layout
from hivemind.masking import harmless
from hivemind.tasks.drops import RESERVED, attachments, id_of, read_regular
from hivemind.tasks.folder import held, read_folder, set_aside, task_of
from hivemind.tasks.form import Written, is_yaml, read_text
from hivemind.tasks.ids import free_name, is_ended, place_of
from hivemind.tasks.records import CLAIM, Claim, load_maker
from hivemind.tasks.taking import Taken, Taking
from hivemind.tasks.task import Task, TaskProblem, TaskState

__all__ = ["BUILD", "Opening", "Rejected", "explained"]

BUILD = ".build"
"""The folder in `.claimed/AGENT/` in which a task's folder is made."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A drop that could not become a task: the id of its folder in failed/, its name in the inbox, why, in one line."""

    id: str
    name: str
    reason: str


class Opening:
    """Makes the folders of claimed tasks. `roots` are the folders outside the hive that links may lead to."""

    def __init__(
        self,
        layout: Layout,
        taking: Taking,
        *,
        max_bytes: int,
        durable: bool,
        clock: Callable[[], datetime],
        roots: Collection[Path],
    ) -> None:
        self._layout = layout
        self._taking = taking
        self._max_bytes = max_bytes
        self._durable = durable
        self._clock = clock
        self._roots = roots
        self.rejected: list[Rejected] = []

    def settle(self, taken: Taken, incarnation: int) -> Task | None:
        """Make the task's folder in active/, or, if the drop cannot become a task, its folder in failed/."""
        task = self._settle(taken, incarnation)
        self._taking.let_go(taken)
        return task

    def _settle(self, taken: Taken, incarnation: int) -> Task | None:
        if taken.raw is not None or not taken.is_folder():
            return self._settle_file(taken, incarnation)
        with held(Path(taken.path), wait=False) as mine:
            if mine:
                return self._settle_folder(taken, incarnation)
        self._taking.put_back(taken.path)  # whoever had it is closing it this very moment
        return None

    def _settle_file(self, taken: Taken, incarnation: int) -> Task | None:
        claim = self._claim(taken, incarnation)
        try:
            raw = taken.raw
            if raw is None:
                raw, _ = read_regular(taken.path, taken.name, self._max_bytes)
            written = read_text(raw, taken.name)
            _check(taken, written)
            task_id = self._id(taken.name, False, written)
        except TaskProblem as problem:
            error = explained(taken.name, problem)
            self._tell(taken.name, self._reject_file(taken, claim, error, id_of(taken.name, False)), problem)
            return None
        build = self._build(taken, claim, "task.yaml" if is_yaml(taken.name) else "task.md")
        path = self._open(build, task_id, taken.name, written)
        return None if path is None else task_of(written, path.name, path, TaskState.ACTIVE, HUMAN, claim)

    def _settle_folder(self, taken: Taken, incarnation: int) -> Task | None:
        folder = Path(taken.path)
        try:
            written, text = read_folder(folder, self._max_bytes)
            maker = load_maker(folder)
            _check(taken, written)
            task_id = self._id(taken.name, True, written)
            set_aside(folder, durable=self._durable)
        except UserError as problem:
            claim, error = self._claim(taken, incarnation), explained(taken.name, problem)
            self._tell(taken.name, self._reject_folder(taken, claim, error, id_of(taken.name, True)), problem)
            return None
        found, notes = attachments(folder, text, self._layout.root, self._roots)
        names = tuple(os.path.relpath(one, folder) for one in found)
        claim = self._claim(taken, incarnation, names, notes)
        claim.save(folder, durable=False)
        reached("tasks.claim.recorded")
        path = self._open(folder, task_id, taken.name, written)
        if path is None:
            return None
        beside = tuple(path / name for name in names)
        by = maker.by if maker else HUMAN
        return task_of(written, path.name, path, TaskState.ACTIVE, by, claim, beside, notes)

    def _open(self, build: Path, task_id: str, name: str, written: Written) -> Path | None:
        """Rename a finished folder to active/ID. If the id was taken this very moment: to the next free one, or, if it
        was the author's own, to failed/.

        An id can be taken, worked on and done between a look and the rename; so one looks again afterwards, when
        nobody else can get that id any more.
        """
        self._sync(build, CLAIM)
        while True:
            try:
                build = self._publish(build, self._layout.active / task_id)
            except FileExistsError:
                pass
            else:
                if not is_ended(self._layout, task_id):
                    return build
            try:
                task_id = self._id(task_id, True, written)
            except TaskProblem as problem:
                self._tell(name, self._reject(build, task_id, explained(name, problem)), problem)
                return None

    def _id(self, name: str, folder: bool, written: Written) -> str:
        """The id that the task will have. Raises TaskProblem if its author gave it one that is taken."""
        given = written.form.id
        if given is None:
            return self._free(id_of(name, folder))
        place = place_of(self._layout, given)
        if place is not None:
            raise TaskProblem(
                f"id: {given!r} is taken by {self._layout.relative(place)}",
                where=written.where("id"),
                mend="give this task another id, or none",
            )
        return given

    def _free(self, name: str) -> str:
        return free_name(name, lambda one: place_of(self._layout, one) is not None)

    def _build(self, taken: Taken, claim: Claim, name: str) -> Path:
        """A folder with the claim and the drop in it, beside the drop."""
        build = Path(os.path.dirname(taken.path), BUILD)
        os.mkdir(build)
        reached("tasks.claim.made")
        claim.save(build, durable=False)
        reached("tasks.claim.recorded")
        move(taken.path, f"{build}/{name}", durable=False)
        reached("tasks.claim.moved")
        return build

    def _sync(self, folder: Path, *names: str) -> None:
        if self._durable:
            for name in names:
                _fsync(folder / name)
            fsync_folder(folder)

    def _publish(self, build: Path, target: Path) -> Path:
        move(build, target, durable=self._durable)
        reached("tasks.claim.published")
        if self._durable:
            fsync_folder(self._layout.inbox)
        return target

    def reject(self, taken: Taken, error: str, task_id: str) -> Path:
        """Give up a drop with this error.md: what `cancel` does with one that nobody has claimed."""
        claim = self._claim(taken, 0)
        if taken.is_folder():
            return self._reject_folder(taken, claim, error, task_id)
        return self._reject_file(taken, claim, error, task_id)

    def _tell(self, name: str, path: Path, problem: UserError) -> None:
        self.rejected.append(Rejected(path.name, name, str(problem)))

    def _reject_file(self, taken: Taken, claim: Claim, error: bytes | str, task_id: str) -> Path:
        """Into failed/, byte for byte under its own name, with error.md beside it."""
        kept = f"original-{taken.name}" if taken.name in RESERVED else taken.name
        return self._reject(self._build(taken, claim, kept), task_id, error)

    def _reject_folder(self, taken: Taken, claim: Claim, error: bytes | str, task_id: str) -> Path:
        folder = Path(taken.path)
        try:
            set_aside(folder, durable=False)
        except TaskProblem:
            pass  # its attempts/ is the problem, or one more: an old error.md is then written over
        claim.save(folder, durable=False)
        return self._reject(folder, task_id, error)

    def _reject(self, folder: Path, task_id: str, error: bytes | str) -> Path:
        write(folder / "error.md", error, durable=False)
        reached("tasks.reject.explained")
        self._sync(folder, CLAIM, "error.md")
        while True:
            try:
                return self._publish(folder, self._layout.failed / self._free(task_id))
            except FileExistsError:
                continue  # taken this very moment

    def _claim(
        self, taken: Taken, incarnation: int, beside: tuple[str, ...] = (), notes: tuple[str, ...] = ()
    ) -> Claim:
        claimed = self._clock().isoformat(timespec="milliseconds")
        return Claim(os.urandom(8).hex(), taken.agent, incarnation, claimed, taken.name, beside, notes)


def _check(taken: Taken, written: Written) -> None:
    if taken.doom is not None:
        raise TaskProblem(taken.doom, where=written.where("dependencies"), mend="change the dependencies")


def explained(name: str, problem: UserError) -> bytes:
    """The error.md of a drop that cannot be a task: where, what, how to mend it."""
    lines = [f"# {name} could not become a task", "", f"* where: `{problem.where or name}`", f"* what: {problem.what}"]
    if problem.mend:
        lines.append(f"* how to mend it: {problem.mend}")
    lines += ["", "The file is here as it was. Mend it and move this folder back to tasks/inbox/: that is a retry."]
    return harmless("\n".join(lines) + "\n").encode()  # a name may be any bytes


def _fsync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
