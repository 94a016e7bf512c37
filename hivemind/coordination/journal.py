"""The journal: an append-only log of events, numbered in one sequence for the whole workspace."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from hivemind.boundary import boundary
from hivemind.coordination.projection import PROJECTION_VERSION, apply_events
from hivemind.coordination.state import EndedTasks, JournalState
from hivemind.errors import HivemindError, UserError
from hivemind.frozen import frozen
from hivemind.fs import Log, LogBookmark, ReadPosition, Record, crash_point, make_folder, records_of, write
from hivemind.fs.atomic import open_regular
from hivemind.fs.postponed import postpone
from hivemind.logger import logger
from hivemind.masking import mask_values

MAX_LINE = 1_048_576
EventDraft = tuple[str, Mapping[str, Any]]
"""An event to append: its kind and its payload."""

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# events without free text, which need no masking
_UNMASKED_KINDS = ("lease.", "agent.", "step.verified", "task.recorded", "task.ending")
_json_string = json.encoder.encode_basestring


@frozen
class Event:
    """One event. `seq` counts all events of the workspace from 1, without a gap."""

    seq: int
    kind: str
    payload: dict[str, Any]

    @classmethod
    def from_record(cls, record: Record) -> Event:
        payload = dict(record)
        return cls(payload.pop("seq"), payload.pop("kind"), payload)

    def as_dict(self) -> Record:
        """Return the event as a record of the log."""
        return {"seq": self.seq, "kind": self.kind, **self.payload}


def encode_line(seq: int, drafts: Sequence[EventDraft]) -> tuple[bytes, list[Record]]:
    """Encode the drafts as one line of the log, numbered from `seq` + 1. Return the line and its records.

    Raises UserError for an invalid kind, for a payload that is not JSON or contains `seq` or `kind`, for text that is
    not Unicode, and for a line longer than 1 MiB.
    """
    for kind, payload in drafts:
        if not isinstance(kind, str) or not kind.isprintable() or not kind.strip() or len(kind) > 128:
            raise UserError(f"{kind!r} is not an event kind", remedy="use a name like agent.started")
        if "seq" in payload or "kind" in payload:
            message = f"the payload of a {kind} event must not contain `seq` or `kind`"
            raise UserError(message, remedy="rename the field")
    try:
        masked_drafts = [
            (kind, payload if kind.startswith(_UNMASKED_KINDS) else mask_values(payload)) for kind, payload in drafts
        ]
        records = [
            {"seq": number, "kind": kind, **payload} for number, (kind, payload) in enumerate(masked_drafts, seq + 1)
        ]
        text = _encode_flat(seq + 1, *masked_drafts[0]) if len(masked_drafts) == 1 else None
        if text is not None:
            line = text.encode() + b"\n"
        else:
            line = _encoder.encode(records[0] if len(records) == 1 else records).encode() + b"\n"
            records = records_of(line)
    except (TypeError, ValueError, RecursionError) as error:
        kinds = ", ".join(sorted({kind for kind, _ in drafts}))
        raise UserError(f"the payload of {kinds} is not valid JSON ({error})") from None
    if len(line) > MAX_LINE:
        raise UserError(
            f"an event of {len(line)} bytes is too long for the journal ({MAX_LINE})",
            remedy="put a long text into a file and name the file; divide a plan of many steps among several tasks",
        )
    return line, records


def _encode_flat(seq: int, kind: str, payload: Mapping[str, Any]) -> str | None:
    """Encode an event with only texts and integers in its payload, three times as fast as the JSON encoder. Return None for
    another.
    """
    text = f'{{"seq":{seq},"kind":{_json_string(kind)}'
    for name, value in payload.items():
        if type(value) is str:
            text += f",{_json_string(name)}:{_json_string(value)}"
        elif type(value) is int:
            text += f",{_json_string(name)}:{value}"
        else:
            return None
    return text + "}"


_log = logger(__name__)


def _snapshot_path(folder: str) -> str:
    """Return the snapshot's path. The name contains the version, so programs of two versions use separate snapshots."""
    return os.path.join(folder, f"snapshot-{PROJECTION_VERSION}.json")


def _write_snapshot(folder: str, state: JournalState, bookmark: LogBookmark) -> bool:
    """Write a snapshot of the state at `bookmark`; the log must be durable up to it. Return False on an OSError."""
    header = {"kind": "journal-snapshot", "version": PROJECTION_VERSION, "mark": bookmark}
    digest = hashlib.sha256()

    def lines() -> Iterator[bytes]:
        for line in itertools.chain([json.dumps(header, separators=(",", ":")).encode() + b"\n"], state.lines()):
            digest.update(line)
            yield line
        yield digest.hexdigest().encode() + b"\n"

    try:
        write(_snapshot_path(folder), lines())
    except OSError as error:  # a snapshot only saves time
        _log.warning("journal: no snapshot in %s (%s)", folder, error.strerror)
        return False
    crash_point("journal.snapshot.written")
    return True


def _load_snapshot(folder: str, log: Log) -> tuple[JournalState, int] | None:
    """Return the snapshot's state and file size, and move the log to the snapshot's bookmark.

    Return None if no snapshot fits the log, which is then read from its beginning.
    """
    path = _snapshot_path(folder)
    try:
        with boundary("snapshot", path), open(open_regular(path, os.O_RDONLY), "rb") as file:
            file_status = os.fstat(file.fileno())
            body_end, digest = file_status.st_size - _DIGEST_BYTES, hashlib.sha256()
            while file.tell() < body_end and (chunk := file.read(min(_CHUNK, body_end - file.tell()))):
                digest.update(chunk)
            is_complete = file.read() == digest.hexdigest().encode() + b"\n"
            file.seek(0)
            header = json.loads(file.readline()) if is_complete else {}
            if is_complete and log.resume(LogBookmark(*header["mark"])):
                line = file.readline()
                ended_tasks = EndedTasks(path, os.dup(file.fileno()), file.tell(), body_end)
                return JournalState.from_line(line, ended_tasks), file_status.st_size
    except FileNotFoundError:
        return None
    except UserError as error:
        _log.warning("journal: %s; reading the log instead", error)
        return None
    _log.warning("journal: %s does not fit the log; reading the log instead", path)
    return None


SEGMENT_BYTES = 8 * 1024 * 1024
_DIGEST_BYTES = 65
_CHUNK = 1 << 16
_GROWTH_DIVISOR = 4  # a snapshot is due when the log has grown by a quarter of the last snapshot's size
_VERSION = 2
_T = TypeVar("_T")


class Journal:
    """The event log in `folder`. The first append creates the folder, the first use reads the log. Thread-safe.

    In a durable hive an event is on disk before its append returns and before any reader sees its effect. In a relaxed hive an
    event survives the death of its process at once. It survives a power failure only after the system has written it to disk. A
    file that reaches `segment_bytes` is renamed, and the next event begins a new file.

    With `read_only`, the journal creates, locks and writes no file, and can read a log on a read-only disk. An append then
    raises UserError.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, segment_bytes: int = SEGMENT_BYTES, read_only: bool = False
    ) -> None:
        self.read_only = read_only
        self.folder = os.path.abspath(folder)
        self.path = os.path.join(self.folder, "journal.jsonl")
        self._log = Log(self.path, "journal", _VERSION, numbered=True, shared=True, segment_bytes=segment_bytes)
        self._segment_bytes = segment_bytes
        self._mutex = threading.RLock()
        self._state: JournalState | None = None
        self._epoch = 0  # the log's epoch when the state was read
        self._folder_exists = False
        self._loaded_snapshot: tuple[int, int] | None = None  # device and inode of the snapshot when the state was read
        self._snapshot_due = 0

    # reading and appending

    def append(self, kind: str, /, **payload: Any) -> Event:
        """Append one event of any kind with any JSON payload. Raises UserError if it is invalid or cannot be written."""
        return self.transact(lambda _: [(kind, payload)])[0]

    def transact(self, decide: Callable[[JournalState], Sequence[EventDraft]]) -> list[Event]:
        """Call `decide` with the newest state under the journal's lock. Append the events that it returns, and return them with
        numbers.

        Several events share one line: all of them are written, or none. If `decide` raises or returns no events, the log stays
        unchanged. `decide` must not change or keep the state, and must return quickly.
        """
        return [Event.from_record(record) for record in self.transact_and_query(decide, lambda _, records: records)]

    def transact_and_query(
        self, decide: Callable[[JournalState], Sequence[EventDraft]], query: Callable[[JournalState, list[Record]], _T]
    ) -> _T:
        """Append the events that `decide` returns, as `transact` does, and return `query(state, records)`.

        `records` are the appended events. The query runs before any other process can write.
        """
        with self._locked_state() as state:
            drafts = decide(state)
            query_result = query(state, self._write(state, drafts) if drafts else [])
        if self._log.transferred_bytes >= self._snapshot_due and not self._is_snapshot_superseded():
            self.snapshot()
        return query_result

    @contextmanager
    def locked(self, check: Callable[[JournalState], None]) -> Iterator[None]:
        """Hold the journal's lock while the caller writes elsewhere. `check` sees the newest state and may raise.

        Be quick: no process can append meanwhile. In the block the journal can be read; an append raises HivemindError.
        """
        with self._locked_state() as state:
            check(state)
            yield

    def view(self, query: Callable[[JournalState], _T]) -> _T:
        """Return `query(state)` for the newest state. Takes no file lock. The query must not keep the state."""
        with self._mutex:
            query_result, position = query(self._refresh()), self._log.position
        self._make_durable(position)
        return query_result

    @property
    def seq(self) -> int:
        """The seq of the newest event, 0 if there is none."""
        return self.view(lambda state: state.seq)

    def read(self, since: int = 0) -> list[Event]:
        """Return the events after the seq `since`, oldest first. Raises LogDamaged naming file and line."""
        return list(self.events(since))

    def events(self, since: int = 0) -> Iterator[Event]:
        """Yield the events after `since`, for a long log. Events that are appended meanwhile may be missing."""
        last = self.seq
        for record in self._log.records(since):
            if record["seq"] > last:
                return
            yield Event.from_record(record)

    def fingerprint(self) -> bytes:
        """Return the whole state as canonical JSON. Equal logs give equal bytes on any machine."""
        return self.view(lambda state: b"".join(state.lines()))

    def snapshot(self) -> bool:
        """Write a snapshot now. Return False if it could not be written; the log still contains everything.

        Raises UserError for a read-only journal.
        """
        self._refuse_read_only()
        with self._mutex:
            state, bookmark = self._refresh(), self._log.bookmark()
            if bookmark is None:
                return False
            self._log.sync_to(self._log.position)
            is_written = _write_snapshot(self.folder, state, bookmark)
            self._snapshot_due = self._log.transferred_bytes + self._segment_bytes
            if is_written:
                self._state = None  # the next use reads it from the file, which keeps finished tasks out of memory
        crash_point("journal.snapshot.done")
        return is_written

    def torn_tail(self) -> bytes:
        """Return the incomplete line that a crash left after the last event. The next append sets it aside."""
        return self._log.torn_bytes()

    def repair(self, save_copy: Callable[[str], object]) -> int:
        """Rewrite each damaged file without its damaged lines, after calling `save_copy` with the file's path.

        An event `journal.lost` replaces each lost event, so all other events keep their numbers. Return the number of
        lost events. Raises the errors of `read` for a file of another kind or version.
        """
        self._refuse_read_only()
        with self._mutex:
            self._state = None
            return self._log.repair(save_copy, {"kind": "journal.lost"})

    def archive(self, before: float) -> list[str]:
        """Move full files last written before a time (seconds since 1970) to `archive/<month>/`. Return the new paths.

        A snapshot is written first; if that fails, no file is moved. Archived files are still read when needed.
        """
        with self._mutex:
            return self._log.archive(before) if self.snapshot() else []

    def close(self) -> None:
        """Close the files. The next use opens them again."""
        with self._mutex:
            self._state = None
            self._log.close()

    # keeping the state up to date

    @contextmanager
    def _locked_state(self) -> Iterator[JournalState]:
        """Within a `with` block, lock the journal and yield the newest state. After it, make the events durable that were read or
        written.
        """
        self._refuse_read_only()
        position = ReadPosition()
        try:
            with self._mutex:
                if self._log.is_locked:
                    raise HivemindError("cannot append to the journal inside Journal.locked")
                if not self._folder_exists:
                    make_folder(self.folder)
                    self._folder_exists = True
                if self._state is None:  # outside the lock, since it may take long
                    self._refresh()
                self._log.acquire()
                try:
                    yield self._refresh()
                finally:
                    self._log.release()
                    position = ReadPosition() if self._state is None else self._log.position
        finally:
            self._make_durable(position)

    def _refuse_read_only(self) -> None:
        if self.read_only:
            raise UserError("was opened read-only", location=self.folder, remedy="open it for writing with Hive.open")

    def _refresh(self) -> JournalState:
        """Apply the new events, and return the state."""
        try:
            if (
                self._log.transferred_bytes >= self._snapshot_due
                and not self._log.is_locked
                and self._is_snapshot_superseded()
            ):
                self._state = None
            if self._state is None:
                self._log.rewind()
                self._loaded_snapshot = self._snapshot_identity()
                snapshot = _load_snapshot(self.folder, self._log)
                self._state, size = snapshot or (JournalState(), 0)
                self._epoch = self._log.epoch
                self._snapshot_due = self._log.transferred_bytes + max(self._segment_bytes, size // _GROWTH_DIVISOR)
            for records in itertools.chain(self._log.batches(), ([],)):  # a file that replaced the log may be empty
                if self._epoch != self._log.epoch:  # the log was replaced
                    self._state, self._epoch = JournalState(), self._log.epoch
                apply_events(self._state, records)
            return self._state
        except BaseException:
            self._state = None  # a partly updated state must not be used
            raise

    def _snapshot_identity(self) -> tuple[int, int] | None:
        try:
            file_status = os.stat(_snapshot_path(self.folder))
        except OSError:
            return None
        return file_status.st_dev, file_status.st_ino

    def _is_snapshot_superseded(self) -> bool:
        """Return True if a snapshot was written since the state was read."""
        return self._snapshot_identity() != self._loaded_snapshot

    def _make_durable(self, position: ReadPosition) -> None:
        if self._log.durable:
            postpone(partial(self._log.sync_to, position, update_note=not self.read_only))

    # writing

    def _write(self, state: JournalState, drafts: Sequence[EventDraft]) -> list[Record]:
        line, records = encode_line(state.seq, drafts)
        try:
            self._log.append_line(line, len(records))
            apply_events(state, records)
        except BaseException:
            self._state = None
            raise
        return records
