"""`task.json`, the record of a task: its text, maker, claim and state. Also `messages.jsonl`, the task's log (README.md).

The text is fixed when the task is claimed and is then read only from here. The digest of each change is written to the journal
before the change, to detect changes by other programs.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from hivemind.boundary import as_dataclass, json_fields
from hivemind.coordination import Journal
from hivemind.coordination.entries import TaskEntry
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import Log, flush_postponed, is_durable, write
from hivemind.fs.postponed import next_moment
from hivemind.fs.records import as_line, parse_record
from hivemind.layout import HUMAN, LANDING
from hivemind.masking import strip_controls
from hivemind.names import check_maker, check_name
from hivemind.schema import AfterValidator
from hivemind.tasks.task import AddedText, ParkedTask, Task, TaskProblem
from hivemind.trace_context import TraceContext

RECORD = "task.json"
LOG = "messages.jsonl"
SESSION = "session"
"""The value of `kept` that a new attempt keeps: the editor's session to which the task belongs (acp_server/README.md)."""
ENDS = ("error.md", "result.md")
_KIND, _VERSION = "task", 1
_MAX_BYTES = 16 << 20
CLAIM_ANEW = "move it to tasks/inbox/ to have it claimed again"
_MEND = "check what its commands did; delete its task.json and retry it, and it is a new task of yours"


class RecordTampered(TaskProblem):
    """Another program, such as a command without a sandbox, has changed a task's record or log."""


@frozen
class Claim:
    """The claim of a task. `key` is unique, `claimed` is the time in ISO 8601."""

    key: str
    agent: str
    incarnation: int
    claimed: str


@frozen
class TaskHandOver:
    """The agent or role to which a task was handed over. `claimed` is the time of the claim that the hand-over ends."""

    by: str
    to: str | None
    role: str | None
    reason: str
    claimed: str

    def ends(self, claim: Claim) -> bool:
        """Check that the hand-over ended the claim. If so, the task must still be moved to the inbox."""
        return (self.by, self.claimed) == (claim.agent, claim.claimed)


@frozen
class TaskRecord:
    """All that is stored about a task besides its logs.

    `text` is the dropped text; it is None until the task is claimed. `name` is the name of the text's file, `source`
    the drop's name in the inbox. `attachments` are relative to the task's folder. `inode` identifies a folder that a
    program completed before moving it to the inbox. `parent` is the id of the parent task. `trace` is the span of the
    attempt, new with each attempt. `kept` has values of the runtime: reviews, waits, crashes, `once` steps, subtasks.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    maker: Annotated[str, AfterValidator(check_maker)] = HUMAN
    parent: Annotated[str, AfterValidator(partial(check_name, description="task id"))] | None = None
    source: str = ""
    name: str = ""
    text: str | None = None
    attachments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    inode: int | None = None
    claim: Claim | None = None
    handed: TaskHandOver | None = None
    parked: ParkedTask | None = None
    said: tuple[AddedText, ...] = ()
    trace: TraceContext | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def raw(self) -> bytes:
        """The original text of the drop."""
        return (self.text or "").encode()

    def encode(self) -> bytes:
        fields = {key: value for key, value in json_fields(self).items() if value not in (None, [], {}, "")}
        return as_line({"kind": _KIND, "version": _VERSION, **fields})


def load(folder: Path) -> TaskRecord | None:
    """Return the record in a folder, or None. Anyone may have filled the folder: links are not followed,
    FIFOs not read.

    Raises UserError for a damaged record and for one of another version.
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


def load_sound(folder: Path) -> TaskRecord | None:
    """Return the record in a folder, or None if the record is missing or damaged."""
    with suppress(UserError):
        return load(folder)
    return None


def _parse(folder: Path, raw: bytes) -> TaskRecord:
    path, mend = folder / RECORD, "take it away: the task is then as new"
    return as_dataclass(TaskRecord, parse_record(raw, path, _KIND, _VERSION), "task's record", path, remedy=mend)


def is_made_whole(folder: str | os.PathLike[str]) -> bool:
    """Check that the program itself moved the complete folder to the inbox, so nobody is still copying it."""
    try:
        record = load(Path(folder))
        return record is not None and record.inode == os.stat(folder).st_ino
    except (UserError, OSError):
        return False  # reported when the task is claimed


def open_log(folder: Path) -> Log:
    """Return the log of a task's conversation. In a durable hive, lines appended with `sync_now` survive a power cut."""
    return Log(folder / LOG, "messages", 1, lazy=True)


def has_ended(folder: Path) -> bool:
    """Check that the folder has the result or error of an ended attempt. In the inbox, the folder is then a retry."""
    return any(os.path.lexists(folder / name) for name in ENDS)


_LOOKS = 3
_UNKNOWN: tuple[str, TaskRecord | None, bool] = ("", None, False)
"""The digest of a record, the record (None: not parsed yet), and whether this process has written it."""


class Records:
    """Writes and checks the records and logs of one hive's tasks. Without a journal, records are not checked.

    An event has the digests of the new record and of the record before. Wherever a process is killed, the record on
    disk has one of these two digests.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._known_records: dict[str, tuple[str, TaskRecord | None, bool]] = {}
        self._logs: dict[
            str, tuple[Log, tuple[int, ...] | None]
        ] = {}  # each with its stamp after this process's last write

    def save(self, folder: Path, record: TaskRecord, event: str = "task.recorded", **payload: object) -> None:
        """Replace the record of a task. Before that, write an event of the kind `event`, with its digest and `payload`, to the
        journal.

        Raises OSError.
        """
        raw = record.encode()
        now, before = _digest(raw), _digest(self._bytes(folder))
        self._append_event(event, task_id=folder.name, record=now, before=before, **payload)
        write(folder / RECORD, raw)
        self._known_records[folder.name] = now, None, True

    def flush_events(self, task_id: str) -> None:
        """Flush the postponed events of an earlier task with that id. Without that, a power cut could keep the new task's folder
        but lose the old task's events.
        """
        if self._entry(task_id) is not None:
            flush_postponed()

    def note_claim(self, task_id: str, record: TaskRecord, title: str) -> None:
        """Write the event of a claim to the journal, with the digest of the record."""
        assert record.claim is not None
        digest, agent = _digest(record.encode()), record.claim.agent
        self._known_records[task_id] = digest, None, True
        # if this event is lost, `mine` finds the folder in active/ and writes it again
        self._append_event("task.claimed", task_id=task_id, agent_id=agent, title=title, record=digest, before=digest)

    def note_failure(self, task_id: str, agent: str | None, reason: str, **payload: str) -> None:
        """Write to the journal that a drop could not become a task, or that a task failed because of its folder.

        `agent` is the agent that had claimed it, or None.
        """
        by = {} if agent is None else {"agent_id": agent}
        payload = {key: strip_controls(text) for key, text in {"reason": reason, **payload}.items()}
        self._append_event("task.failed", task_id=task_id, **by, **payload)

    def announce_end(self, task_id: str, end: bytes) -> None:
        """Write the digest of a result.md or error.md to the journal before the file is written (see `is_announced`)."""
        self._append_event("task.ending", task_id=task_id, end=_digest(end))

    def is_announced(self, task_id: str, end: bytes) -> bool:
        """Check that `announce_end` wrote the digest of this result.md or error.md to the journal."""
        entries = (self._entry(task_id, anew=anew) for anew in (False, True))
        return self._journal is None or any(entry and entry.outcome_digest == _digest(end) for entry in entries)

    def is_claimed_by(self, task_id: str, agent: str) -> bool:
        """Check that, according to the journal, the agent has claimed the task and not ended it."""
        task_entry = self._entry(task_id)
        return task_entry is not None and task_entry.agent_id == agent and not task_entry.is_over

    def load(self, folder: Path, task_id: str) -> TaskRecord:
        """Check and return the record of a task that was claimed before. The folder's name may differ from the id.

        Raises RecordTampered; FileNotFoundError if the folder is gone; UserError for a missing or damaged record.
        """
        now, raw = self.check(folder, task_id)
        digest, record, is_own = self._known_records.get(task_id, _UNKNOWN)
        if record is not None and digest == now:
            return record
        if not raw:
            os.stat(folder)
            raise TaskProblem(f"has no {RECORD}", location=folder, remedy=CLAIM_ANEW)
        record = _parse(folder, raw)
        self._known_records[task_id] = now, record, is_own and digest == now
        return record

    def check(self, folder: Path, task_id: str) -> tuple[str, bytes]:
        """Return the digest and the bytes of a task's record. Raises RecordTampered if another program has changed it, and
        FileNotFoundError if the folder is gone."""
        digest, _, is_own = self._known_records.get(task_id, _UNKNOWN)
        for number in range(_LOOKS):  # others may write it between the look at the file and the look at the journal
            raw = self._bytes(folder)
            now = _digest(raw)
            if is_own and digest == now:
                return now, raw
            task_entry = self._entry(task_id, anew=number > 0)
            digests = () if task_entry is None else task_entry.record_digests
            if not digests or now in digests or self._may_be_newer(folder):
                return now, raw
        os.stat(folder)
        raise RecordTampered(f"{RECORD} was changed by something other than hivemind", location=folder, remedy=_MEND)

    def follow(self, task: Task) -> Task:
        """Note identity, size and time of a claimed task's log, to detect later changes by other programs. Return the task."""
        log, _ = self._logs.get(task.id) or (open_log(task.path), None)
        self._logs[task.id] = log, _stamp(log)
        return task

    def is_log_changed(self, task: Task) -> bool:
        """Check whether another program has changed the task's log since this process last wrote to it. While the lander has the
        task, the agent that finished it writes there (`log_late`)."""
        log, stamp = self._logs.get(task.id, (None, None))
        return log is not None and task.owner != LANDING and stamp != _stamp(log)

    def append_to_log(self, task: Task, *records: Mapping[str, Any], sync_now: bool) -> None:
        """Append records to a task's log in one write. With `sync_now`, they survive a power cut after the return.

        Raises UserError after an incomplete write, which is undone.
        """
        if task.id not in self._logs:
            self.follow(task)
        try:
            self._logs[task.id][0].append(*records, sync_now=sync_now, separate_lines=True)
        finally:
            self.follow(task)

    def seal_log(self, task: Task) -> None:
        """Make the conversation complete and durable before the task ends. A line that a power cut has torn is set aside."""
        log, stamp = self._logs.get(task.id) or (open_log(task.path), None)
        with suppress(OSError, UserError):  # not a log: the task can end without it
            if not log.size and stamp is not None:
                with log.locked():
                    pass
            log.sync()

    def forget(self, task_id: str) -> None:
        self._known_records.pop(task_id, None)
        self._logs.pop(task_id, None)

    @staticmethod
    def _bytes(folder: Path) -> bytes:
        """Return the bytes of the record, or b"" if it cannot be read. The function that parses them reports the problem."""
        try:
            return _bytes(folder) or b""
        except OSError:
            return b""

    def _may_be_newer(self, folder: Path) -> bool:
        """Check whether the record may be newer than the journal. That is possible only where writes are not durable: a power cut
        may have removed the events that were written before the record.
        """
        if is_durable(folder):
            return False
        try:
            written_at = os.stat(folder / RECORD).st_mtime
        except FileNotFoundError:
            return False
        return written_at < time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def _entry(self, task_id: str, *, anew: bool = False) -> TaskEntry | None:
        """Return the journal's newest entry of a task, or None. With `anew`, read the journal again even where `postponing` skips
        it.
        """
        if anew:
            next_moment()
        return None if self._journal is None else self._journal.view(lambda state: state.task(task_id))

    def _append_event(self, event: str, **payload: object) -> None:
        if self._journal is not None:
            self._journal.append(event, **payload, time=int(time.time()))


def _bytes(folder: Path) -> bytes | None:
    """Return the bytes of the record, or None if it is too large or not a regular file. Raises OSError."""
    file = os.open(f"{folder}/{RECORD}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        file_stat = os.fstat(file)
        if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_size > _MAX_BYTES:
            return None
        return os.read(file, file_stat.st_size + 1)
    finally:
        os.close(file)


def _stamp(log: Log) -> tuple[int, ...] | None:
    """Return device, inode, size and time of a log's file, which change when the log changes. None if it does not exist."""
    try:
        file_stat = os.lstat(log.path)
    except OSError:
        return None
    return file_stat.st_dev, file_stat.st_ino, file_stat.st_size, file_stat.st_mtime_ns


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:32]
