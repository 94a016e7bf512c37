"""The order in which waiting tasks are claimed, computed once and shared by all processes of the hive.

`.hive/tasks.queue` is only a cache: a claim is a rename in the inbox. The queue tells an agent which drop to try next.
A hundred agents then need not read a hundred thousand drops each, and hardly ever try the same drop
(docs/adr/0002-claims-are-renames.md has the figures). The file may be deleted, damaged or out of date at any time; it
is then rebuilt from the inbox.

A partition holds the drops for one `assignee/role[@HIVE]`. Layout: a line of JSON (`_Header`), 8 bytes for each partition
(the offset of its next drop), and the drops, one line of JSON each: those of each partition in order, then the waiting
ones. The file is written completely and renamed into place. Later only the 8 bytes change. Two processes that read these at
the same time both try the same drop, and the rename decides. If an offset moves backwards, the drops in between are gone,
and each costs a failed rename. A queue file with the time 0 is out of date.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import asdict, field

from hivemind.boundary import Unreadable, boundary
from hivemind.frozen import frozen
from hivemind.fs import Lock, is_timestamp_reliable, set_aside, write
from hivemind.tasks.dependencies import Dependencies
from hivemind.tasks.drop import DropReader
from hivemind.tasks.ids import is_task_name
from hivemind.tasks.queue import QueuedDrop
from hivemind.tasks.settings import Settings

_VERSION = 5
_CURSOR = struct.Struct("<Q")
_CHUNK = 8192
_HEARTBEAT_S = 5.0  # an older queue is checked even if the inbox seems unchanged
_SHARE = 10  # building takes at most 1/10 of the time
_SHORT = 64  # a queue of so few drops is always rebuilt: its order is exact
_PATIENCE_S = 2.0  # a process that builds the queue without progress for so long may be stopped
_GAZE = 0.05  # a waiting process looks again after this fraction of its wait
_SIGN_OF_LIFE = 1000  # the builder shows progress after so many drops
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode  # half the time of json.loads for a short line
_DEFAULTS = QueuedDrop("", 0, 0, 0, False)[5:]


@frozen
class _Header:
    """The state of the inbox for which a queue was built.

    `inbox_ns` is the inbox's modification time, `listed_ns` the wall clock when the inbox was listed. `started` and
    `built` are monotonic times in seconds. `restless` counts the half-written and waiting drops, which may become
    claimable without a change of the inbox. `partitions` maps a partition to the offsets of its first drop and of its end,
    counted from the end of the 8-byte fields. `size` is the size of all drops in bytes.
    """

    version: int
    inbox_ns: int
    listed_ns: int
    started: float
    built: float
    restless: int
    entries: int
    size: int
    partitions: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def pause(self) -> float:
        """The seconds for which the queue is used even if the inbox changes: 0 for a short queue."""
        return 0.0 if self.entries <= _SHORT else _SHARE * (self.built - self.started)


class _Queue:
    """An open queue file, for one thread. Its methods raise Unreadable if the file is damaged."""

    def __init__(self, path: str) -> None:
        self._file = -1
        self._path = path
        with boundary("cache", path):
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            file_stat = os.fstat(self._file)
            self.ino = file_stat.st_ino
            first = self._line(0, file_stat.st_size)
            self.header = _Header(**json.loads(first))
            self._cursors = {
                partition: len(first) + _CURSOR.size * at for at, partition in enumerate(self.header.partitions)
            }
            self._start = len(first) + _CURSOR.size * len(self._cursors)
            self._passed = {partition: int(start) for partition, (start, _) in self.header.partitions.items()}
            if self.header.version != _VERSION or file_stat.st_size != self._start + self.header.size:
                raise ValueError("version or size")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close

    def _line(self, at: int, end: int) -> bytes:
        size = _CHUNK
        while b"\n" not in (chunk := os.pread(self._file, min(size, end - at), at)):
            if size >= end - at:
                raise ValueError("a line without an end")
            size *= 4
        return chunk[: chunk.index(b"\n") + 1]

    def next(self, partitions: Container[str]) -> QueuedDrop | None:
        """Return the first drop of these partitions that no process has tried, and mark it as tried. Return None if there is
        none.
        """
        with boundary("cache", self._path):
            heads = [
                head
                for partition in self._cursors
                if partition in partitions and (head := self._head(partition)) is not None
            ]
            if not heads:
                return None
            entry, partition, next_offset = min(heads, key=lambda head: head[0].order)
            self._passed[partition] = next_offset
            os.pwrite(self._file, _CURSOR.pack(next_offset), self._cursors[partition])
            return entry

    def _head(self, partition: str) -> tuple[QueuedDrop, str, int] | None:
        """Return the next drop of a partition, the partition, and the offset of the drop after it. Return None if no drop is
        left.
        """
        (cursor,) = _CURSOR.unpack(os.pread(self._file, _CURSOR.size, self._cursors[partition]))
        at, end = max(cursor, self._passed[partition]), self.header.partitions[partition][1]
        if at >= end:
            return None
        line = self._line(self._start + at, self._start + end)
        return _entry(_decode(line.decode())[0]), partition, at + len(line)

    def entries(self) -> dict[str, QueuedDrop]:
        """Return all drops by name, including tried and waiting ones."""
        with boundary("cache", self._path):
            lines = os.pread(self._file, self.header.size, self._start).splitlines()
            rows = json.loads(b"[" + b",".join(lines) + b"]")
            return {row[0]: _entry(row)._replace(dependency_problem=None) for row in rows}


def _entry(row: list[object]) -> QueuedDrop:
    queued = QueuedDrop(*row)  # type: ignore[arg-type]
    if not (isinstance(queued.name, str) and type(queued.priority) is type(queued.mtime_ns) is int):
        raise TypeError("an entry")
    return queued if queued.dependencies == () else queued._replace(dependencies=tuple(queued.dependencies))


def _lines(queued_drops: list[QueuedDrop]) -> bytes:
    """Return a line for each drop. A drop with defaults in all fields after the fifth gets a line of only five fields."""
    rows = (queued[:5] if queued[5:] == _DEFAULTS else queued for queued in queued_drops)
    return "".join([_encode(row) + "\n" for row in rows]).encode()


class QueueCache:
    def __init__(self, settings: Settings, reader: DropReader) -> None:
        self._settings = settings
        self._reader = reader
        self._inbox_path = os.fspath(settings.layout.inbox)
        self._path = os.fspath(settings.layout.task_queue)
        self._queue: _Queue | None = None
        self._known: tuple[float, dict[str, QueuedDrop]] = (0.0, {})  # of the queue built at that time
        self._outdated = False
        self._sound = 0.0  # when the inbox last agreed with the queue

    def close(self) -> None:
        self._sound = 0.0
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    @property
    def recheck_count(self) -> int:
        """The number of half-written drops and drops with unmet dependencies in the newest queue."""
        queue = self._current()
        return 0 if queue is None else queue.header.restless

    def next(self, partitions: Container[str]) -> QueuedDrop | None:
        """Return the drop to try next, or None if there is none in `partitions`. `partitions_of` returns an agent's
        partitions.
        """
        try:
            asked_at = time.monotonic()
            queue = self._current()
            if queue is None or self._is_stale(queue, asked_at, pause=queue.header.pause):
                queue = self._rebuilt(queue, waits=queue is None)
            queued = None if queue is None else queue.next(partitions)
            # The caller may sleep if there is none, so it waits for a queue that was begun since.
            while (
                not queued and queue and queue.header.started < asked_at and self._is_stale(queue, asked_at, partitions)
            ):
                queue = self._rebuilt(queue, waits=True)
                queued = None if queue is None else queue.next(partitions)
            return queued
        except Unreadable:
            self.close()
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            return self.next(partitions)

    def read_drops(self) -> Mapping[str, QueuedDrop]:
        """Return the drops of the newest queue by name. A drop is valid while its file has not changed
        (`QueuedDrop.is_from`)."""
        with suppress(Unreadable):
            return self._remembered(self._current())
        return {}

    def forget(self, name: str) -> None:
        """Forget what this process knows about a drop, so it reads the drop again when it next builds a queue."""
        with suppress(Unreadable):
            self._remembered(self._queue).pop(name, None)

    def invalidate(self) -> None:
        """Mark the queue as out of date, after a drop has changed. The next claim rebuilds it."""
        with suppress(FileNotFoundError):
            os.utime(self._path, ns=(0, 0))

    def _current(self) -> _Queue | None:
        """Open the newest queue and return it, or None if it is missing or unreadable."""
        try:
            file_stat = os.stat(self._path)
            if self._queue is not None and self._queue.ino != file_stat.st_ino:
                self.close()
            if self._queue is None:
                self._queue = _Queue(self._path)
            self._outdated = file_stat.st_mtime_ns == 0
        except (Unreadable, OSError):  # missing or not writable: it is only a cache
            self.close()
        return self._queue

    def _is_stale(self, queue: _Queue, now: float, passed: Container[str] = (), pause: float = 0.0) -> bool:
        """Return True if the inbox may differ from the queue. `passed` are the partitions in which every drop was tried.

        Within `pause` seconds of the last check, return False without a check.
        """
        header = queue.header
        age = now - header.built
        if self._outdated:
            return True
        if 0 <= now - max(header.built, self._sound) < pause:
            return False
        if header.restless or not 0 <= age < _HEARTBEAT_S:
            return True
        try:
            inbox_ns = os.stat(self._inbox_path).st_mtime_ns
        except FileNotFoundError:
            return True
        # A file that was dropped in the same tick of the file system's clock as the listing would not show. Nor would a
        # drop that a process tried, if the process was killed before its rename.
        is_unchanged = inbox_ns == header.inbox_ns and is_timestamp_reliable(inbox_ns, header.listed_ns)
        if is_unchanged and not any(partition in passed for partition in header.partitions):
            return False
        if not self._is_sound(queue, passed):
            return True
        self._sound = now
        return False

    def _is_sound(self, queue: _Queue, passed: Container[str]) -> bool:
        """Check that the queue contains each drop of the inbox. If so, only claims have changed the inbox since it was built.

        A drop of a partition in `passed` counts as missing: a process tried it, and was killed or is not done yet.
        """
        known_drops = self._remembered(queue)
        with os.scandir(self._inbox_path) as names:
            for dir_entry in names:
                queued = known_drops.get(dir_entry.name)
                if queued is None and not is_task_name(dir_entry.name):
                    continue
                try:
                    if queued is None or queued.partition in passed:
                        return False
                    if not queued.is_from(dir_entry.stat(follow_symlinks=False)):
                        return False
                except FileNotFoundError:
                    continue
        return True

    def _rebuilt(self, older: _Queue | None, *, waits: bool) -> _Queue | None:
        """Return a queue newer than `older`, or None if it cannot be read.

        If another process is building one and `waits` is False, return `older` at once.
        """
        began = seen = time.monotonic()
        lock, sign = Lock(self._settings.layout.locks / "tasks-queue.lock"), 0
        while not (has_lock := lock.acquire(wait=False)) and (now := time.monotonic()) - seen < _PATIENCE_S:
            if not waits:
                return older
            # Not a blocking lock: the builder may be stopped. A hundred processes that look too often would slow it.
            time.sleep(0.001 + _GAZE * (now - began))
            if (latest := os.stat(lock.path).st_mtime_ns) != sign:
                seen, sign = time.monotonic(), latest
        try:
            queue = self._current()
            if queue is None or queue is older:
                queue = self._build(queue, lock)
        finally:
            if has_lock:
                lock.release()
        return queue

    def _build(self, older: _Queue | None, lock: Lock) -> _Queue | None:
        started_at, listed_ns = time.monotonic(), time.time_ns()
        with suppress(FileNotFoundError):  # reported by the reader
            inbox_ns = os.stat(self._inbox_path).st_mtime_ns
        known_drops: dict[str, QueuedDrop] = {}
        count = 0
        for count, drop in enumerate(self._reader.drops(self._remembered(older)), 1):
            if drop.queued is not None:
                known_drops[drop.name] = drop.queued
            if count % _SIGN_OF_LIFE == 0:
                os.utime(lock.path)
        dependencies = Dependencies(self._settings, self._reader, known_drops.values())
        partitions: dict[str, list[QueuedDrop]] = {}
        waiting_drops: list[QueuedDrop] = []
        for queued in sorted(known_drops.values(), key=lambda queued_drop: queued_drop.order):
            verdict = dependencies.verdict(queued)
            if verdict.kind == "waits":
                waiting_drops.append(queued)
            else:
                tried = queued if verdict.kind == "ready" else queued._replace(dependency_problem=verdict.reason)
                partitions.setdefault(tried.partition, []).append(tried)
        parts, spans, size = [], {}, 0
        for partition, queued_drops in partitions.items():
            parts.append(_lines(queued_drops))
            spans[partition] = (size, size := size + len(parts[-1]))
        body = b"".join((*parts, _lines(waiting_drops)))
        built, restless = time.monotonic(), len(waiting_drops) + count - len(known_drops)
        header = _Header(_VERSION, inbox_ns, listed_ns, started_at, built, restless, len(known_drops), len(body), spans)
        cursors = b"".join(_CURSOR.pack(start) for start, _ in spans.values())
        if os.path.isdir(self._path):
            set_aside(self._path)
        write(self._path, _encode(asdict(header)).encode() + b"\n" + cursors + body, durable=False)
        self._known = (built, known_drops)
        return self._current()

    def _remembered(self, queue: _Queue | None) -> dict[str, QueuedDrop]:
        """Return the drops of a queue by name, {} without a queue. If another process built the queue, they are read from its
        file.
        """
        if queue is None:
            return {}
        if self._known[0] != queue.header.built:
            self._known = (queue.header.built, queue.entries())
        return self._known[1]
