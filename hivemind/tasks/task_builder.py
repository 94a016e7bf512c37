"""The second stage of a claim: making the task's folder in active/, or in failed/ for a drop that cannot become a task.

The folder is completed next to the drop and then renamed to `active/ID`; in active/ it always has its record. After a
crash, `unbuild` undoes an unfinished folder, and the drop is claimed again. README.md, *A claim*.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.fs import crash_point, fsync_file, is_durable, make_folder, move, remove_tree, write
from hivemind.fs.atomic import fsync_names
from hivemind.masking import strip_controls
from hivemind.tasks.attempts import ATTEMPTS, next_attempt, set_aside
from hivemind.tasks.drop import attachments, dropped_text, read_regular
from hivemind.tasks.drop_claims import ClaimedDrop, DropClaims
from hivemind.tasks.folder import (
    ended_folder,
    folder_of,
    free_name,
    is_open,
    locked_folder,
    remove,
    task_of,
    text_file,
    wake_parent,
)
from hivemind.tasks.form import NoText, ParsedTask
from hivemind.tasks.ids import id_of
from hivemind.tasks.record import ENDS, RECORD, Claim, TaskRecord, has_ended, load, load_sound
from hivemind.tasks.settings import Settings
from hivemind.tasks.task import FILES, Task, TaskProblem, TaskState
from hivemind.trace_context import TraceContext

BUILD = ".build"
"""The folder in `.claimed/AGENT/` in which a task is built, or `.build-2` … if `.build` cannot be read any more."""


_Reading: TypeAlias = tuple[str, TaskRecord, ParsedTask, bool]
"""A task's id, its record, its text, and whether it was claimed before."""


class TaskBuilder:
    def __init__(self, settings: Settings, drops: DropClaims) -> None:
        self._settings = settings
        self._layout = settings.layout
        self.drops = drops
        self._records = settings.records
        self._reader = settings.reader

    def make_task(self, drop: ClaimedDrop, incarnation: int) -> Task | None:
        """Make the task's folder in active/ and return the task. Return None if the drop went to failed/, to the
        schedule or back to the inbox."""
        try:
            if not drop.is_folder:
                return self._build(drop, incarnation)
            with locked_folder(Path(drop.path), wait=False) as is_held:
                if is_held:
                    return self._build(drop, incarnation)
            self.drops.put_back(drop.path)  # another process is just closing it
            return None
        finally:
            self.drops.let_go(drop.path)  # it is no longer in the agent's folder

    def _build(self, drop: ClaimedDrop, incarnation: int) -> Task | None:
        read = self._read_folder if drop.is_folder else self._read_file
        if drop.is_folder:
            self.drops.sync(drop.agent)
        try:
            with boundary("task's folder" if drop.is_folder else "task", drop.name):
                reading = read(drop, incarnation)
        except UserError as problem:
            if isinstance(problem, NoText) and self._settings.ask_about_files and not drop.is_folder:
                return self._build(self._with_a_question(drop), incarnation)
            folder = self.reject(drop, error_report(drop.name, problem))
            self._records.note_failure(folder.name, drop.agent, str(problem), title=drop.name)
            return None
        if reading is None:
            return None
        task_id, record, parsed_task, was_claimed = reading
        if was_claimed:
            self._save(Path(drop.path), record)
            return self._activate(Path(drop.path), task_id, record, parsed_task, drop.name)
        build = self._start_build(drop, record)
        move(drop.path, build / (FILES if drop.is_folder else text_file(record)), durable=False)
        crash_point("tasks.claim.moved")
        if drop.is_folder:
            self._take_out_text(build, record)
        return self._activate(build, task_id, record, parsed_task, drop.name)

    def _read_file(self, drop: ClaimedDrop, incarnation: int) -> _Reading | None:
        """Read a dropped file as `_read_folder` reads a folder. Return None if it went to the schedule."""
        raw, file_stat = read_regular(drop.path, drop.name, self._reader.max_bytes, drop.file_stat)
        parsed_task = self._parse(drop, raw, drop.name, file_stat)
        if parsed_task.form.every is not None:
            self._put_into_schedule(drop)
            return None
        task_id = self._id(drop.name, False, parsed_task)
        return task_id, self._record(drop, incarnation, TaskRecord(), raw, drop.name, parsed_task), parsed_task, False

    def _parse(self, drop: ClaimedDrop, raw: bytes, name: str, file_stat: os.stat_result) -> ParsedTask:
        parsed_task = self._reader.read(raw, name, file_stat)
        if drop.dependency_problem is not None:
            location = parsed_task.location("dependencies")
            raise TaskProblem(drop.dependency_problem, location=location, remedy="change the dependencies")
        return parsed_task

    def _put_into_schedule(self, drop: ClaimedDrop) -> None:
        """Move a file with `every:` to the schedule. Raises TaskProblem if its name is taken there."""
        make_folder(self._layout.schedule)
        try:
            move(drop.path, self._layout.schedule / drop.name)
        except FileExistsError:
            taken_path = self._layout.relative(self._layout.schedule / drop.name)
            message = f"{taken_path} exists already"
            raise TaskProblem(message, location=drop.name, remedy="give it another name") from None
        crash_point("tasks.schedule.moved")

    def _with_a_question(self, drop: ClaimedDrop) -> ClaimedDrop:
        """Put a file that is not text into a folder with a task.md that asks a person about it. Return the claimed folder."""
        agent_folder = os.path.dirname(drop.path)
        name = free_name(id_of(drop.name, False), set(os.listdir(agent_folder)).__contains__)
        folder = Path(agent_folder, name)
        folder.mkdir()
        self.drops.sync(drop.agent)
        move(drop.path, folder / drop.name, durable=False)
        shown_name = drop.name.encode(errors="backslashreplace").decode()
        question_step = {"wait": {"human": f"What is to be done with the file {shown_name}?"}}
        task_step = {"title": f"Do with {FILES}/{shown_name} what the answer says"}
        fields = {"title": f"What to do with {shown_name}", "steps": [question_step, task_step]}
        head = json.dumps(fields)  # JSON is YAML
        write(folder / "task.md", f"---\n{head}\n---\n", durable=False)
        return drop._replace(name=name, path=os.fspath(folder), file_stat=os.lstat(folder))

    def _read_folder(self, drop: ClaimedDrop, incarnation: int) -> _Reading:
        """Read a dropped folder: the task's id, its record, its text, and whether the task was claimed before.

        The files of an ended attempt are set aside. Raises UserError if the folder cannot become a task.
        """
        folder = Path(drop.path)
        old_record = load(folder)
        was_claimed = old_record is not None and old_record.text is not None
        if was_claimed:
            self._records.check(folder, drop.name)
        raw, text, file_stat = dropped_text(folder, old_record, self._reader.max_bytes)
        parsed_task = self._parse(drop, raw, text, file_stat)
        if parsed_task.form.every is not None:
            message = "every: works only in a file, and this is a folder"
            raise TaskProblem(message, location=parsed_task.location("every"), remedy="drop its text alone")
        task_id = self._id(drop.name, True, parsed_task)
        record = self._record(drop, incarnation, old_record or TaskRecord(), raw, text, parsed_task)
        apart = record.parent is not None and not is_open(self._layout, record.parent)
        if apart and not has_ended(folder):
            raise TaskProblem(f"its parent, the task {record.parent}, is over", location=drop.name)
        if old_record is not None and has_ended(folder):
            record = next_attempt(record, old_record, raw, parsed_task.form.traceparent)
            record = replace(record, parent=None) if apart else record  # a person retries it without its parent
            before = partial(self._save, folder, record) if was_claimed else None
            set_aside(folder, before=before)
        files = folder / FILES if was_claimed else folder
        paths, passed_over = attachments(files, text, self._layout.root, self._settings.roots)
        names = tuple(f"{FILES}/{os.path.relpath(path, files)}" for path in paths)
        record = replace(record, attachments=names, notes=(*record.notes, *passed_over))
        return task_id, record, parsed_task, was_claimed

    def _take_out_text(self, build: Path, record: TaskRecord) -> None:
        """Move the text and the earlier attempts out of a dropped folder, which is now the task's `files/`."""
        for name, target in ((record.name, text_file(record)), (ATTEMPTS, ATTEMPTS)):
            if os.path.lexists(build / FILES / name) and not os.path.lexists(build / target):
                move(build / FILES / name, build / target, durable=False)
        remove(build / FILES / RECORD)  # the new record has its content
        crash_point("tasks.claim.emptied")
        fsync_names(build / FILES)

    def _record(
        self,
        drop: ClaimedDrop,
        incarnation: int,
        old_record: TaskRecord,
        raw: bytes,
        name: str,
        parsed_task: ParsedTask,
    ) -> TaskRecord:
        claimed = self._settings.clock().isoformat(timespec="milliseconds")
        claim = Claim(os.urandom(8).hex(), drop.agent, incarnation, claimed)
        old_record = replace(old_record, source=drop.name, handed=None, parked=None, inode=None)
        is_new = old_record.text is None or old_record.trace is None
        trace = TraceContext.begin(parsed_task.form.traceparent) if is_new else old_record.trace
        return replace(old_record, name=os.path.basename(name), text=raw.decode(), claim=claim, trace=trace)

    def _start_build(self, drop: ClaimedDrop, record: TaskRecord) -> Path:
        """Create the folder in which the task is built, with its record, and make both durable before anything is moved into it.
        Return it.

        Only a rename is atomic. After a power cut, any write that was not synced may be missing. Without its record, the drop
        would lose its name, and an agent's task its maker (`_take_out_text` removes the old record). With the record, `unbuild`
        can move everything back, and the drop is claimed again. So each step begins when the one before is durable: the record,
        the moves (`_activate` syncs the folder), the rename to active/ (`_publish` syncs active/), the event in the journal.
        """
        agent_folder = Path(drop.path).parent
        build = agent_folder / free_name(BUILD, lambda name: not make_folder(agent_folder / name, durable=False))
        crash_point("tasks.claim.made")
        write(build / RECORD, record.encode(), sync_name=False)
        crash_point("tasks.claim.recorded")
        self._sync_files(build)
        self.drops.sync(drop.agent)
        return build

    def _save(self, folder: Path, record: TaskRecord) -> None:
        self._records.save(folder, record)
        crash_point("tasks.claim.recorded")

    def _activate(
        self, build: Path, task_id: str, record: TaskRecord, parsed_task: ParsedTask, name: str
    ) -> Task | None:
        """Rename a finished folder to active/ID, write the event to the journal and return the task.

        If the id has just been taken, the task gets the next free one. But if its author set the id, the folder goes to failed/,
        and None is returned. Between the check and the rename, another task may have had the id and ended. So done/ and failed/
        are checked again after the rename, when no other task can get the id.
        """
        self._sync_files(build, text_file(record))
        self._records.flush_events(task_id)
        while True:
            with suppress(FileExistsError):
                build = self._publish(build, self._layout.active / task_id)
                # gone again: a person has cancelled or moved it, which its agent learns by its next write
                if ended_folder(self._layout, task_id) is None or not os.path.lexists(build):
                    self._records.note_claim(task_id, record, parsed_task.title)
                    return task_of(parsed_task, build, TaskState.ACTIVE, record)
            try:
                task_id = self._id(task_id, True, parsed_task)
            except TaskProblem as problem:
                write(build / "error.md", error_report(name, problem), durable=False)
                assert record.claim is not None
                folder = self._move_to_failed(build, task_id)
                self._records.note_failure(folder.name, record.claim.agent, str(problem), title=name)
                return None

    def _id(self, name: str, folder: bool, parsed_task: ParsedTask) -> str:
        """Return the id for a task made from the drop `name`. Raises TaskProblem if its author set an id that is taken."""
        explicit_id = parsed_task.form.id
        if explicit_id is None:
            return self._free(id_of(name, folder))
        place = folder_of(self._layout, explicit_id)
        if place is not None:
            message = f"id: {explicit_id!r} is taken by {self._layout.relative(place)}"
            mend = "give this task another id, or none"
            raise TaskProblem(message, location=parsed_task.location("id"), remedy=mend)
        return explicit_id

    def _free(self, name: str) -> str:
        return free_name(name, lambda candidate: folder_of(self._layout, candidate) is not None)

    def _sync_files(self, folder: Path, *names: str) -> None:
        if is_durable(folder):
            for name in names:
                with suppress(FileNotFoundError):  # a copy for people, who may remove it
                    fsync_file(folder / name)
            fsync_names(folder)

    def _publish(self, build: Path, target: Path) -> Path:
        move(build, target, durable=False)
        crash_point("tasks.claim.published")
        fsync_names(target.parent)
        return target

    # drops that cannot become tasks

    def reject(self, drop: ClaimedDrop, error: bytes | str, task_id: str | None = None) -> Path:
        """Move a drop to failed/, unchanged and under its own name, and write its error.md. Return its folder.

        `task_id` names the folder if a person cancels the task.
        """
        folder = Path(drop.path)
        if drop.is_folder:
            self.drops.sync(drop.agent)
            self._set_aside_if_it_can_be(folder)
        else:
            folder = self._start_build(drop, TaskRecord(source=drop.name))
            safe_name = f"original-{drop.name}" if drop.name in (RECORD, ATTEMPTS, *ENDS) else drop.name
            move(drop.path, folder / safe_name, durable=False)
            crash_point("tasks.claim.moved")
        write(folder / "error.md", error, durable=False)
        crash_point("tasks.reject.explained")
        folder_name = task_id or id_of(drop.name, drop.is_folder)
        return self._move_to_failed(folder, folder_name, is_reported=task_id is None)  # a person who cancels it knows

    def _set_aside_if_it_can_be(self, folder: Path) -> None:
        # A damaged record or attempts/ cannot be set aside: an old error.md is then overwritten.
        with suppress(UserError), boundary("task's folder", folder):
            record = load(folder)
            if record is None:
                write(folder / RECORD, TaskRecord(source=folder.name).encode())
                crash_point("tasks.claim.recorded")
            elif has_ended(folder):
                set_aside(folder)
        remove(folder / "error.md")

    def _move_to_failed(self, folder: Path, task_id: str, *, is_reported: bool = True) -> Path:
        self._sync_files(folder, "error.md")
        record = load_sound(folder)
        while True:
            free = self._free(task_id)
            if is_reported:
                self._settings.outbox.put("failed", free, record, None)
            try:
                target = self._publish(folder, self._layout.failed / free)
            except FileExistsError:
                continue  # taken meanwhile
            wake_parent(self._layout, record)
            return target

    # after a crash

    def unbuild(self, build: Path) -> None:
        """Undo an unfinished folder: move the drop out of it again, under the drop's own name."""
        folder, record = build.parent, load_sound(build)  # without a sound record, the drop keeps its current name
        source = record.source if record is not None else ""
        # a power cut may have undone one move of two
        dropped_folder = build / FILES if (build / FILES).is_dir() else folder / source
        if dropped_folder != folder and dropped_folder.is_dir():
            self._put_back_text(build, dropped_folder, record)
        for name in os.listdir(build):
            if name in (RECORD, "error.md") or name.startswith("."):
                continue
            back = free_name(source or name, lambda candidate: os.path.lexists(folder / candidate))
            move(build / name, folder / back)
        remove_tree(build)

    def _put_back_text(self, build: Path, dropped_folder: Path, record: TaskRecord | None) -> None:
        """Undo `_take_out_text`: write the maker's record, then move text and attempts back into the dropped folder."""
        if record is not None:
            dropped_record = TaskRecord(maker=record.maker, parent=record.parent, kept=record.kept)
            if not os.path.lexists(dropped_folder / RECORD) and dropped_record != TaskRecord():
                write(dropped_folder / RECORD, replace(dropped_record, source=record.source).encode())
            if os.path.lexists(build / text_file(record)):
                move(build / text_file(record), dropped_folder / record.name)
        if os.path.lexists(build / ATTEMPTS):
            move(build / ATTEMPTS, dropped_folder / ATTEMPTS)


def error_report(name: str, problem: UserError, failure: str = "could not become a task") -> bytes:
    """Return the error.md of a drop that cannot become a task: its path, the problem and the remedy. `failure` is its first
    phrase.
    """
    lines = [f"# {name} {failure}", "", f"* where: `{problem.location or name}`", f"* what: {problem.message}"]
    if problem.remedy:
        lines.append(f"* how to mend it: {problem.remedy}")
    lines += ["", "The file is here unchanged. Mend it and move this folder back to tasks/inbox/ to retry it."]
    return strip_controls("\n".join(lines) + "\n").encode()  # a name may be any bytes
