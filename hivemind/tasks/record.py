"""The one record of a task, `task.json`: what was dropped, who made it, who works on it, how it stands (README.md).

The text is fixed when the task is claimed, and read from here alone. Every change is told to the journal by its digest
before it is written, so that a record that something else has written is found out.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict

from hivemind.boundary import checked, plain
from hivemind.coordination import Journal
from hivemind.coordination.entries import TaskEntry
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import write
from hivemind.fs.records import as_line, parse_record
from hivemind.layout import HUMAN
from hivemind.masking import harmless
from hivemind.names import check_maker, check_name
from hivemind.tasks.task import AddedText, ParkedTask, TaskProblem

RECORD = "task.json"
ENDS = ("error.md", "result.md")
_KIND, _VERSION = "task", 1
_MAX_BYTES = 16 << 20
CLAIM_ANEW = "move it to tasks/inbox/ to have it claimed anew"
_MEND = "look at what its commands did; without its task.json it is, when retried, a new task of yours"


class RecordTampered(TaskProblem):
    """A task's record is not what the journal says was written: a command that ran without a sandbox has changed it."""


@frozen
class Claim:
    """Who works, or worked, on a task. `key` names this one claim, `claimed` is when it was made (ISO 8601)."""

    key: str
    agent: str
    incarnation: int
    claimed: str


@frozen
class HandOverTarget:
    """To whom a task was handed over, by whom, and why; `claimed` is when the claim was made that ends with it."""

    by: str
    to: str | None
    role: str | None
    reason: str
    claimed: str

    def ends(self, claim: Claim) -> bool:
        """Whether it is this claim that ended: what is left to do is to put the task back."""
        return (self.by, self.claimed) == (claim.agent, claim.claimed)


@frozen
class TaskRecord:
    """All that the program knows of a task beside its logs.

    `text` is None until the task is claimed: it then holds what was dropped, `name` how that was called (it says whether
    the text is YAML) and `source` the name in the inbox. `attachments` are relative to the task's folder. `inode` is the
    folder that a program put the task into, whole; `parent` the task that this one is a part of. `kept` is the runtime's
    own: reviews, waits, crashes, `once` steps, subtasks.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    maker: Annotated[str, AfterValidator(check_maker)] = HUMAN
    parent: Annotated[str, AfterValidator(partial(check_name, what="task id"))] | None = None
    source: str = ""
    name: str = ""
    text: str | None = None
    attachments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    inode: int | None = None
    claim: Claim | None = None
    handed: HandOverTarget | None = None
    parked: ParkedTask | None = None
    said: tuple[AddedText, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def raw(self) -> bytes:
        """The text as it was dropped."""
        return (self.text or "").encode()

    def encode(self) -> bytes:
        fields = {key: value for key, value in plain(self).items() if value not in (None, [], {}, "")}
        return as_line({"kind": _KIND, "version": _VERSION, **fields})


def load(folder: Path) -> TaskRecord | None:
    """The record in a folder that anyone may have filled: never through a link, never from a FIFO; None if it has none.

    Raises UserError for one that is damaged or of another version.
    """
    try:
        raw = _bytes(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            message = f"cannot be read ({error.strerror})"
            raise UserError(message, location=folder / RECORD, remedy="make it readable") from error
        raw = None
    if raw is None:
        raise TaskProblem("is not a task's record", location=folder / RECORD, remedy="take it away")
    return _parse(folder, raw)


def _parse(folder: Path, raw: bytes) -> TaskRecord:
    path, mend = folder / RECORD, "take it away: the task is then as new"
    return checked(TaskRecord, parse_record(raw, path, _KIND, _VERSION), "task's record", path, mend=mend)


def is_made_whole(folder: str | os.PathLike[str]) -> bool:
    """Whether the program put this folder there, whole, rather than someone who may still be copying it."""
    try:
        record = load(Path(folder))
        return record is not None and record.inode == os.stat(folder).st_ino
    except (UserError, OSError):
        return False  # said when the task is claimed


def has_ended(folder: Path) -> bool:
    """Whether an attempt at the task has ended: moved to the inbox, the folder is a retry."""
    return any(os.path.lexists(folder / name) for name in ENDS)


class Records:
    """Writes the records of one hive, and knows which of them it has written. Without a journal nothing is checked.

    An event of a record names its digest and that of the record before it: one of the two is on the disk, wherever a
    process was killed in between.
    """

    def __init__(self, journal: Journal | None, *, durable: bool) -> None:
        self._journal = journal
        self._durable = durable
        self._own_digests: dict[str, str] = {}  # digests
        self._last_written: tuple[TaskRecord | None, str] = None, ""  # the last that had no id, and its digest
        self._known_records: dict[str, tuple[str, TaskRecord]] = {}

    def write(self, folder: Path, record: TaskRecord) -> None:
        """Write the record of a task that has no id yet; `claimed` tells the journal of it."""
        raw = record.encode()
        write(folder / RECORD, raw, durable=self._durable)
        self._last_written = record, _digest(raw)

    def save(self, folder: Path, record: TaskRecord, event: str = "task.recorded", **payload: object) -> None:
        """Replace the record of the task whose folder has its id; the journal has the digest first. Raises OSError."""
        raw = record.encode()
        now, before = _digest(raw), _digest(self._bytes(folder))
        self._append_event(event, task_id=folder.name, record=now, before=before, **payload)
        write(folder / RECORD, raw, durable=self._durable)
        self._own_digests[folder.name] = now

    def note_claim(self, task_id: str, record: TaskRecord, title: str) -> None:
        """Tell the journal that a task was claimed, and what its record is."""
        assert record.claim is not None
        last_record, digest = self._last_written
        if last_record is not record:
            digest = _digest(record.encode())
        self._own_digests[task_id] = digest
        agent = record.claim.agent
        # the folder in active/ says it as well: `mine` tells the journal what it was not told
        self._append_event("task.claimed", task_id=task_id, agent_id=agent, title=title, record=digest, before=digest)

    def note_failure(self, task_id: str, agent: str | None, reason: str, **payload: str) -> None:
        """Tell the journal that a drop, whose name may be any bytes, could not become a task, or that one could not go on because
        of what lies in its folder."""
        by = {} if agent is None else {"agent_id": agent}
        payload = {key: harmless(text) for key, text in {"reason": reason, **payload}.items()}
        self._append_event("task.failed", task_id=task_id, **by, **payload)

    def announce_end(self, task_id: str, end: bytes) -> None:
        """Tell the journal what is going to be the result.md or error.md of a task. Where a power cut takes that, the end is
        made again."""
        self._append_event("task.ending", task_id=task_id, end=_digest(end))

    def is_announced(self, task_id: str, end: bytes) -> bool:
        """Whether the program itself was about to write this result.md or error.md."""
        task_entry = self._entry(task_id)
        return self._journal is None or (task_entry is not None and task_entry.outcome_digest == _digest(end))

    def is_claimed_by(self, task_id: str, agent: str) -> bool:
        """Whether the journal says that the agent has the task in hand."""
        task_entry = self._entry(task_id)
        return task_entry is not None and task_entry.agent_id == agent and not task_entry.is_over

    def load(self, folder: Path, task_id: str) -> TaskRecord:
        """The record of a task that was claimed at some time, checked; the folder may have another name just now.

        Raises Tampered; FileNotFoundError if the folder is gone; UserError if it has no record, or a damaged one.
        """
        now, raw = self._check(folder, task_id)
        known_record = self._known_records.get(task_id)
        if known_record is not None and known_record[0] == now:
            return known_record[1]
        if not raw:
            os.stat(folder)
            raise TaskProblem(f"has no {RECORD}", location=folder, remedy=CLAIM_ANEW)
        record = _parse(folder, raw)
        self._known_records[task_id] = now, record
        return record

    def check(self, folder: Path, task_id: str) -> None:
        """Raises Tampered if the record is none that was written under that id; FileNotFoundError as `load`."""
        self._check(folder, task_id)

    def _check(self, folder: Path, task_id: str) -> tuple[str, bytes]:
        """The digest of the record, and its bytes."""
        raw = self._bytes(folder)
        now = _digest(raw)
        if now == self._own_digests.get(task_id):
            return now, raw
        task_entry = self._entry(task_id)
        if (
            task_entry is None
            or not task_entry.record_digests
            or now in task_entry.record_digests
            or self._may_be_newer(folder)
        ):
            return now, raw
        os.stat(folder)
        raise RecordTampered(f"{RECORD} was changed by something other than hivemind", location=folder, remedy=_MEND)

    def forget(self, task_id: str) -> None:
        """The task is not in hand any more."""
        self._own_digests.pop(task_id, None)
        self._known_records.pop(task_id, None)

    @staticmethod
    def _bytes(folder: Path) -> bytes:
        """The record as it lies there; nothing if there is none: what is wrong with it is said where it is read."""
        try:
            return _bytes(folder) or b""
        except OSError:
            return b""

    def _may_be_newer(self, folder: Path) -> bool:
        """Whether a power cut may have taken the journal's last events and left the record: in a relaxed hive only."""
        if self._durable:
            return False
        try:
            written_at = os.stat(folder / RECORD).st_mtime
        except FileNotFoundError:
            return False
        return written_at < time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def _entry(self, task_id: str) -> TaskEntry | None:
        return None if self._journal is None else self._journal.view(lambda state: state.task(task_id))

    def _append_event(self, event: str, **payload: object) -> None:
        if self._journal is not None:
            self._journal.append(event, **payload, time=int(time.time()))


def _bytes(folder: Path) -> bytes | None:
    """The record as it lies there; None for what is no regular file, or too large. Raises OSError."""
    file = os.open(f"{folder}/{RECORD}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        file_stat = os.fstat(file)
        if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_size > _MAX_BYTES:
            return None
        return os.read(file, file_stat.st_size + 1)
    finally:
        os.close(file)


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:32]
