"""How a task's folder leaves active/: finished, failed, released, handed over; and what changes in its record meanwhile
(spec 1, *Tasks*; README.md, *The end*).

Everything is written while the folder still lies in active/, result.md or error.md last; then one rename moves it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.fs import Log, make_folder, open_own, reached, write
from hivemind.masking import harmless, mask
from hivemind.tasks.claim import Claims, remove_ends
from hivemind.tasks.folder import ATTEMPTS, LOG, free_name, held, leave, names_in, open_log, place_of
from hivemind.tasks.inbox import Settings
from hivemind.tasks.record import Handed, Tampered, TaskRecord
from hivemind.tasks.task import Parked, Said, Task, TaskMoved

__all__ = ["Closing"]

_RESULT, _ERROR, _GRAPH = "result.md", "error.md", "graph.json"


class Closing:
    """Ends claims. Each method takes a Task as `claim` or `mine` gave it; raises TaskMoved if its claim is over."""

    def __init__(self, settings: Settings, claims: Claims) -> None:
        self._layout = settings.layout
        self._claims = claims
        self._records = settings.records
        self._durable = settings.durable
        self._clock = settings.clock
        self._logs: dict[str, Log] = {}  # of tasks in hand, as this process knows them

    def follow(self, task: Task) -> Task:
        """Note what the log is of a task that was just claimed, so that a change of it by anything else is found out."""
        log = self._logs[task.id] = open_log(task.path, durable=self._durable)
        log.note_state()
        return task

    def finish(self, task: Task, result: str) -> Path:
        """The task's folder in done/, with result.md in it."""
        return self._close(task, _RESULT, result, self._layout.done)

    def fail(self, task: Task, reason: str) -> Path:
        """The task's folder in failed/, with error.md: the reason, in words."""
        text = reason if reason.startswith("#") else f"# {task.title}\n\n{reason.rstrip()}\n"
        return self._close(task, _ERROR, text, self._layout.failed)

    def _close(self, task: Task, name: str, text: str, place: Path) -> Path:
        end = harmless(mask(text)).encode()
        try:
            with self._own(task) as record:
                if record.parked is not None:
                    self._records.save(task.path, replace(record, parked=None), agent_id=task.owner)
                self._seal(task)
                self._records.ending(task.id, end)
                remove_ends(task.path, but=name)
                write(task.path / name, end, durable=self._durable)
                reached("tasks.close.written")
                target = leave(self._layout, task.path, place, durable=self._durable)
                reached("tasks.close.moved")
                self._forget(task.id)
                return target
        except TaskMoved as moved:
            raise TaskMoved(moved.what, where=task.id, kept=self._keep(task, name, end)) from None

    def _seal(self, task: Task) -> None:
        """Have the conversation and the graph whole and on the disk before the task's end is: nobody writes to them any more.
        What a power cut has left of lines is set aside. Their names become durable with the end's."""
        log = self._logs.get(task.id) or open_log(task.path, durable=self._durable)
        with suppress(OSError, UserError):  # what lies there is no log: the end says enough
            if log.torn():
                with log.locked():
                    pass
            log.sync(named=False)
        if self._durable and (task.path / _GRAPH).is_file():
            graph = open_own(task.path / _GRAPH, os.O_RDONLY)
            try:
                os.fdatasync(graph)
            finally:
                os.close(graph)

    def release(self, task: Task) -> Path:
        """Back into the inbox, with its log: whoever claims it goes on."""
        with self._own(task) as record:
            remove_ends(task.path)
            self._records.save(task.path, replace(record, parked=None), agent_id=task.owner)
            reached("tasks.release.ready")
            self._forget(task.id)
            return self._claims.put_back(task.path)

    def hand_over(self, task: Task, to: str | None, role: str | None, reason: str) -> None:
        """Record to whom the task goes: it is on its way from now on, and `release` (or `mine`, after a crash) ends that."""
        with self._own(task) as record:
            assert record.claim is not None
            handed = Handed(record.claim.agent, to, role, mask(reason), record.claim.claimed)
            self._records.save(task.path, replace(record, handed=handed), agent_id=task.owner)
            reached("tasks.hand_over.written")

    def park(self, task: Task, reason: str, until: datetime | None) -> Parked:
        """Record why the task does not go on by itself."""
        parked = Parked(reason, until, self._clock())
        with self._own(task) as record:
            if record.parked is None or (record.parked.reason, record.parked.until) != (reason, until):
                self._records.save(task.path, replace(record, parked=parked), agent_id=task.owner)
        return parked

    def unpark(self, task: Task) -> None:
        with self._own(task) as record:
            if record.parked is not None:
                self._records.save(task.path, replace(record, parked=None), agent_id=task.owner)

    def keep(self, task: Task, name: str, value: Any) -> None:
        """Keep something of the runtime's with the task; None takes it away."""
        with self._own(task) as record:
            kept = {key: known for key, known in record.kept.items() if key != name}
            if value is not None:
                kept[name] = value
            self._records.save(task.path, replace(record, kept=kept), agent_id=task.owner)

    def said(self, task: Task) -> tuple[Said, ...]:
        """All that people have added to the task so far."""
        with self._own(task) as record:
            return record.said

    def say(self, folder: Path, text: str, by: str, key: str | None) -> None:
        """Add to the text of a task that has a record: it was claimed, or a program made it. Said again under the same
        `key` it is there once."""
        with held(folder, wait=True):
            record = self._records.load(folder, folder.name)
            if key is not None and any(one.key == key for one in record.said):
                return
            said = Said(by, self._clock().isoformat(timespec="milliseconds"), mask(text), key)
            self._records.save(folder, replace(record, said=(*record.said, said)), "task.said", by=by)

    def log(self, task: Task, *records: Mapping[str, object], durable: bool) -> None:
        """Append to messages.jsonl. Raises UserError if it could not be written whole; the log is then as it was."""
        with self._own(task):
            log = self._logs.get(task.id) or open_log(task.path, durable=self._durable)
            log.append(*records, now=durable, apart=True)
            self._logs[task.id] = log

    def cancel(self, path: Path, reason: str) -> Path:
        """Move an active task to failed/ under its agent's hands; what the agent still writes is turned away."""
        with held(path, wait=True):
            remove_ends(path)
            write(path / _ERROR, harmless(mask(reason)), durable=self._durable)
            reached("tasks.cancel.written")
            return leave(self._layout, path, self._layout.failed, durable=self._durable)

    @contextmanager
    def _own(self, task: Task) -> Iterator[TaskRecord]:
        """Hold the task's folder while it is this claim's; yields its record. Raises TaskMoved if it is not, or goes away
        meanwhile, and fails a task whose record or log something else has changed."""
        try:
            with held(task.path, wait=True):
                record = self._checked(task)
                if record.claim is None or record.claim.key != task.claim:
                    owner = "nobody" if record.claim is None else record.claim.agent
                    raise TaskMoved(f"the claim is over, the task belongs to {owner} now", where=task.id)
                yield record
        except (FileNotFoundError, NotADirectoryError):
            if task.path.is_dir():
                raise
            raise TaskMoved("the claim is over, the task was moved out of active/", where=task.id) from None

    def _checked(self, task: Task) -> TaskRecord:
        known = self._logs.get(task.id)
        try:
            if known is None or known.is_untouched:
                return self._records.load(task.path, task.id)
            problem: UserError = Tampered(f"{LOG} was changed by something other than hivemind", where=task.path)
        except Tampered as error:
            problem = error
        self._forget(task.id)
        self._claims.give_up(task.path, task.owner, problem)
        raise TaskMoved(f"it has failed: {problem.what}", where=task.id)

    def _forget(self, task_id: str) -> None:
        self._records.forget(task_id)
        self._logs.pop(task_id, None)

    def _keep(self, task: Task, name: str, end: bytes) -> Path | None:
        """Put a late result where the task lies now; None if the task is gone, which withdraws it."""
        layout = self._layout
        for folder in (layout.inbox / task.id, place_of(layout, task.id)):
            if folder is None or not folder.is_dir():
                continue
            attempts = folder / ATTEMPTS
            late = attempts / free_name(f"late-{task.owner}", set(names_in(attempts)).__contains__)
            try:
                make_folder(late, durable=self._durable)
                write(late / name, end, durable=self._durable)
            except FileNotFoundError:
                continue  # moved on under our hands
            return late
        return None
