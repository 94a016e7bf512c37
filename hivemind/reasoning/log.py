"""The append-only log of a task's graph: `graph.jsonl`, one JSON line per change (README.md, *graph.jsonl*).

A reader takes no lock and sees whole lines only. Only who holds the lock appends, and only it repairs a torn tail.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import Lock, fsync_folder, reached

__all__ = ["LOG_NAME", "TORN_NAME", "VERSION", "GraphLog"]

LOG_NAME = "graph.jsonl"
TORN_NAME = "graph.jsonl.torn"
VERSION = 1
_HEADER = {"kind": "graph-log", "version": VERSION}
_log = logging.getLogger(__name__)


class GraphLog:
    """Reads what is new and appends. `seq` is the number of the last line read; `epoch` rises when the file was replaced.

    `durable`: a line is on the disk when `append` returns; `lazy` as well: when a line `now` is, or after `sync`.
    """

    def __init__(self, folder: Path, *, durable: bool = True, lazy: bool = False) -> None:
        self.folder = folder
        self.path = folder / LOG_NAME
        self.durable = durable
        self._lazy = lazy
        # What a process before this one wrote, and the file's name, may not be on the disk either.
        self._unsynced = self._unnamed = lazy
        self.seq = 0
        self.epoch = 0
        self._lines = 0  # complete lines read, the header among them
        self._offset = 0
        self._identity: tuple[int, int] | None = None
        self._lock = Lock(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the task's lock, which is a lock on the log itself. Raises UserError if the task's folder is gone."""
        try:
            self._take()
            yield
        finally:
            self._lock.release()

    def _take(self) -> None:
        try:
            self._lock.acquire()
            while not self._lock.is_current():  # replaced by hand, or moved with the task, while we waited
                self._lock.release()
                self._lock.acquire()
        except FileNotFoundError:
            raise self._gone() from None
        except OSError as error:
            raise UserError(f"cannot be locked ({error.strerror})", where=self.path) from None

    def read(self) -> list[dict[str, Any]]:
        """The records that are new since the last call, oldest first; all of them where the file was replaced.

        Costs a stat if nothing is new. Raises UserError naming the line that is damaged, UnknownVersion for another
        version; the file stays as it is.
        """
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            if self._identity is not None:
                self.rewind()
            if not self.folder.is_dir():
                raise self._gone() from None
            return []
        identity = (found.st_dev, found.st_ino)
        if self._identity not in (None, identity) or found.st_size < self._offset:
            self.rewind()
        self._identity = identity
        if found.st_size == self._offset:
            return []
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            new = file.read()
        try:
            return list(self._parse(new))
        except UserError:
            self.rewind()
            raise

    def _gone(self) -> UserError:
        return UserError("the task's folder is gone", where=self.folder, mend="open the task where it is now")

    def rewind(self) -> None:
        """Read everything anew at the next look."""
        self.epoch += 1
        self.seq = self._lines = self._offset = 0
        self._identity = None

    def _parse(self, new: bytes) -> Iterator[dict[str, Any]]:
        lines = new.split(b"\n")
        unfinished = lines.pop()
        for at, line in enumerate(lines):
            record = _decode(line)
            if record is None:
                if at == len(lines) - 1 and not unfinished:
                    return  # a torn tail that happens to end in a line break; who has the lock repairs it
                raise self._damaged("is no JSON object")
            if self._lines == 0:
                self._check_header(record)
            else:
                if record.get("seq") != self.seq + 1:
                    raise self._damaged(f"has seq {record.get('seq')!r} where {self.seq + 1} was due")
                self.seq += 1
            self._lines += 1
            self._offset += len(line) + 1
            if self._lines > 1:
                yield record

    def _damaged(self, what: str) -> UserError:
        return UserError(
            what, where=f"{self.path}:{self._lines + 1}", mend="restore the line, or cut the file before it and reopen"
        )

    def _check_header(self, record: dict[str, Any]) -> None:
        if record.get("kind") != _HEADER["kind"]:
            raise UserError("is no log of a graph", where=self.path, mend="move the file away")
        if record.get("version") != VERSION:
            raise UnknownVersion(
                f"is a graph log of version {record.get('version')}, this program knows version {VERSION}",
                where=self.path,
                mend="use the hivemind that wrote it, or move the file away",
            )

    def repair(self) -> list[dict[str, Any]]:
        """Under the lock, after `read`: set a torn tail aside; gives the record of a tail that lacks its line break only."""
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return []
        if size == self._offset:
            return []
        with open(self.path, "r+b") as file:
            file.seek(self._offset)
            tail = file.read()
            record = _decode(tail) if self._lines else None
            if record is not None and record.get("seq") == self.seq + 1:
                file.write(b"\n")
            else:
                with open(self.folder / TORN_NAME, "ab") as aside:
                    aside.write(tail + b"\n")
                    aside.flush()
                    os.fsync(aside.fileno())
                reached("graph.repair.aside")
                file.truncate(self._offset)
                _log.warning("%s: a torn last line of %d bytes was moved to %s", self.path, len(tail), TORN_NAME)
            file.flush()
            os.fsync(file.fileno())
        return self.read()

    def append(
        self, record: dict[str, Any], guard: AbstractContextManager[object] | None = None, *, now: bool = False
    ) -> int:
        """Write one line, under the lock, with nothing unread; gives its seq. Raises UserError, and then nothing is there.

        `guard` is entered for the moment in which the line comes to stand in the file, and let go before the disk is
        waited for; what it raises is raised.
        """
        lines = [_HEADER] if self._lines == 0 else []
        lines.append({"seq": self.seq + 1, **record})
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
        sync = self.durable and (now or not self._lazy)
        self._write(text.encode("utf-8", "surrogatepass"), guard or nullcontext(), sync)
        self._unsynced, self._unnamed = not sync, self._unnamed or len(lines) > 1
        if sync:
            self._name()
        self._lines += len(lines)
        self.seq += 1
        return self.seq

    def sync(self) -> None:
        """See to it that every line is on the disk, before something else there rests on them. Raises UserError."""
        if not (self.durable and self._unsynced):
            return
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(file)
            finally:
                os.close(file)
            self._name()
        except FileNotFoundError:
            if not self.folder.is_dir():
                raise self._gone() from None
            return  # nothing was written yet
        except OSError as error:
            mend = "look after the disk, then start again"
            raise UserError(f"cannot be made durable ({error.strerror})", where=self.path, mend=mend) from None
        self._unsynced = False

    def _name(self) -> None:
        """Make the file's name durable."""
        if self._unnamed:
            fsync_folder(self.folder)
            self._unnamed = False

    def _write(self, content: bytes, guard: AbstractContextManager[object], sync: bool) -> None:
        if (
            not self._lock.is_current()
        ):  # moved with its task since it was locked: a line must not land in its successor
            raise self._gone()
        try:
            self._write_whole(self._lock.file, content, guard, sync)
            found = os.fstat(self._lock.file)
        except OSError as error:
            mend = "nothing was written; make room, or open the task where it is now"
            raise UserError(f"cannot be written ({error.strerror})", where=self.path, mend=mend) from None
        self._identity = (found.st_dev, found.st_ino)
        self._offset += len(content)

    def _write_whole(self, file: int, content: bytes, guard: AbstractContextManager[object], sync: bool) -> None:
        try:
            with guard:
                at, view = self._offset, memoryview(content)
                while view:
                    written = os.pwrite(file, view, at)
                    at, view = at + written, view[written:]
                reached("graph.append.written")
            if sync:
                os.fdatasync(file)
        except BaseException:
            os.ftruncate(file, self._offset)
            raise
        reached("graph.append.synced")


def _decode(line: bytes) -> dict[str, Any] | None:
    with suppress(Unreadable), boundary("line of a graph's log"):
        record = json.loads(line)
        return record if isinstance(record, dict) else None
    return None
