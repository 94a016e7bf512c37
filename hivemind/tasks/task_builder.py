"""The second stage of a claim: a task's folder in active/, or in failed/ for a drop that cannot become a task (README.md,
*A claim*).

The folder is made beside the drop, whole, and renamed to `active/ID`, which never appears without its record. What a
crash leaves in between is undone (`unbuild`), and the drop is claimed anew.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.fs import fsync_file, fsync_folder, make_folder, move, reached, write
from hivemind.layout import HUMAN
from hivemind.masking import harmless
from hivemind.tasks.drop import Settings, attachments, dropped_text, id_of, read_regular
from hivemind.tasks.drop_claims import ClaimedDrop, DropClaims
from hivemind.tasks.folder import (
    ATTEMPTS,
    changes,
    ended_place,
    free_name,
    held,
    is_open,
    place_of,
    remove,
    set_aside,
    task_of,
    text_file,
    wake_parent,
)
from hivemind.tasks.form import NoText, ParsedTask
from hivemind.tasks.record import ENDS, RECORD, Claim, TaskRecord, has_ended, load
from hivemind.tasks.task import FILES, Task, TaskProblem, TaskState

BUILD = ".build"
"""The folder in `.claimed/AGENT/` in which a task's folder is made; `.build-2` … beside one that is closed by now."""


class TaskBuilder:
    """Makes tasks of the drops that agents have taken."""

    def __init__(self, settings: Settings, drops: DropClaims) -> None:
        self._settings = settings
        self._layout = settings.layout
        self._drops = drops
        self._records = settings.records
        self._reader = settings.reader
        self._durable = settings.durable

    def settle(self, taken: ClaimedDrop, incarnation: int) -> Task | None:
        """Make the task's folder in active/, or, if the drop cannot become a task, its folder in failed/."""
        try:
            if taken.raw is not None or not taken.is_folder():
                return self._settle_file(taken, incarnation)
            with held(Path(taken.path), wait=False) as mine:
                if mine:
                    return self._settle_folder(taken, incarnation)
            self._drops.put_back(taken.path)  # whoever had it is closing it this very moment
            return None
        finally:
            self._drops.let_go(taken.path)  # the drop has left the agent's folder

    def _settle_file(self, taken: ClaimedDrop, incarnation: int) -> Task | None:
        try:
            found = os.lstat(taken.path)
            raw = taken.raw
            if raw is None:
                raw, found = read_regular(taken.path, taken.name, self._reader.max_bytes)
            written = self._reader.read(raw, taken.name, found)
            _check(taken, written)
            if written.form.every is not None:
                self._put_into_schedule(taken)
                return None
            task_id = self._id(taken.name, False, written)
        except UserError as problem:
            if isinstance(problem, NoText) and self._settings.ask_about_files:
                return self._settle_folder(self._with_a_question(taken), incarnation)
            self._reject(taken, problem)
            return None
        record = self._record(taken, incarnation, TaskRecord(), raw, taken.name)
        build = self._begin(taken, record)
        move(taken.path, build / text_file(record), durable=False)
        reached("tasks.claim.moved")
        return self._open(build, task_id, record, written, taken.name)

    def _put_into_schedule(self, taken: ClaimedDrop) -> None:
        """A file that says `every:` is no task but where tasks come from. Raises TaskProblem if its name is taken there."""
        make_folder(self._layout.schedule, durable=self._durable)
        try:
            move(taken.path, self._layout.schedule / taken.name, durable=self._durable)
        except FileExistsError:
            where = self._layout.relative(self._layout.schedule / taken.name)
            raise TaskProblem(f"{where} is there already", location=taken.name, remedy="give it another name") from None
        reached("tasks.schedule.moved")

    def _with_a_question(self, taken: ClaimedDrop) -> ClaimedDrop:
        """The folder of a drop that is no text, as a person would have dropped it with a question."""
        here = os.path.dirname(taken.path)
        name = free_name(id_of(taken.name, False), lambda one: os.path.lexists(os.path.join(here, one)))
        folder = Path(here, name)
        folder.mkdir()
        self._drops.sync(taken.agent)
        move(taken.path, folder / taken.name, durable=False)
        shown = taken.name.encode(errors="backslashreplace").decode()
        asked = {"wait": {"human": f"What is to be done with the file {shown}?"}}
        then = {"title": f"Do with {FILES}/{shown} what the answer says"}
        head = json.dumps({"title": f"What to do with {shown}", "steps": [asked, then]})  # JSON is YAML
        write(folder / "task.md", f"---\n{head}\n---\n", durable=False)
        return taken._replace(name=name, path=os.fspath(folder), raw=None)

    def _settle_folder(self, taken: ClaimedDrop, incarnation: int) -> Task | None:
        folder = Path(taken.path)
        self._drops.sync(taken.agent)
        try:
            with boundary("task's folder", taken.name):
                task_id, record, written, again = self._read_folder(folder, taken, incarnation)
        except UserError as problem:
            self._reject(taken, problem)
            return None
        if again:
            self._save(folder, record)
            return self._open(folder, task_id, record, written, taken.name)
        build = self._begin(taken, record)
        move(folder, build / FILES, durable=False)
        reached("tasks.claim.moved")
        self._sort(build, record)
        return self._open(build, task_id, record, written, taken.name)

    def _read_folder(
        self, folder: Path, taken: ClaimedDrop, incarnation: int
    ) -> tuple[str, TaskRecord, ParsedTask, bool]:
        """(the id that the task will have, its record, its text, whether it was claimed before).

        Sets aside what an ended attempt left. Raises UserError if the folder cannot become a task.
        """
        known = load(folder)
        again = known is not None and known.text is not None
        if again:
            self._records.check(folder, taken.name)
        raw, text, found = dropped_text(folder, known, self._reader.max_bytes)
        written = self._reader.read(raw, text, found)
        _check(taken, written)
        if written.form.every is not None:
            what = "every: goes with a file, and this is a folder"
            raise TaskProblem(what, location=written.where("every"), remedy="drop its text alone")
        task_id = self._id(taken.name, True, written)
        record = self._record(taken, incarnation, known or TaskRecord(), raw, text)
        apart = record.parent is not None and not is_open(self._layout, record.parent)
        if apart and not has_ended(folder):
            raise TaskProblem(f"the task {record.parent} that it is a part of is over", location=taken.name)
        if known is not None and has_ended(folder):
            record = replace(record, notes=changes(known, raw), said=(), kept={})
            record = replace(record, parent=None) if apart else record  # a person wants it for itself
            set_aside(folder, durable=self._durable, before=partial(self._save, folder, record) if again else None)
        files = folder / FILES if again else folder
        beside, passed_over = attachments(files, text, self._layout.root, self._settings.roots)
        names = tuple(f"{FILES}/{os.path.relpath(path, files)}" for path in beside)
        return task_id, replace(record, attachments=names, notes=(*record.notes, *passed_over)), written, again

    def _sort(self, build: Path, record: TaskRecord) -> None:
        """Take what is not an attachment out of a dropped folder, which is the task's `files/` now."""
        for name, target in ((record.name, text_file(record)), (ATTEMPTS, ATTEMPTS)):
            if os.path.lexists(build / FILES / name) and not os.path.lexists(build / target):
                move(build / FILES / name, build / target, durable=False)
        remove(build / FILES / RECORD)  # what it says stands in the new one
        if self._durable:
            fsync_folder(build / FILES)

    def _record(self, taken: ClaimedDrop, incarnation: int, known: TaskRecord, raw: bytes, name: str) -> TaskRecord:
        claimed = self._settings.clock().isoformat(timespec="milliseconds")
        claim = Claim(os.urandom(8).hex(), taken.agent, incarnation, claimed)
        known = replace(known, source=taken.name, handed=None, parked=None, inode=None)
        return replace(known, name=os.path.basename(name), text=raw.decode(), claim=claim)

    def _begin(self, taken: ClaimedDrop, record: TaskRecord) -> Path:
        """The folder beside the drop in which the task's own is made, with its record. Both are on the disk before anything
        is moved into the folder, and the drop is out of the inbox.

        A rename is atomic and nothing else is: of what was not waited for, any part may be missing after a power cut. Were
        the record among it, the drop would have lost its name, and the folder of an agent's task its maker (`_sort` takes
        the old record away). With the record there, whatever was moved is moved back by it (`unbuild`) and claimed anew.
        So each step rests on what is durable: the record, then the moves (`_open` waits for the folder), then the rename to
        active/ (`_publish` waits for that), then the journal is told.
        """
        here = Path(taken.path).parent
        build = here / free_name(BUILD, lambda one: os.path.lexists(here / one))
        build.mkdir()
        reached("tasks.claim.made")
        self._write(build, record)
        self._drops.sync(taken.agent)
        return build

    def _write(self, folder: Path, record: TaskRecord) -> None:
        self._records.write(folder, record)
        reached("tasks.claim.recorded")

    def _save(self, folder: Path, record: TaskRecord) -> None:
        """Replace the record of a task that had its id before."""
        self._records.save(folder, record)
        reached("tasks.claim.recorded")

    def _open(self, build: Path, task_id: str, record: TaskRecord, written: ParsedTask, name: str) -> Task | None:
        """Rename a finished folder to active/ID and tell the journal. If the id was taken this very moment: to the next
        free one, or, if it was the author's own, to failed/.

        An id can be taken, worked on and done between a look and the rename; so one looks again afterwards, when
        nobody else can get that id any more.
        """
        self._sync(build, text_file(record))
        while True:
            try:
                build = self._publish(build, self._layout.active / task_id)
            except FileExistsError:
                pass
            else:
                if ended_place(self._layout, task_id) is None:
                    self._records.claimed(task_id, record, written.title)
                    return task_of(written, build, TaskState.ACTIVE, record)
            try:
                task_id = self._id(task_id, True, written)
            except TaskProblem as problem:
                write(build / "error.md", explained(name, problem), durable=False)
                assert record.claim is not None
                folder = self._fail(build, task_id)
                self._records.failed(folder.name, record.claim.agent, str(problem), title=name)
                return None

    def _id(self, name: str, folder: bool, written: ParsedTask) -> str:
        """The id that the task will have. Raises TaskProblem if its author gave it one that is taken."""
        given = written.form.id
        if given is None:
            return self._free(id_of(name, folder))
        place = place_of(self._layout, given)
        if place is not None:
            what, mend = (
                f"id: {given!r} is taken by {self._layout.relative(place)}",
                "give this task another id, or none",
            )
            raise TaskProblem(what, location=written.where("id"), remedy=mend)
        return given

    def _free(self, name: str) -> str:
        return free_name(name, lambda one: place_of(self._layout, one) is not None)

    def _sync(self, folder: Path, *names: str) -> None:
        if self._durable:
            for name in names:
                with suppress(FileNotFoundError):  # a copy for people, which they may have taken away
                    fsync_file(folder / name)
            fsync_folder(folder)

    def _publish(self, build: Path, target: Path) -> Path:
        move(build, target, durable=False)
        reached("tasks.claim.published")
        if self._durable:
            fsync_folder(target.parent)
        return target

    # what cannot be a task

    def _reject(self, taken: ClaimedDrop, problem: UserError) -> None:
        folder = self.reject(taken, explained(taken.name, problem))
        self._records.failed(folder.name, taken.agent, str(problem), title=taken.name)

    def reject(self, taken: ClaimedDrop, error: bytes | str, task_id: str | None = None) -> Path:
        """Into failed/, byte for byte under its own name, with error.md beside it; as `task_id` where a person cancels it.
        Returns where it lies now."""
        folder = Path(taken.path)
        is_folder = taken.is_folder()
        if is_folder:
            self._drops.sync(taken.agent)
            self._set_aside_if_it_can_be(folder)
        else:
            folder = self._begin(taken, TaskRecord(source=taken.name))
            kept = f"original-{taken.name}" if taken.name in (RECORD, ATTEMPTS, *ENDS) else taken.name
            move(taken.path, folder / kept, durable=False)
            reached("tasks.claim.moved")
        write(folder / "error.md", error, durable=False)
        reached("tasks.reject.explained")
        return self._fail(folder, task_id or id_of(taken.name, is_folder), told=task_id is None)  # not who cancels it

    def _set_aside_if_it_can_be(self, folder: Path) -> None:
        # Its record or its attempts/ may be the problem, or one more: an old error.md is then written over.
        with suppress(UserError), boundary("task's folder", folder):
            known = load(folder)
            if known is None:
                self._write(folder, TaskRecord(source=folder.name))
            elif has_ended(folder):
                set_aside(folder, durable=False)
        remove(folder / "error.md")

    def _fail(self, folder: Path, task_id: str, *, told: bool = True) -> Path:
        self._sync(folder, "error.md")
        record = None
        with suppress(UserError):  # its record may be the problem
            record = load(folder)
        while True:
            free = self._free(task_id)
            if told:
                self._settings.outbox.put("failed", free, record, None)
            try:
                target = self._publish(folder, self._layout.failed / free)
            except FileExistsError:
                continue  # taken this very moment
            wake_parent(self._layout, target)
            return target

    # what a crash left

    def unbuild(self, build: Path) -> None:
        """Undo a folder that was being made: the drop lies beside it again, under its own name."""
        folder, record = build.parent, None
        with suppress(UserError):  # a power cut without fsync: the drop keeps the name that it was given
            record = load(build)
        source = record.source if record is not None else ""
        # the power may have taken one move of two
        dropped = build / FILES if (build / FILES).is_dir() else folder / source
        if dropped != folder and dropped.is_dir():
            self._unsort(build, dropped, record)
        for name in os.listdir(build):
            if name in (RECORD, "error.md") or name.startswith("."):
                continue
            back = free_name(source or name, lambda one: os.path.lexists(folder / one))
            move(build / name, folder / back, durable=self._durable)
        for name in os.listdir(build):
            os.unlink(build / name)
        os.rmdir(build)

    def _unsort(self, build: Path, dropped: Path, record: TaskRecord | None) -> None:
        """Put back into a dropped folder what `_sort` took out of it, its maker's name first."""
        if record is not None:
            if not os.path.lexists(dropped / RECORD) and record.maker != HUMAN:
                self._records.write(dropped, TaskRecord(maker=record.maker, source=record.source))
            if os.path.lexists(build / text_file(record)):
                move(build / text_file(record), dropped / record.name, durable=self._durable)
        if os.path.lexists(build / ATTEMPTS):
            move(build / ATTEMPTS, dropped / ATTEMPTS, durable=self._durable)


def _check(taken: ClaimedDrop, written: ParsedTask) -> None:
    if taken.doom is not None:
        raise TaskProblem(taken.doom, location=written.where("dependencies"), remedy="change the dependencies")


def explained(name: str, problem: UserError, what: str = "could not become a task") -> bytes:
    """The error.md of a drop that cannot be a task: where, what, how to mend it."""
    lines = [f"# {name} {what}", "", f"* where: `{problem.location or name}`", f"* what: {problem.message}"]
    if problem.remedy:
        lines.append(f"* how to mend it: {problem.remedy}")
    lines += ["", "The file is here as it was. Mend it and move this folder back to tasks/inbox/: that is a retry."]
    return harmless("\n".join(lines) + "\n").encode()  # a name may be any bytes
