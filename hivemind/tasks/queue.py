"""Which waiting task is claimed next: looks into the inbox, keeps the board (spec 1, *Tasks*; `board.py` says why)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from datetime import datetime

from hivemind.fs import Lock
from hivemind.layout import Layout
from hivemind.tasks.board import Board, Header, open_board, write_board
from hivemind.tasks.dependencies import READY, Dependencies, Verdict
from hivemind.tasks.entry import Entry, folder_entry, tick_of
from hivemind.tasks.form import TextReader
from hivemind.tasks.inbox import Inbox, Look

__all__ = ["Queue"]

_HEARTBEAT_S = 5.0  # a board older than this is not trusted even if nothing seems to have changed
_SHARE = 20  # building takes at most 1/20 of the time while there is something to claim
_SHORT = 64  # a board of so few is built as often as anyone asks, and the order is exact
_GLANCE_S = 0.001  # how long one takes it that no other process has written a newer board
_SMALL = 256  # so few files are all looked at in every build
_PATIENCE_S = 2.0  # how long to wait for another process that builds the board (it may be stopped)


class Queue:
    """The waiting tasks of one hive, in order. `grace_s` is how long a task may name a dependency that is not there."""

    def __init__(
        self, layout: Layout, inbox: Inbox, reader: TextReader, *, grace_s: float, clock: Callable[[], datetime]
    ) -> None:
        self._layout = layout
        self._inbox = inbox
        self._inbox_path = os.fspath(layout.inbox)
        self._path = os.fspath(layout.task_board)
        self._reader = reader
        self._grace_s = grace_s
        self._clock = clock
        self._board: Board | None = None
        self._known: dict[str, Entry] = {}
        self._known_of = -1.0
        self._checked = -1.0

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
            self._board = None

    @property
    def restless(self) -> int:
        """How many drops the last look left alone because they are half-written or wait for something."""
        return 0 if self._board is None else self._board.header.restless

    def somebody_waits(self) -> bool:
        """Whether the newest board, whoever built it, left any drop alone."""
        board = self._current()
        return board is not None and board.header.restless > 0

    def next(self, lanes: Collection[str]) -> Entry | None:
        """The entry to try next, or None if nothing waits in these lanes (`lanes_of` an agent)."""
        now = time.monotonic()
        board = self._board if now - self._checked < _GLANCE_S else self._current()
        if board is not None and not self._stale(board, _pause(board.header), now):
            entry = board.next(lanes)
            if entry is not None or not self._stale(board, 0.0, now):  # no pause: the caller may go to sleep on it
                return entry
            board = None  # nothing left in it: worth waiting for a new one
        for waits in (board is None, True):
            board = self._rebuild(lanes, waits=waits)
            entry = board.next(lanes) if board else None
            if entry is not None or waits:
                break
        return entry

    def mislead(self) -> None:
        """The board turned out wrong (a file was changed or is being written): the next claim builds it anew."""
        if self._board is not None:
            self._board.supersede()
            self._checked = -1.0

    def verdicts(self) -> tuple[list[tuple[Entry, Verdict]], tuple[str, ...]]:
        """(every waiting task with whether it can be claimed, in order; the names of half-written drops). Read now."""
        board = self._current()
        look = self._inbox.look(self._remembered(board) if board else {}, sweep=True)
        judge = self._judge(look)
        entries = sorted(look.entries.values(), key=lambda one: one.order)
        return [(entry, judge(entry)) for entry in entries], look.unsettled

    def _current(self) -> Board | None:
        self._checked = time.monotonic()
        if self._board is not None and self._board.superseded:
            self.close()
        if self._board is None:
            self._board = open_board(self._path)
            if self._board is not None and self._board.superseded:
                self.close()
        return self._board

    def _stale(self, board: Board, pause: float, now: float) -> bool:
        """Whether the inbox may hold something else than the board says, and it is time to look."""
        header = board.header
        age = now - header.built
        if 0 <= age < pause:
            return False
        if header.restless or not 0 <= age < _HEARTBEAT_S:
            return True
        try:
            inbox_ns = os.stat(self._inbox_path).st_mtime_ns
        except FileNotFoundError:
            return True
        # A file that came within the same tick of the file system's clock as the listing would not show.
        return inbox_ns != header.inbox_ns or header.listed_ns - inbox_ns < tick_of(inbox_ns)

    def _rebuild(self, lanes: Collection[str], *, waits: bool) -> Board | None:
        """A newer board, made here or by another process; with `waits` False the old one if another is at it."""
        asked, older = time.monotonic(), self._board
        lock = Lock(self._layout.locks / "tasks-board.lock")
        while not (held := lock.acquire(wait=False)) and time.monotonic() - asked < _PATIENCE_S:
            if not waits:
                return self._board
            time.sleep(0.001)  # not a blocking lock: whoever builds may have been stopped
        try:
            board = self._current()
            begun = -1.0 if board is None else board.header.built - board.header.cost
            if board is None or (
                begun < asked and (board is older or not board.has(lanes))
            ):  # what came since is not in it
                board = self._build(board)
        finally:
            if held:
                lock.release()
        return board

    def _build(self, older: Board | None) -> Board | None:
        started = time.monotonic()
        known = self._remembered(older) if older else {}
        sweep = older is None or len(known) <= _SMALL or _due_for_sweep(older.header, started)
        look = self._inbox.look(known, sweep=sweep)
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
        now = self._clock().timestamp()
        return Dependencies(
            self._layout, look.entries.values(), now=now, grace_s=self._grace_s, failed=self._dependencies_of_failed
        ).verdict

    def _dependencies_of_failed(self, name: str) -> tuple[str, ...]:
        folder = os.fspath(self._layout.failed / name)
        try:
            return folder_entry(folder, name, os.stat(folder), self._reader).dependencies
        except OSError:
            return ()


def _due_for_sweep(header: Header, now: float) -> bool:
    """Whether each file is to be looked at again: a change within a file does not show in the list of names."""
    return not 0 <= now - header.swept < max(_HEARTBEAT_S, 2 * _SHARE * header.cost)


def _pause(header: Header) -> float:
    """How many seconds a board is taken as it is although the inbox changes: a short one not at all."""
    return 0.0 if header.entries <= _SHORT else _SHARE * header.cost
