"""The journal: an append-only log of events with one sequence number for the whole workspace (spec 3, *Journal*)."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from hivemind.boundary import boundary
from hivemind.coordination.fold import FOLD_VERSION, apply
from hivemind.coordination.state import EndedTasks, State
from hivemind.errors import HivemindError, UserError
from hivemind.frozen import frozen
from hivemind.fs import Log, Mark, Place, Record, make_folder, reached, records_of, write
from hivemind.fs.atomic import open_own
from hivemind.masking import masked

MAX_LINE = 1_048_576
Draft = tuple[str, Mapping[str, Any]]
"""An event that is about to happen: its kind and its payload."""

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_WORDLESS = ("lease.", "agent.")  # events in which nobody says anything
_quoted = json.encoder.encode_basestring


@frozen
class Event:
    """Something that happened. `seq` counts all events of the workspace from 1, without a gap."""

    seq: int
    kind: str
    payload: dict[str, Any]

    @classmethod
    def of(cls, record: Record) -> Event:
        payload = dict(record)
        return cls(payload.pop("seq"), payload.pop("kind"), payload)

    def as_dict(self) -> Record:
        """The event as it stands in the log."""
        return {"seq": self.seq, "kind": self.kind, **self.payload}


def encode(seq: int, drafts: Sequence[Draft]) -> tuple[bytes, list[Record]]:
    """One line of the log with the drafts as the events after `seq`, and those events as they will be read.

    Raises UserError for a kind that is no word, a payload that is no JSON or has a field `seq` or `kind` of its own,
    text that is no Unicode, and a line longer than 1 MiB.
    """
    for kind, payload in drafts:
        _check(kind, payload)
    try:
        said = [(kind, payload if kind.startswith(_WORDLESS) else masked(payload)) for kind, payload in drafts]
        found = [{"seq": at, "kind": kind, **payload} for at, (kind, payload) in enumerate(said, seq + 1)]
        text = _flat(seq + 1, *said[0]) if len(said) == 1 else None
        if text is not None:
            line = text.encode() + b"\n"
        else:
            line = _encoder.encode(found[0] if len(found) == 1 else found).encode() + b"\n"
            found = records_of(line)
    except (TypeError, ValueError, RecursionError) as error:
        kinds = ", ".join(sorted({kind for kind, _ in drafts}))
        raise UserError(f"a payload of {kinds} is no JSON ({error})") from None
    if len(line) > MAX_LINE:
        raise UserError(
            f"an event of {len(line)} bytes is too long for the journal ({MAX_LINE})",
            mend="put a long text into a file and name the file; divide a plan of many steps among several tasks",
        )
    return line, found


def _check(kind: object, payload: Mapping[str, Any]) -> None:
    if not isinstance(kind, str) or not kind.isprintable() or not kind.strip() or len(kind) > 128:
        raise UserError(f"{kind!r} is no kind of event", mend="a kind is a word such as agent.started")
    if "seq" in payload or "kind" in payload:
        raise UserError(f"a {kind} event has a field `seq` or `kind` of its own", mend="rename the field")


def _flat(seq: int, kind: str, payload: Mapping[str, Any]) -> str | None:
    """What the encoder would give, for a payload of plain texts and numbers; None for any other. A third of its time."""
    text = f'{{"seq":{seq},"kind":{_quoted(kind)}'
    for name, value in payload.items():
        if type(value) is str:
            text += f",{_quoted(name)}:{_quoted(value)}"
        elif type(value) is int:
            text += f",{_quoted(name)}:{value}"
        else:
            return None
    return text + "}"


_log = logging.getLogger(__name__)


def _snapshot_path(folder: str) -> str:
    """The version stands in the name, so that programs of two versions leave each other's snapshots alone."""
    return os.path.join(folder, f"snapshot-{FOLD_VERSION}.json")


def _write_snapshot(folder: str, state: State, mark: Mark) -> bool:
    """Write the state at `mark`; the log must be durable up to there. Returns whether it was written."""
    head = {"kind": "journal-snapshot", "version": FOLD_VERSION, "mark": mark}
    digest = hashlib.sha256()

    def lines() -> Iterator[bytes]:
        for line in itertools.chain([json.dumps(head, separators=(",", ":")).encode() + b"\n"], state.lines()):
            digest.update(line)
            yield line
        yield digest.hexdigest().encode() + b"\n"

    try:
        write(_snapshot_path(folder), lines())
    except OSError as error:  # it only saves time: the log has everything
        _log.warning("journal: no snapshot in %s (%s)", folder, error.strerror)
        return False
    reached("journal.snapshot.written")
    return True


def _load_snapshot(folder: str, log: Log) -> tuple[State, int] | None:
    """(state, bytes of the file), the log to be read from there on; None if none fits the log: then it is read
    from its beginning."""
    path = _snapshot_path(folder)
    try:
        with boundary("snapshot", path), open(open_own(path, os.O_RDONLY), "rb") as file:
            found = os.fstat(file.fileno())
            end, digest = found.st_size - _DIGEST_BYTES, hashlib.sha256()
            while file.tell() < end and (chunk := file.read(min(_CHUNK, end - file.tell()))):
                digest.update(chunk)
            whole = file.read() == digest.hexdigest().encode() + b"\n"
            file.seek(0)
            head = json.loads(file.readline()) if whole else {}
            if whole and log.resume(Mark(*head["mark"])):
                line = file.readline()
                ended = EndedTasks(path, os.dup(file.fileno()), file.tell(), end)
                return State.of(line, ended), found.st_size
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
_PART = 4  # a snapshot is written when the log has grown by this part of the last one, so that both grow alike
_VERSION = 2
_T = TypeVar("_T")


class Journal:
    """The log in `folder`, made there if there is none. Cheap to make, read at the first use, safe between threads.

    `durable`: an event is on disk before its append returns, and before anything that rests on it is shown. Otherwise
    an event survives the death of its process at once, and power loss once the system has written it back.
    A file of `segment_bytes` is renamed, and a new one begun.

    With `read_only` nothing is made, locked or written, so that a log on a read-only disk can be read; what would append
    raises UserError.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        durable: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
        read_only: bool = False,
    ) -> None:
        self.durable = durable
        self.read_only = read_only
        self.folder = os.path.abspath(folder)
        self.path = os.path.join(self.folder, "journal.jsonl")
        self._log = Log(
            self.path, "journal", _VERSION, numbered=True, durable=durable, shared=True, segment_bytes=segment_bytes
        )
        self._segment_bytes = segment_bytes
        self._mutex = threading.RLock()
        self._state: State | None = None
        self._epoch = 0  # of the log, which the state belongs to
        self._is_made = False
        self._snapshot: tuple[int, int] | None = None  # the file that was there when the state was read
        self._snapshot_due = 0

    # what others use

    def append(self, kind: str, /, **payload: Any) -> Event:
        """Append one event of any kind with any JSON payload. Raises UserError if it is none or cannot be written."""
        return self.transact(lambda _: [(kind, payload)])[0]

    def transact(self, decide: Callable[[State], Sequence[Draft]]) -> list[Event]:
        """Check and append as one step that nothing can come between: `decide` sees the newest state under the lock.

        It returns the events to append (none: nothing is written; several stand on one line, all or none) or raises,
        and then nothing is written. It must not change the state, keep it, or take long.
        """
        return self.change(decide, lambda _, events: events)

    def change(self, decide: Callable[[State], Sequence[Draft]], look: Callable[[State, list[Event]], _T]) -> _T:
        """The same, and returns what `look` makes of the state and the events right after, before anyone else writes."""
        place = Place()
        try:
            with self._mutex:
                state = self._begin()
                try:
                    drafts = decide(state)
                    found = look(state, self._write(state, drafts) if drafts else [])
                finally:
                    place = self._end()
        finally:
            self._settle(place)
        if self._log.taken >= self._snapshot_due and not self._is_superseded():
            self.snapshot()
        return found

    @contextmanager
    def guarding(self, check: Callable[[State], None]) -> Iterator[None]:
        """Hold the journal while something else is written: `check` sees the newest state and may raise.

        Be quick: nobody can write meanwhile. This journal can be looked at inside, an append raises HivemindError.
        """
        place = Place()
        try:
            with self._mutex:
                state = self._begin()
                try:
                    check(state)
                    yield
                finally:
                    place = self._end()
        finally:
            self._settle(place)

    def view(self, look: Callable[[State], _T]) -> _T:
        """What `look` makes of the newest state; it takes no file lock and must not keep the state itself."""
        with self._mutex:
            found, place = look(self._fresh()), self._log.place
        self._settle(place)
        return found

    @property
    def seq(self) -> int:
        """The seq of the newest event, 0 if there is none."""
        return self.view(lambda state: state.seq)

    def read(self, since: int = 0) -> list[Event]:
        """The events after the seq `since`, oldest first. Raises LogDamaged naming file and line."""
        return list(self.events(since))

    def events(self, since: int = 0) -> Iterator[Event]:
        """The same, one by one, for a log that is long. What is appended meanwhile may or may not come along."""
        last = self.seq
        for record in self._log.records(since):
            if record["seq"] > last:
                return
            yield Event.of(record)

    def fingerprint(self) -> bytes:
        """The whole state as canonical JSON: equal logs give equal bytes on any machine."""
        return self.view(lambda state: b"".join(state.lines()))

    def snapshot(self) -> bool:
        """Write a snapshot now. Returns False if it could not be written (the log has everything).

        Raises UserError for a journal that was opened to be looked at.
        """
        self._refuse_onlooker()
        with self._mutex:
            state, mark = self._fresh(), self._log.mark()
            if mark is None:
                return False
            self._log.cover(self._log.place)
            written = _write_snapshot(self.folder, state, mark)
            self._snapshot_due = self._log.taken + self._segment_bytes
            if written:
                self._state = None  # the next look takes it from the file, where what is over lies
        reached("journal.snapshot.done")
        return written

    def torn(self) -> bytes:
        """What a crash left after the last event; the next append sets it aside."""
        return self._log.torn()

    def repair(self, keep: Callable[[str], object]) -> int:
        """Rewrite each file that has damaged lines without them; `keep` is called with its path before. The events that are lost
        stand there as `journal.lost`, so that every other one keeps its number; returns how many. Raises as `read` does for a
        file of another kind or version."""
        self._refuse_onlooker()
        with self._mutex:
            self._state = None
            return self._log.repair(keep, {"kind": "journal.lost"})

    def archive(self, before: float) -> list[str]:
        """Move full files that were last written to `before` a time (seconds since 1970) to `archive/<month>/`, once a snapshot
        says what they add up to; where they lie now. They are read all the same where something asks for what is in them."""
        with self._mutex:
            return self._log.archive(before) if self.snapshot() else []

    def close(self) -> None:
        """Let go of the files. The next use opens them again."""
        with self._mutex:
            self._state = None
            self._log.close()

    # keeping up

    def _begin(self) -> State:
        """The newest state, with nobody else writing until `_end`."""
        self._refuse_onlooker()
        if self._log.held:
            raise HivemindError("nothing can be appended to the journal while it is held")
        if not self._is_made:
            make_folder(self.folder, durable=self.durable)
            self._is_made = True
        if self._state is None:  # not under the lock: it may take long
            self._fresh()
        self._log.acquire()
        try:
            return self._fresh()
        except BaseException:
            self._log.release()
            raise

    def _end(self) -> Place:
        """Let the others write; returns how far what was seen or written reaches."""
        self._log.release()
        return Place() if self._state is None else self._log.place

    def _refuse_onlooker(self) -> None:
        if self.read_only:
            raise UserError("was opened to be looked at", where=self.folder, mend="open it to be changed: Hive.open")

    def _fresh(self) -> State:
        """The state with what is new."""
        try:
            if self._log.taken >= self._snapshot_due and not self._log.held and self._is_superseded():
                self._state = None
            if self._state is None:
                self._log.rewind()
                self._snapshot = self._snapshot_there()
                found = _load_snapshot(self.folder, self._log)
                self._state, size = found or (State(), 0)
                self._epoch = self._log.epoch
                self._snapshot_due = self._log.taken + max(self._segment_bytes, size // _PART)
            for records in itertools.chain(self._log.batches(), ([],)):  # of another file nothing may be left
                if self._epoch != self._log.epoch:  # another file is there
                    self._state, self._epoch = State(), self._log.epoch
                apply(self._state, records)
            return self._state
        except BaseException:
            self._state = None  # half-folded is worse than not folded
            raise

    def _snapshot_there(self) -> tuple[int, int] | None:
        try:
            found = os.stat(_snapshot_path(self.folder))
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _is_superseded(self) -> bool:
        """Whether somebody has written a snapshot since the state was read."""
        return self._snapshot_there() != self._snapshot

    def _settle(self, place: Place) -> None:
        if self.durable:
            self._log.cover(place, note=not self.read_only)

    # writing

    def _write(self, state: State, drafts: Sequence[Draft]) -> list[Event]:
        line, found = encode(state.seq, drafts)
        try:
            self._log.append_line(line, len(found))
            apply(state, found)
        except BaseException:
            self._state = None
            raise
        return [Event.of(record) for record in found]
