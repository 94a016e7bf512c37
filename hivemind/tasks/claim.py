"""Claims: one rename decides who has a task, then its folder is made (spec 1, *Tasks*; README.md, *A claim*).

`inbox/NAME` becomes `active/.claimed/AGENT/NAME`. A name can be renamed away once only, so that exactly one claimant
gets it, whoever else tries and on whatever file system; nothing is locked and nobody waits. The folder is then made
beside the drop, whole, and renamed to `active/ID`, which never appears without its record. What a crash leaves in
between is finished by the same agent, or given up for one that will not come back.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Collection, Container, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hivemind import fs
from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import crash_point, fsync_file, fsync_folder, make_folder, move, write
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN
from hivemind.masking import strip_controls
from hivemind.tasks.folder import (
    ATTEMPTS,
    changes,
    ended_place,
    free_name,
    held,
    is_open,
    leave,
    place_of,
    read_task,
    set_aside,
    task_of,
    text_file,
    wake_parent,
)
from hivemind.tasks.form import NoText, ParsedTask
from hivemind.tasks.inbox import (
    NOT_OURS,
    UNTRUSTED,
    Inbox,
    QueuedDrop,
    Settings,
    attachments,
    dropped_text,
    id_of,
    is_ours,
    read_open,
    read_regular,
)
from hivemind.tasks.queue_cache import QueueCache, lanes_of
from hivemind.tasks.record import ENDS, RECORD, Claim, TaskRecord, has_ended, load
from hivemind.tasks.task import FILES, Task, TaskProblem, TaskState

_log = logging.getLogger(__name__)
_BUILD = ".build"
"""The folder in `.claimed/AGENT/` in which a task's folder is made; `.build-2` … beside one that is closed by now."""


class ClaimedDrop(NamedTuple):
    """A drop that an agent has claimed: stage 1. `raw` are the bytes of a file; None for a folder, and for a drop that
    is no text at all."""

    agent: str
    name: str
    path: str
    raw: bytes | None
    doom: str | None = None

    def is_folder(self) -> bool:
        return os.path.isdir(self.path) and not os.path.islink(self.path)


@frozen
class Orphan:
    """A claim whose agent is not there any more. `id` is the task's, or the drop's name if the claim is half-made."""

    agent: str | None
    id: str
    path: Path


def rename(source: str, target: str) -> None:
    """Rename to a name that nothing has. Raises FileNotFoundError if the source is gone, FileExistsError."""
    move(source, target, durable=False)


class Claims:
    """The claims of one hive."""

    def __init__(self, settings: Settings, inbox: Inbox, queue: QueueCache) -> None:
        self._settings = settings
        self._layout = settings.layout
        self._inbox_path = os.fspath(settings.layout.inbox)
        self._inbox = inbox
        self._queue = queue
        self._records = settings.records
        self._reader = settings.reader
        self._durable = settings.durable
        self._made: dict[str, str] = {}
        self._held: set[str] = set()  # what this process took and has not let go: not to be won twice

    # stage 1: one rename

    def take(self, agent: str, role: str | None, lanes: Container[str] | None = None) -> ClaimedDrop | None:
        """Claim the next drop for an agent (or from certain lanes) and read it: exactly one caller gets it. None if there is
        nothing for it.

        Not durable before stage 2 (or `sync`): a power cut may undo it, and ends whoever made it.
        """
        lanes = lanes_of(agent, role, self._settings.here()) if lanes is None else lanes
        returned: set[str] = set()
        while (entry := self._queue.next(lanes)) is not None:
            taken = self.take_entry(agent, entry, lanes)
            if taken is not None:
                return taken
            if entry.name in returned and os.path.lexists(f"{self._inbox_path}/{entry.name}"):
                return None  # put back twice: it is being changed this very moment
            returned.add(entry.name)
        return None

    def take_entry(self, agent: str, entry: QueuedDrop, lanes: Container[str] | None = None) -> ClaimedDrop | None:
        """Claim one certain drop; None if it is gone, half-written, or changed so that it left `lanes`."""
        target = f"{self.folder(agent)}/{entry.name}"
        if not self._won(f"{self._inbox_path}/{entry.name}", target, entry):
            return None
        crash_point("tasks.claim.taken")
        taken = ClaimedDrop(agent, entry.name, target, None, entry.doom)
        if entry.folder:
            return taken
        if entry.problem:
            again = self._inbox.drop(target)
            now = None if again is None else again.entry
            return self._kept(taken, now is not None and (now.problem is not None or _fits(now, entry, lanes)))
        try:
            file = os.open(target, UNTRUSTED)
        except OSError:
            return taken  # a link by now; stage 2 says what is wrong
        try:
            return self._read(file, taken, entry, lanes)
        except TaskProblem:
            return taken
        finally:
            os.close(file)

    def _read(
        self, file: int, taken: ClaimedDrop, entry: QueuedDrop, lanes: Container[str] | None
    ) -> ClaimedDrop | None:
        """What was taken, with its bytes; put back if someone writes it, or has changed who may have it."""
        found: os.stat_result | None = os.fstat(file)
        same = found is not None and entry.of(found)  # as it was at rest, and any change since would show
        if not same:
            found = self._inbox.at_rest(file)
        if found is None:
            return self._kept(taken, False)
        if not stat.S_ISREG(found.st_mode):
            return taken
        raw = read_open(file, found, entry.name, self._reader.max_bytes)
        read = taken._replace(raw=raw)
        if same:
            return read
        return self._kept(read, _fits(self._inbox.entry(entry.name, found, raw, entry.name), entry, lanes))

    def _kept(self, taken: ClaimedDrop, fits: bool) -> ClaimedDrop | None:
        if not fits:
            self.put_back(taken.path)
        return taken if fits else None

    def _won(self, source: str, target: str, entry: QueuedDrop) -> bool:
        """Rename, and say whether it was this process that did."""
        try:
            self._settings.rename(source, target)
        except PermissionError:
            self._queue.forget(entry.name)  # not this user's to move, which a look at it says
            return False
        except FileNotFoundError:
            # Lost, or withdrawn; or done, and the answer got lost on its way from a file server: look.
            if os.path.lexists(target):
                return target not in self._held and os.lstat(target).st_ino == entry.ino
            if not os.path.lexists(source):
                return False
            make_folder(os.path.dirname(target), durable=self._durable)  # someone tidied away the folder itself
            return self._won(source, target, entry)
        self._held.add(target)
        return True

    def sync(self, agent: str) -> None:
        """Make what the agent took durable, and the folder that is to hold it, before anything is made of it: else the
        power could bring the drop back into the inbox beside its own task, or take it along with that folder."""
        if self._durable:
            fsync_folder(self.folder(agent))
            fsync_folder(self._inbox_path)

    def put_back(self, path: str | Path) -> Path:
        """Return a drop to the inbox, under another name if someone has dropped one of that name meanwhile."""
        inbox, name = self._layout.inbox, os.path.basename(path)
        stem, ending = (name, "") if os.path.isdir(path) else os.path.splitext(name)
        while True:
            target = inbox / (free_name(stem, lambda one: os.path.lexists(inbox / (one + ending))) + ending)
            try:
                move(path, target, durable=self._durable)
            except FileExistsError:
                continue  # dropped under that name this very moment
            self._held.discard(os.fspath(path))
            self._queue.mislead()
            return target

    def folder(self, agent: str) -> str:
        """Where the agent's half-made claims lie."""
        folder = self._made.get(agent)
        if folder is None:
            folder = self._made[agent] = os.path.join(self._layout.claimed, agent)
            make_folder(folder, durable=self._durable)
        return folder

    # stage 2: the task's folder

    def settle(self, taken: ClaimedDrop, incarnation: int) -> Task | None:
        """Make the task's folder in active/, or, if the drop cannot become a task, its folder in failed/."""
        try:
            if taken.raw is not None or not taken.is_folder():
                return self._settle_file(taken, incarnation)
            with held(Path(taken.path), wait=False) as mine:
                if mine:
                    return self._settle_folder(taken, incarnation)
            self.put_back(taken.path)  # whoever had it is closing it this very moment
            return None
        finally:
            self._held.discard(taken.path)  # the drop has left the agent's folder

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
        crash_point("tasks.claim.moved")
        return self._open(build, task_id, record, written, taken.name)

    def _put_into_schedule(self, taken: ClaimedDrop) -> None:
        """A file that says `every:` is no task but where tasks come from. Raises TaskProblem if its name is taken there."""
        make_folder(self._layout.schedule, durable=self._durable)
        try:
            move(taken.path, self._layout.schedule / taken.name, durable=self._durable)
        except FileExistsError:
            where = self._layout.relative(self._layout.schedule / taken.name)
            raise TaskProblem(f"{where} is there already", location=taken.name, remedy="give it another name") from None
        crash_point("tasks.schedule.moved")

    def _with_a_question(self, taken: ClaimedDrop) -> ClaimedDrop:
        """The folder of a drop that is no text, as a person would have dropped it with a question."""
        here = os.path.dirname(taken.path)
        name = free_name(id_of(taken.name, False), lambda one: os.path.lexists(os.path.join(here, one)))
        folder = Path(here, name)
        folder.mkdir()
        self.sync(taken.agent)
        move(taken.path, folder / taken.name, durable=False)
        shown = taken.name.encode(errors="backslashreplace").decode()
        asked = {"wait": {"human": f"What is to be done with the file {shown}?"}}
        then = {"title": f"Do with {FILES}/{shown} what the answer says"}
        head = json.dumps({"title": f"What to do with {shown}", "steps": [asked, then]})  # JSON is YAML
        write(folder / "task.md", f"---\n{head}\n---\n", durable=False)
        return taken._replace(name=name, path=os.fspath(folder), raw=None)

    def _settle_folder(self, taken: ClaimedDrop, incarnation: int) -> Task | None:
        folder = Path(taken.path)
        self.sync(taken.agent)
        try:
            with boundary("task's folder", taken.name):
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
                    set_aside(
                        folder, durable=self._durable, before=partial(self._save, folder, record) if again else None
                    )
                beside, passed_over = attachments(
                    folder / FILES if again else folder, text, self._layout.root, self._settings.roots
                )
        except UserError as problem:
            self._reject(taken, problem)
            return None
        names = tuple(
            os.path.relpath(one, folder) if again else f"{FILES}/{os.path.relpath(one, folder)}" for one in beside
        )
        record = replace(record, attachments=names, notes=(*record.notes, *passed_over))
        if again:
            self._save(folder, record)
            return self._open(folder, task_id, record, written, taken.name)
        build = self._begin(taken, record)
        move(folder, build / FILES, durable=False)
        crash_point("tasks.claim.moved")
        self._sort(build, record)
        return self._open(build, task_id, record, written, taken.name)

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
        return replace(
            known,
            source=taken.name,
            name=os.path.basename(name),
            text=raw.decode(),
            claim=claim,
            handed=None,
            parked=None,
            inode=None,
        )

    def _begin(self, taken: ClaimedDrop, record: TaskRecord) -> Path:
        """The folder beside the drop in which the task's own is made, with its record. Both are on the disk before anything
        is moved into the folder, and the drop is out of the inbox.

        A rename is atomic and nothing else is: of what was not waited for, any part may be missing after a power cut. Were
        the record among it, the drop would have lost its name, and the folder of an agent's task its maker (`_sort` takes
        the old record away). With the record there, whatever was moved is moved back by it (`_unbuild`) and claimed anew.
        So each step rests on what is durable: the record, then the moves (`_open` waits for the folder), then the rename to
        active/ (`_publish` waits for that), then the journal is told.
        """
        here = Path(taken.path).parent
        build = here / free_name(_BUILD, lambda one: os.path.lexists(here / one))
        build.mkdir()
        crash_point("tasks.claim.made")
        self._write(build, record)
        self.sync(taken.agent)
        return build

    def _write(self, folder: Path, record: TaskRecord) -> None:
        self._records.write(folder, record)
        crash_point("tasks.claim.recorded")

    def _save(self, folder: Path, record: TaskRecord) -> None:
        """Replace the record of a task that had its id before."""
        self._records.save(folder, record)
        crash_point("tasks.claim.recorded")

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
            raise TaskProblem(
                f"id: {given!r} is taken by {self._layout.relative(place)}",
                location=written.where("id"),
                remedy="give this task another id, or none",
            )
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
        crash_point("tasks.claim.published")
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
            self.sync(taken.agent)
            self._set_aside_if_it_can_be(folder)
        else:
            folder = self._begin(taken, TaskRecord(source=taken.name))
            kept = f"original-{taken.name}" if taken.name in (RECORD, ATTEMPTS, *ENDS) else taken.name
            move(taken.path, folder / kept, durable=False)
            crash_point("tasks.claim.moved")
        write(folder / "error.md", error, durable=False)
        crash_point("tasks.reject.explained")
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

    # recovery: only the process that holds an agent's name recovers for that agent

    def finish_half_made(self, agent: str, incarnation: int) -> Iterator[Task]:
        """The tasks whose claim a crash interrupted, claimed to the end now."""
        for path in self._half_made(agent):
            task = self._resume(ClaimedDrop(agent, path.name, os.fspath(path), None), incarnation)
            if task is not None:
                yield task

    def _half_made(self, agent: str) -> list[Path]:
        """The drops that an agent took and made no task of, by name; a folder that is closed by now stays there."""
        folder = Path(self.folder(agent))
        for build in sorted(folder.glob(f"{_BUILD}*/")):
            try:
                self._unbuild(build)
            except PermissionError as error:
                _log.warning("%s: %s; it goes on at the agent's next start", error.filename, NOT_OURS)
        found = [folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")]
        closed = [path for path in found if path.is_dir() and not is_ours(path)]
        for path in closed:
            _log.warning("%s: %s; it goes on at the agent's next start", path, NOT_OURS)
        return [path for path in found if path not in closed]

    def _unbuild(self, build: Path) -> None:
        """Undo a folder that was being made: the drop lies beside it again, under its own name."""
        folder, record = build.parent, None
        try:
            record = load(build)
        except UserError:
            pass  # a power cut without fsync: the drop keeps the name that it was given
        source = record.source if record is not None else ""
        dropped = (
            build / FILES if (build / FILES).is_dir() else folder / source
        )  # the power may have taken one move of two
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

    def _resume(self, taken: ClaimedDrop, incarnation: int) -> Task | None:
        """Go on with a drop; one that is half-written or has dependencies is judged again, from the inbox."""
        drop = self._inbox.drop(taken.path, whole=taken.is_folder())  # a folder was whole when it was taken
        if drop is None or drop.entry is None or drop.entry.dependencies:
            self.put_back(taken.path)
            return None
        return self.settle(taken, incarnation)

    def mine(self, agent: str, incarnation: int | None) -> list[Task]:
        """The agent's tasks in active/, oldest claim first; with an incarnation their claims are made anew under it."""
        half_made = {task.id for task in self.finish_half_made(agent, incarnation or 0)}
        found: list[tuple[str, Task]] = []
        for path, record in self._claims():
            claim = record.claim if isinstance(record, TaskRecord) else None
            if claim is None and not self._records.is_told(path.name, agent):
                continue  # nobody's
            if claim is not None and claim.agent != agent:
                continue
            try:
                task = self._mine(path, agent, incarnation if path.name not in half_made else None)
                if task is not None:
                    found.append((claim.claimed if claim is not None else "", task))
            except FileNotFoundError:
                continue  # moved by hand this very moment
            except UserError as problem:
                self.give_up(path, agent, problem)
        return [task for _, task in sorted(found, key=lambda one: (one[0], one[1].id))]

    def _mine(self, path: Path, agent: str, incarnation: int | None) -> Task | None:
        """A task in active/ that an agent goes on with, under a new claim if it has a new incarnation."""
        told = self._records.is_told(path.name, agent)
        record = self._records.load(path, path.name) if told else load(path)
        if record is None or record.claim is None:
            raise TaskProblem(
                f"has no {RECORD} of a claim", location=path, remedy="move it to tasks/inbox/ to have it claimed anew"
            )
        if record.handed is not None and record.handed.ends(record.claim):
            with held(path, wait=True):
                self._records.save(path, replace(record, parked=None), agent_id=agent)
                self.put_back(path)
            return None
        if incarnation is not None:
            with held(path, wait=True):
                claim = replace(record.claim, key=os.urandom(8).hex(), incarnation=incarnation)
                record = replace(record, claim=claim)
                if told:  # what the agent's earlier process still writes under the old key is turned away
                    self._records.save(path, record, agent_id=agent)
                else:
                    self._write(path, record)
        task = read_task(path, TaskState.ACTIVE, self._reader, self._layout.root, self._settings.roots)
        if not told:
            self._records.claimed(path.name, record, task.title)
        return task

    def give_up(self, path: Path, agent: str | None, problem: UserError) -> Path:
        """Fail a task in active/ because of what became of its folder; where it lies now."""
        remove_ends(path)
        self._settings.outbox.put("failed", path.name, None, None)
        write(path / "error.md", explained(path.name, problem, "could not go on"), durable=self._durable)
        where = leave(self._layout, path, self._layout.failed, durable=self._durable)
        self._records.failed(path.name, agent, str(problem))
        return where

    def _claims(self) -> Iterator[tuple[Path, TaskRecord | None]]:
        """Every folder in active/ with its record; None for one that a person put there, or whose record is damaged."""
        for name in sorted(os.listdir(self._layout.active)):
            path = self._layout.active / name
            if name.startswith(".") or not path.is_dir():
                continue
            try:
                yield path, load(path)
            except UserError:
                yield path, None  # `list` says what is wrong with it

    def orphans(self, alive: Collection[str]) -> list[Orphan]:
        """The claims, whole and half-made, of agents that are not among `alive`; agent None for nobody's."""
        found = []
        for path, record in self._claims():
            agent = record.claim.agent if record is not None and record.claim is not None else None
            if agent is None or agent not in alive:
                found.append(Orphan(agent, path.name, path))
        for agent in sorted(names_in(self._layout.claimed)):
            if agent not in alive:
                folder = self._layout.claimed / agent
                found += [Orphan(agent, name, folder / name) for name in sorted(names_in(folder))]
        return found

    def reclaim(self, agent: str) -> list[Path]:
        """Give up every claim of an agent whose process is gone; where its tasks lie now.

        They go back to the inbox with their log, so that whoever claims them goes on; one whose result (or error) was
        written to the end goes on its last way to done/ (failed/).
        """
        back = [self.put_back(path) for path in self._half_made(agent)]
        mine = [path for path, record in self._claims() if record and record.claim and record.claim.agent == agent]
        return back + [self._give_back(path) for path in mine]

    def _give_back(self, path: Path) -> Path:
        with held(path, wait=True):
            for name, place in zip(ENDS, (self._layout.failed, self._layout.done), strict=True):
                end = path / name
                if end.is_file() and not end.is_symlink() and self._records.is_end(path.name, end.read_bytes()):
                    return leave(self._layout, path, place, durable=self._durable)
            remove_ends(path)
            return self.put_back(path)


def _check(taken: ClaimedDrop, written: ParsedTask) -> None:
    if taken.doom is not None:
        raise TaskProblem(taken.doom, location=written.where("dependencies"), remedy="change the dependencies")


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


def explained(name: str, problem: UserError, what: str = "could not become a task") -> bytes:
    """The error.md of a drop that cannot be a task: where, what, how to mend it."""
    lines = [f"# {name} {what}", "", f"* where: `{problem.location or name}`", f"* what: {problem.message}"]
    if problem.remedy:
        lines.append(f"* how to mend it: {problem.remedy}")
    lines += ["", "The file is here as it was. Mend it and move this folder back to tasks/inbox/: that is a retry."]
    return strip_controls("\n".join(lines) + "\n").encode()  # a name may be any bytes


def _fits(now: QueuedDrop, entry: QueuedDrop, lanes: Container[str] | None) -> bool:
    """Whether a drop that may have been changed since the board was made is still for whoever takes it: what was
    judged are its dependencies, and its lane unless it was going to fail."""
    same = now.dependencies == entry.dependencies
    return lanes is None or (same and (entry.doom is not None or now.lane in lanes))
