"""Looking into the inbox: which drops are there, whole, and what must be known of them to put them in order."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from hivemind.errors import UserError
from hivemind.layout import Layout
from hivemind.tasks.drops import UNTRUSTED, is_task_name, newest_change, read_open
from hivemind.tasks.entry import Entry, entry_of, failing_entry, folder_entry
from hivemind.tasks.form import TextReader, is_yaml
from hivemind.tasks.record import is_made_whole
from hivemind.tasks.task import TaskProblem

__all__ = ["Inbox", "Look", "Settled"]

Settled = Callable[[str | int, float, datetime], bool]
_HEAD = 4096


@dataclass(frozen=True, slots=True)
class Look:
    """One look into the inbox: its whole drops by name, and the names of those that are being written.

    `inbox_ns` is the folder's modification time before it was listed, `listed_ns` the wall clock then.
    """

    inbox_ns: int
    listed_ns: int
    entries: dict[str, Entry]
    unsettled: tuple[str, ...]


class Inbox:
    """The inbox of one hive. `settle_ms`, `grace_s`: see README.md, *Half-written*. `settled` is `fs.is_settled`."""

    def __init__(
        self,
        layout: Layout,
        reader: TextReader,
        *,
        settle_ms: float,
        grace_s: float,
        clock: Callable[[], datetime],
        settled: Settled,
    ) -> None:
        self._path = os.fspath(layout.inbox)
        self._reader = reader
        self._settle_ms = settle_ms
        self._grace_s = grace_s
        self._clock = clock
        self._settled = settled

    def look(self, known: dict[str, Entry], *, sweep: bool) -> Look:
        """Look now; `known` entries whose file is the same are not read again. Raises UserError if there is no inbox.

        Without `sweep` a drop with the same name and inode number counts as the same, and is not even looked at.
        """
        listed = time.time_ns()
        try:
            inbox_ns = os.stat(self._path).st_mtime_ns
            listing = os.scandir(self._path)
        except FileNotFoundError:
            raise UserError("is gone", where=self._path, mend="make it again with: hivemind init") from None
        entries: dict[str, Entry] = {}
        unsettled: list[str] = []
        with listing:
            for item in listing:
                name = item.name
                entry = known.get(name)
                if entry is not None and not sweep and entry.ino == item.inode():
                    entries[name] = entry
                elif is_task_name(name):
                    found = self._known(item, entry) or self._entry(item)
                    if found is None:
                        unsettled.append(name)
                    else:
                        entries[name] = found
        return Look(inbox_ns, listed, entries, tuple(unsettled))

    def _known(self, item: os.DirEntry[str], known: Entry | None) -> Entry | None:
        try:
            return known if known is not None and known.of(item.stat(follow_symlinks=False)) else None
        except FileNotFoundError:
            return None

    def _entry(self, item: os.DirEntry[str]) -> Entry | None:
        if not item.is_file(follow_symlinks=False):
            return self.entry(item.path)
        try:
            return self._file(item.path, item.name)
        except OSError:
            return self.entry(item.path)  # gone, or something else by now

    def entry(self, path: str, *, whole: bool = False) -> Entry | None:
        """The entry of one drop, in the inbox or on its way out of it; None if it is gone or half-written.

        `whole` says that a folder is known to be whole.
        """
        name = os.path.basename(path)
        try:
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode):
                return self._file(path, name)
            if not stat.S_ISDIR(found.st_mode):
                return failing_entry(name, found)
            return folder_entry(path, name, found, self._reader) if whole or self.is_whole(path) else None
        except FileNotFoundError:
            return None

    def _file(self, path: str, name: str) -> Entry | None:
        try:
            file = os.open(path, UNTRUSTED)
        except PermissionError:
            return failing_entry(name, os.lstat(path))
        try:
            found = self.at_rest(file)
            if found is None:
                return None
            if not stat.S_ISREG(found.st_mode):
                return failing_entry(name, found)
            head = b"" if is_yaml(name) else os.read(file, _HEAD)
            if is_yaml(name) or head.startswith((b"---", b"\xef\xbb\xbf")):
                os.lseek(file, 0, os.SEEK_SET)
                head = read_open(file, found, name, self._reader.max_bytes)
            return entry_of(name, found, head, name, self._reader)
        except TaskProblem as problem:
            return failing_entry(name, os.fstat(file), str(problem))
        finally:
            os.close(file)

    def at_rest(self, file: int) -> os.stat_result | None:
        """What an open file is, or None if someone may still be writing it."""
        now = self._clock()
        if not self._settled(file, self._settle_ms, now):
            return None
        found = os.fstat(file)
        if found.st_size == 0 and 0 <= now.timestamp() - found.st_ctime < self._grace_s:
            return None  # `touch`, and then the editor: an empty file is given more time
        return found

    def is_whole(self, folder: str) -> bool:
        """Whether all of a dropped folder is there: nothing in it was changed or is open for writing."""
        if is_made_whole(folder):
            return True
        now = self._clock()
        newest, files = newest_change(folder)
        age = now.timestamp() - newest
        if age < 0:  # a clock set back: see whether it stands still
            time.sleep(self._settle_ms / 1000)
            if newest_change(folder)[0] != newest:
                return False
        elif age < self._settle_ms / 1000:
            return False
        return all(self._settled(file, self._settle_ms, now) for file in files)
