"""The journal: an append-only log of events with one sequence number for the whole workspace (spec 3, *Journal*)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from hivemind.boundary import boundary
from hivemind.coordination.commit import Commit
from hivemind.coordination.errors import JournalDamaged
from hivemind.coordination.event import Draft, Event, Record, encode, records
from hivemind.coordination.fold import apply
from hivemind.coordination.segments import Place, offset_after, path_of, read_lines, segments, whole_lines
from hivemind.coordination.segments import damaged as damaged_line
from hivemind.coordination.snapshot import load_snapshot, save_snapshot
from hivemind.coordination.state import State
from hivemind.coordination.tail import REPAIRS, Tail, TailMoved
from hivemind.coordination.turn import Turn
from hivemind.errors import HivemindError, UserError
from hivemind.fs import create, load_record, make_folder, open_own, reached

__all__ = ["Journal"]

SEGMENT_BYTES = 8 * 1024 * 1024
_FORMAT = 1
_T = TypeVar("_T")
_NOWHERE = (0, 0, 0, 0)


class Journal:
    """The log in `folder`, made there if there is none. Cheap to make, read at the first use, safe between threads.

    `durable`: an event is on disk before its append returns, and before anything that rests on it is shown. Otherwise
    an event survives the death of its process at once, and power loss once the system has written it back.
    `segment_bytes` is for a new journal; an existing one keeps its own.

    With `looking` nothing is made, locked or written, so that a log on a read-only disk can be read; what would append
    raises UserError.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        durable: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
        looking: bool = False,
    ) -> None:
        self.durable = durable
        self.looking = looking
        self._segment_bytes = segment_bytes
        self._mutex = threading.RLock()
        self._pid = 0
        self._held = False
        self._turn: Turn | None = None
        self._commit: Commit
        self._tail: Tail
        self._state: State | None = None
        self._snapshot_due = 0
        self.folder = os.path.abspath(folder)

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
        """The same, and gives what `look` makes of the state and the events right after, before anyone else writes."""
        place = _NOWHERE
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
        place = _NOWHERE
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
            if not self._held:  # else it is as new as it can be
                self._fresh()
            assert self._state is not None
            found, place = look(self._state), self._tail.place
        self._settle(place)
        return found

    @property
    def seq(self) -> int:
        """The seq of the newest event, 0 if there is none."""
        return self.view(lambda state: state.seq)

    def read(self, since: int = 0) -> list[Event]:
        """The events after the seq `since`, oldest first. Raises JournalDamaged naming file and line."""
        return list(self.events(since))

    def events(self, since: int = 0) -> Iterator[Event]:
        """The same, one by one, for a log that is long. What is appended meanwhile may or may not come along."""
        last = self.seq
        for first, end in self._pieces(since):
            for record in self._records(first, end, since):
                if record["seq"] > last:
                    return
                yield Event.of(record)

    def repairs(self) -> list[dict[str, Any]]:
        """What was ever cut off a torn end, oldest first: `{segment, offset, after_seq, torn}`."""
        try:
            path = os.path.join(self.folder, REPAIRS)
            with boundary("record of repairs", path), open(path, encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

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

    def close(self) -> None:
        """Let go of the files. The next use opens them again."""
        with self._mutex:
            self._close_locks()
            self._drop()
            self._pid = 0

    def let_go(self) -> None:
        """Let go of the files and keep what was read, for a process that is going to fork: its children have it then.

        The next use opens the files again, in whichever process, and reads what is new.
        """
        with self._mutex:
            self._close_locks()
            if self._state is not None:
                self._tail.close()
            self._pid = 0

    def __del__(self) -> None:
        self.close()

    # opening and keeping up

    def _begin(self) -> State:
        """The newest state, with nobody else writing until `_end`."""
        if self._held:  # a second flock on the same descriptor would end the first one
            raise HivemindError("nothing can be appended to the journal while it is held")
        self._refuse_onlooker()
        self._open()
        assert self._turn is not None
        self._turn.acquire(self._fresh)  # fold while another writes
        try:
            self._fresh(locked=True)
            assert self._state is not None
            self._held = True
            return self._state
        except BaseException:
            self._turn.release()
            raise

    def _end(self) -> Place:
        """Let the others write; gives how far what was seen or written reaches."""
        self._held = False
        place = self._tail.place if self._state is not None else _NOWHERE
        assert self._turn is not None
        self._turn.release()
        return place

    def _refuse_onlooker(self) -> None:
        if self.looking:
            raise UserError("was opened to be looked at", where=self.folder, mend="open it without looking=True")

    def _open(self) -> None:
        if self._pid == os.getpid():
            return
        if self._pid:  # a fork: its parent's descriptors share the parent's locks
            self._close_locks()
        else:
            if not self.looking:
                make_folder(self.folder, durable=self.durable)
            self._segment_bytes = self._format()
        self._turn = None if self.looking else Turn(self.folder)
        self._commit = Commit(self.folder, looking=self.looking)
        self._pid = os.getpid()

    def _close_locks(self) -> None:
        if self._pid:
            if self._turn is not None:
                self._turn.close()
            self._commit.close()

    def _format(self) -> int:
        path = os.path.join(self.folder, "format.json")
        found = load_record(path, "journal", _FORMAT)
        if found is None and not self.looking:
            record = f'{{"kind":"journal","version":{_FORMAT},"segment_bytes":{self._segment_bytes}}}\n'
            try:
                create(path, record)
            except FileExistsError:
                pass  # another process was first
            found = load_record(path, "journal", _FORMAT)
        with boundary("record", path, mend="move it away: it is made again"):
            return int((found or {}).get("segment_bytes", SEGMENT_BYTES))

    def _fresh(self, *, locked: bool = False) -> None:
        """Fold what is new. Who holds the lock also repairs a torn end."""
        self._open()
        try:
            if self._state is None:
                self._load()
            else:
                apply(self._state, self._tail.pull())
            if locked and self._tail.torn:
                self._tail.repair(self._commit)
        except TailMoved:
            self._drop()
            self._fresh(locked=locked)
        except BaseException:
            self._drop()  # half-folded is worse than not folded
            raise

    def _load(self) -> None:
        found = load_snapshot(self.folder)
        if found is None:
            there = segments(self.folder)
            if there and there[0] != 1:
                raise JournalDamaged(
                    f"the log begins with event {there[0]}", where=self.folder, mend="put the older segments back"
                )
            found = State(), (0, 1, 0, 0), 0
        self._state, place, size = found
        self._tail = Tail(self.folder, self._segment_bytes, place, looking=self.looking)
        self._snapshot_due = max(self._segment_bytes, size)
        apply(self._state, self._tail.pull_all())
        self._snapshot_due -= self._tail.read

    def _drop(self) -> None:
        if self._state is not None:
            self._tail.close()
            self._state = None

    def _settle(self, place: Place) -> None:
        if not self.durable or not place[0]:
            return
        try:
            self._commit.cover(place[1], place[3])
        except OSError as error:
            raise UserError(
                f"cannot be made durable ({error.strerror}); whether its last events are there is not known",
                where=path_of(self.folder, place[1]),
                mend="look after the disk, then start again",
            ) from error

    # writing

    def _write(self, state: State, drafts: Sequence[Draft]) -> list[Event]:
        line, found = encode(state.seq, drafts)
        try:
            self._tail.push(line, len(found), self._commit)
            apply(state, found)
        except BaseException:
            self._drop()
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
        place = self._tail.place
        if not place[0]:
            return False
        self._commit.cover(place[1], place[3])
        size = save_snapshot(self.folder, self._state, place, self._tail.last_line())
        self._snapshot_due = max(self._segment_bytes, size)
        reached("journal.snapshot.done")
        return size > 0

    # reading what is past

    def _pieces(self, since: int) -> Iterator[tuple[int, int | None]]:
        """The segments with events after `since`: (first seq, first seq of the next one or None)."""
        there = segments(self.folder)
        for at, first in enumerate(there):
            following = there[at + 1] if at + 1 < len(there) else None
            if following is None or following > since + 1:
                yield first, following

    def _records(self, first: int, following: int | None, since: int) -> Iterator[Record]:
        file = open_own(path_of(self.folder, first), os.O_RDONLY)
        try:
            expected, start = first, 0
            if since >= first:
                start = offset_after(file, since)
                expected = 0
            for offset, lines in read_lines(file, start):
                if not expected:
                    expected = _first_seq(lines)
                found, used, wrong = whole_lines(lines, expected)
                yield from (record for record in found if record["seq"] > since)
                expected += len(found)
                if wrong is not None:
                    if following is None and self._beyond(expected):
                        return
                    raise damaged_line(self.folder, first, offset + used, wrong)
            if following is not None and expected and expected != following:
                raise JournalDamaged(
                    f"the log ends with event {expected - 1} there, and goes on with {following}",
                    where=path_of(self.folder, first),
                    mend="put the missing lines or segment back from a copy",
                )
        finally:
            os.close(file)

    def _beyond(self, expected: int) -> bool:
        """True if events from `expected` on are past what has been folded: a torn end, which no one was told of."""
        return self.view(lambda state: state.seq < expected)


def _first_seq(lines: bytes) -> int:
    found = records(lines[: lines.index(b"\n") + 1])
    first: int = found[0]["seq"] if found else 0
    return first
