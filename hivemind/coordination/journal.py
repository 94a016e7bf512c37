"""The journal: an append-only log of events with one sequence number for the whole workspace (spec 3, *Journal*)."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.coordination.event import Draft, Event, encode
from hivemind.coordination.fold import FOLD_VERSION, apply
from hivemind.coordination.state import State
from hivemind.errors import UserError
from hivemind.fs import LogDamaged, LogMoved, Place, Segments, reached, write

__all__ = ["Journal"]

_log = logging.getLogger(__name__)


def _snapshot_path(folder: str) -> str:
    """The version stands in the name, so that programs of two versions leave each other's snapshots alone."""
    return os.path.join(folder, f"snapshot-{FOLD_VERSION}.json")


def _write_snapshot(folder: str, state: State, place: Place, last_line: bytes) -> int:
    """Write the state at `place`; the log must be durable up to there. Returns its bytes, 0 if it was not written."""
    body = state.as_bytes()
    head = {
        "kind": "journal-snapshot",
        "version": FOLD_VERSION,
        "place": place,
        "line": hashlib.sha256(last_line).hexdigest(),
        "state": hashlib.sha256(body).hexdigest(),
    }
    content = json.dumps(head, separators=(",", ":")).encode() + b"\n" + body + b"\n"
    try:
        write(_snapshot_path(folder), content)
    except OSError as error:  # it only saves time: the log has everything
        _log.warning("journal: no snapshot in %s (%s)", folder, error.strerror)
        return 0
    reached("journal.snapshot.written")
    return len(content)


def _load_snapshot(log: Segments) -> tuple[State, Place, int] | None:
    """(state, place, size in bytes), or None if none fits the log: then the log is read from its beginning."""
    path = _snapshot_path(log.folder)
    try:
        with boundary("snapshot", path):
            first_line, _, body = read_input(path).partition(b"\n")
            head = json.loads(first_line)
            place = Place(*head["place"])
            whole = head["state"] == hashlib.sha256(body[:-1]).hexdigest()
            if whole and _stands(log, place, head["line"]):
                return State.of(body[:-1]), place, len(first_line) + 1 + len(body)
    except FileNotFoundError:
        return None
    except Unreadable as error:
        _log.warning("journal: %s; reading the log instead", error)
        return None
    _log.warning("journal: %s does not fit the log; reading the log instead", path)
    return None


def _stands(log: Segments, place: Place, digest: str) -> bool:
    """Whether the last event that the snapshot knows is where it was, in a log that may have been restored or cut."""
    try:
        file = log.open_segment(place.first)
    except FileNotFoundError:
        return False
    try:
        line = os.pread(file, place.end - place.start, place.start)
    finally:
        os.close(file)
    return hashlib.sha256(line).hexdigest() == digest


SEGMENT_BYTES = 8 * 1024 * 1024
_FORMAT = 1
_T = TypeVar("_T")


class Journal:
    """The log in `folder`, made there if there is none. Cheap to make, read at the first use, safe between threads.

    `durable`: an event is on disk before its append returns, and before anything that rests on it is shown. Otherwise
    an event survives the death of its process at once, and power loss once the system has written it back.
    `segment_bytes` is for a new journal; an existing one keeps its own.

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
        self._log = Segments(self.folder, "journal", _FORMAT, limit=segment_bytes, durable=durable, read_only=read_only)
        self._mutex = threading.RLock()
        self._state: State | None = None
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
        place = None
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
        self._snapshot_if_due()
        return found

    @contextmanager
    def guarding(self, check: Callable[[State], None]) -> Iterator[None]:
        """Hold the journal while something else is written: `check` sees the newest state and may raise.

        Be quick: nobody can write meanwhile. This journal can be looked at inside, an append raises HivemindError.
        """
        place = None
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
            if not self._log.held:  # else it is as new as it can be
                self._fresh()
            assert self._state is not None
            found, place = look(self._state), self._log.place
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
        for record in self._log.records(since, self._is_beyond):
            if record["seq"] > last:
                return
            yield Event.of(record)

    def _is_beyond(self, seq: int) -> bool:
        """Whether an event is past what has been folded: a torn end, which no one was told of."""
        return self.view(lambda state: state.seq < seq)

    def fingerprint(self) -> bytes:
        """The whole state as canonical JSON: equal logs give equal bytes on any machine."""
        return self.view(State.as_bytes)

    def snapshot(self) -> bool:
        """Write a snapshot now. Returns False if it could not be written (the log has everything).

        Raises UserError for a journal that was opened to be looked at.
        """
        self._refuse_onlooker()
        with self._mutex:
            self._fresh()
            return self._save_snapshot()

    def archive(self, before: float) -> list[str]:
        """Move segments that were last written to `before` a time (seconds since 1970) to `archive/<month>/`, once a snapshot
        says what they add up to; where they lie now. They are read all the same where something asks for what is in them."""
        with self._mutex:
            if not self.snapshot():
                return []
            assert self._state is not None
            return self._log.archive(self._log.place.first, before)

    def close(self) -> None:
        """Let go of the files. The next use opens them again."""
        with self._mutex:
            self._log.let_go()
            self._state = None

    def let_go(self) -> None:
        """Let go of the files and keep what was read, for a process that is going to fork: its children have it then.

        The next use opens the files again, in whichever process, and reads what is new.
        """
        with self._mutex:
            self._log.let_go()

    def __del__(self) -> None:
        self.close()

    # keeping up

    def _begin(self) -> State:
        """The newest state, with nobody else writing until `_end`."""
        self._refuse_onlooker()
        self._log.open()
        self._log.acquire(self._fresh)  # fold while another writes
        try:
            self._fresh()
            assert self._state is not None
            return self._state
        except BaseException:
            self._log.release()
            raise

    def _end(self) -> Place | None:
        """Let the others write; returns how far what was seen or written reaches."""
        self._log.release()
        return None if self._state is None else self._log.place

    def _refuse_onlooker(self) -> None:
        if self.read_only:
            raise UserError("was opened to be looked at", where=self.folder, mend="open it to be changed: Hive.open")

    def _fresh(self) -> None:
        """Fold what is new. Who holds the lock also mends a torn end."""
        self._log.open()
        try:
            state = self._state
            if state is None:
                state = self._load()
            else:
                apply(state, self._log.pull())
            while self._log.held and self._log.torn and not self._log.mend():
                apply(state, self._log.pull())
        except LogMoved:
            self._state = None
            self._fresh()
        except BaseException:
            self._state = None  # half-folded is worse than not folded
            raise

    def _load(self) -> State:
        found = _load_snapshot(self._log)
        if found is None:
            there = self._log.all_segments()
            if there and there[0] != 1:
                raise LogDamaged(
                    f"the log begins with event {there[0]}", where=self.folder, mend="put the older segments back"
                )
            found = State(), Place(0, 1, 0, 0), 0
        self._state, place, size = found
        self._log.go_to(place)
        self._snapshot_due = max(self._log.limit, size)
        apply(self._state, self._log.pull_all())
        self._snapshot_due -= self._log.taken
        return self._state

    def _settle(self, place: Place | None) -> None:
        if self.durable and place is not None and place.seq:
            self._log.cover(place)

    # writing

    def _write(self, state: State, drafts: Sequence[Draft]) -> list[Event]:
        line, found = encode(state.seq, drafts)
        try:
            self._log.push(line, len(found))
            apply(state, found)
        except BaseException:
            self._state = None
            raise
        self._snapshot_due -= len(line)
        return [Event.of(record) for record in found]

    def _snapshot_if_due(self) -> None:
        if self._snapshot_due <= 0:
            with self._mutex:
                if self._snapshot_due <= 0 and self._state is not None:
                    self._save_snapshot()

    def _save_snapshot(self) -> bool:
        assert self._state is not None
        place = self._log.place
        if not place.seq:
            return False
        self._log.cover(place)
        size = _write_snapshot(self.folder, self._state, place, self._log.last_line())
        self._snapshot_due = max(self._log.limit, size)
        reached("journal.snapshot.done")
        return size > 0
