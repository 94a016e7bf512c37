"""Which waiting task is claimed next: looks into the inbox, keeps the board (spec 1, *Tasks*; `board.py` says why)."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from hivemind.errors import UserError
from hivemind.fs import Lock
from hivemind.layout import Layout
from hivemind.tasks.board import Board, Header, lanes_of, open_board, write_board
from hivemind.tasks.dependencies import READY, Dependencies, Verdict
from hivemind.tasks.drops import is_task_name, newest_change, read_regular, text_name
from hivemind.tasks.entry import Entry, entry_of, read_entry
from hivemind.tasks.records import is_made_whole
from hivemind.tasks.task import TaskProblem

__all__ = ["Look", "Queue", "Settled"]

Settled = Callable[[str | int, float, datetime], bool]

_HEARTBEAT_S = 5.0  # a board older than this is not trusted even if nothing seems to have changed
_SHARE = 20  # building takes at most 1/20 of the time while there is something to claim
_FREE_S = 0.0005  # a build that takes no longer than this is done as often as anyone asks
_SMALL = 256  # so few files are all looked at in every build
_PATIENCE_S = 2.0  # how long to wait for another process that builds the board (it may be stopped)


@dataclass(frozen=True, slots=True)
class Look:
    """One look into the inbox: its tasks, those of them that can be claimed or wait, and how many are half-written."""

    inbox_ns: int
    listed_ns: int
    swept: bool
    entries: dict[str, Entry]
    unsettled: tuple[str, ...]


class Queue:
    """The waiting tasks of one hive. `settle_ms` and `grace_s` are explained in README.md."""

    def __init__(
        self,
        layout: Layout,
        *,
        max_bytes: int,
        settle_ms: float,
        grace_s: float,
        clock: Callable[[], datetime],
        settled: Settled,
    ) -> None:
        self._layout = layout
        self._inbox = os.fspath(layout.inbox)
        self._path = os.fspath(layout.task_board)
        self._max_bytes = max_bytes
        self._settle_ms = settle_ms
        self._grace_s = grace_s
        self._clock = clock
        self._settled = settled
        self._board: Board | None = None
        self._known: dict[str, Entry] = {}
        self._known_of = -1.0

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
            self._board = None

    def next(self, agent: str, role: str | None) -> Entry | None:
        """The entry to try next, or None if nothing waits that this agent may claim."""
        lanes = lanes_of(agent, role)
        board = self._current()
        if board is None or self._stale(board, _pause(board.header.cost)):
            board = self._rebuild(waits=board is None)
        entry = board.next(lanes) if board else None
        if entry is None and board is not None and self._stale(board, board.header.cost):
            board = self._rebuild(waits=True)
            entry = board.next(lanes) if board else None
        return entry

    def mislead(self) -> None:
        """The board turned out wrong (a file was changed or is being written): the next claim builds it anew."""
        if self._board is not None:
            self._board.supersede()

    def verdicts(self) -> tuple[list[tuple[Entry, Verdict]], tuple[str, ...]]:
        """(every waiting task with whether it can be claimed, in order; the names of half-written drops). Read now."""
        board = self._current()
        look = self.look(self._remembered(board) if board else {}, sweep=True)
        judge = self._judge(look)
        entries = sorted(look.entries.values(), key=lambda one: one.order)
        return [(entry, judge(entry)) for entry in entries], look.unsettled

    def look(self, known: dict[str, Entry], *, sweep: bool) -> Look:
        """Look into the inbox; `known` entries whose file is the same are not read again.

        Without `sweep` a file with the same name and inode number counts as the same, and is not even looked at.
        """
        listed = time.time_ns()
        try:
            inbox_ns = os.stat(self._inbox).st_mtime_ns
            listing = os.scandir(self._inbox)
        except FileNotFoundError:
            raise UserError("is gone", where=self._inbox, mend="make it again with: hivemind init") from None
        entries: dict[str, Entry] = {}
        unsettled: list[str] = []
        with listing:
            for item in listing:
                name = item.name
                entry = known.get(name)
                if entry is not None and not sweep and entry.ino == item.inode():
                    entries[name] = entry
                elif is_task_name(name):
                    found = self._read(item, entry)
                    if found is None:
                        unsettled.append(name)
                    else:
                        entries[name] = found
        return Look(inbox_ns, listed, sweep, entries, tuple(unsettled))

    def _read(self, item: os.DirEntry[str], known: Entry | None) -> Entry | None:
        """The entry of one drop; None if it is gone or half-written."""
        try:
            found = item.stat(follow_symlinks=False)
            if known is not None and known[1:4] == (found.st_ino, found.st_mtime_ns, found.st_size):
                return known
            if not self.whole(item.path, found):
                return None
            return read_entry(item.path, item.name, found, item.is_dir(follow_symlinks=False), self._max_bytes)
        except FileNotFoundError:
            return None

    def whole(self, path: str, found: os.stat_result) -> bool:
        """Whether a drop is all there: written to the end, or at rest (README.md, *Half-written*)."""
        if stat.S_ISDIR(found.st_mode):
            return self._folder_whole(path, self._clock())
        return not stat.S_ISREG(found.st_mode) or self.written(path, found)

    def written(self, file: str | int, found: os.stat_result) -> bool:
        """Whether a file (its path, or open) is written to the end."""
        now = self._clock()
        if found.st_size == 0 and 0 <= now.timestamp() - found.st_ctime < self._grace_s:
            return False  # `touch`, and then the editor: an empty file is given more time
        return self._settled(file, self._settle_ms, now)

    def _folder_whole(self, path: str, now: datetime) -> bool:
        if is_made_whole(path):
            return True
        newest, files = newest_change(path)
        age = now.timestamp() - newest
        if age < 0:  # a clock set back: see whether it stands still
            time.sleep(self._settle_ms / 1000)
            if newest_change(path)[0] != newest:
                return False
        elif age < self._settle_ms / 1000:
            return False
        return all(self._settled(file, self._settle_ms, now) for file in files)

    def _current(self) -> Board | None:
        if self._board is not None and self._board.superseded:
            self.close()
        if self._board is None:
            self._board = open_board(self._path)
            if self._board is not None and self._board.superseded:
                self.close()
        return self._board

    def _stale(self, board: Board, pause: float) -> bool:
        """Whether the inbox may hold something else than the board says, and it is time to look."""
        header = board.header
        age = time.monotonic() - header.built
        if 0 <= age < pause:
            return False
        if header.restless or not 0 <= age < _HEARTBEAT_S:
            return True
        try:
            inbox_ns = os.stat(self._inbox).st_mtime_ns
        except FileNotFoundError:
            return True
        # A file that came within the same tick of the file system's clock as the listing would not show.
        tick = 2_000_000_000 if inbox_ns % 1_000_000_000 == 0 else 20_000_000
        return inbox_ns != header.inbox_ns or header.listed_ns - inbox_ns < tick

    def _rebuild(self, *, waits: bool) -> Board | None:
        """A newer board, made here or by another process; with `waits` False the old one if another is at it."""
        asked = time.monotonic()
        lock = Lock(self._layout.locks / "tasks-board.lock")
        while not (held := lock.acquire(wait=False)) and time.monotonic() - asked < _PATIENCE_S:
            if not waits:
                return self._board
            time.sleep(0.001)  # not a blocking lock: whoever builds may have been stopped
        try:
            board = self._current()
            if board is None or not asked <= board.header.built:
                board = self._build(board)
        finally:
            if held:
                lock.release()
        return board

    def _build(self, older: Board | None) -> Board | None:
        started = time.monotonic()
        known = self._remembered(older) if older else {}
        sweep = older is None or len(known) <= _SMALL or _due_for_sweep(older.header, started)
        look = self.look(known, sweep=sweep)
        judge = self._judge(look)
        ready: list[Entry] = []
        waiting: list[Entry] = []
        for entry in look.entries.values():
            verdict = judge(entry) if entry.dependencies else READY
            if verdict.kind == "waits":
                waiting.append(entry)
            else:
                ready.append(entry._replace(doom=verdict.why) if verdict.kind == "fails" else entry)
        built = time.monotonic()
        header = Header(
            inbox_ns=look.inbox_ns,
            listed_ns=look.listed_ns,
            built=built,
            swept=older.header.swept if older and not sweep else started,
            cost=built - started,
            restless=len(waiting) + len(look.unsettled),
        )
        self.close()
        self._board = write_board(self._path, header, ready, waiting)
        self._known, self._known_of = look.entries, built
        return self._board

    def _remembered(self, board: Board) -> dict[str, Entry]:
        if self._known_of != board.header.built:
            self._known = {entry.name: entry._replace(doom=None) for entry in board.entries()}
            self._known_of = board.header.built
        return self._known

    def _judge(self, look: Look) -> Callable[[Entry], Verdict]:
        by_id = {entry.id: entry for entry in look.entries.values()}
        now = self._clock().timestamp()
        return Dependencies(
            self._layout, by_id, now=now, grace_s=self._grace_s, failed=self._dependencies_of_failed
        ).verdict

    def _dependencies_of_failed(self, name: str) -> tuple[str, ...]:
        folder = self._layout.failed / name
        try:
            text = text_name(os.fspath(folder), name)
            raw, found = read_regular(os.path.join(folder, text), text, self._max_bytes)
            return entry_of((name, found.st_ino, 0, 0, True), raw, text).dependencies
        except (TaskProblem, FileNotFoundError, NotADirectoryError):
            return ()  # it failed because of its text, and depends on nothing that can be known


def _due_for_sweep(header: Header, now: float) -> bool:
    """Whether each file is to be looked at again: a change within a file does not show in the list of names."""
    return not 0 <= now - header.swept < max(_HEARTBEAT_S, 2 * _SHARE * header.cost)


def _pause(cost: float) -> float:
    """How long a board is taken as it is although the inbox changes: seconds."""
    return _SHARE * max(0.0, cost - _FREE_S)
