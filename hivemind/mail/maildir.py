"""Maildirs: a mailbox or one of its sub-folders, the mailboxes of a hive, and the burial of what cannot be read.

Names are looked up, linked and renamed; nothing is locked. A message file is never changed once it has its name: one inode
may stand in several mailboxes.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import field
from datetime import datetime
from itertools import count
from pathlib import Path

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import fsync_folder, inside, make_folder, move, reached, write
from hivemind.layout import MONTH, Layout
from hivemind.mail.header import one_line

# <seconds>.M<microseconds>P<pid>Q<count>R<random>.<host>: only the runtime gives such names
_OWN = re.compile(r"(\d{1,12})\.M(\d{6})P(\d+)Q(\d+)R[0-9a-f]{8}\.[a-z0-9-]+")
# what mail programs give: seconds, something unique, host
_UNIQUE = re.compile(r"(\d{9,12})\.([^./]+)\..+", re.DOTALL)
_DROPPINGS = ("~", ".swp", ".swo", ".swx", ".tmp")
_SECOND = ",U="  # a hand-given name that was taken a second time carries a unique attribute, as Maildir++ writes them


class Names:
    """Makes base names that no other delivery can have: time, microseconds, process, counter, random number, host."""

    __slots__ = ("_count", "_host", "_random")

    def __init__(self, host: str | None = None) -> None:
        plain = re.sub(r"[^a-z0-9]+", "-", (host or socket.gethostname()).split(".")[0].lower()).strip("-")
        self._host = plain or "localhost"
        self._random = secrets.token_hex(4)
        self._count = count()

    def fresh(self, now: datetime) -> str:
        seconds = max(0, int(now.timestamp()))
        serial = f"M{now.microsecond:06d}P{os.getpid()}Q{next(self._count)}R{self._random}"
        return f"{seconds}.{serial}.{self._host}"


def split(name: str) -> tuple[str, str]:
    """(base name, flags) of a file name."""
    base, _, flags = name.partition(":2,")
    return base, flags


def join(base: str, flags: str) -> str:
    """The file name in cur/: flags sorted in ASCII order, each once."""
    return f"{base}:2,{''.join(sorted(set(flags)))}"


def is_own(base: str) -> bool:
    """True for a name that `Names` made: the file was finished before it got it, and nobody else has that name."""
    return _OWN.fullmatch(base) is not None


def is_unique(base: str) -> bool:
    """True for a name as mail programs give them; false for one that a person gave, and may give again."""
    return _OWN.fullmatch(base) is not None or _UNIQUE.fullmatch(base) is not None


def stem(base: str) -> str:
    """The base name without the attribute that a second file of the same hand-given name has got."""
    return base.partition(_SECOND)[0]


def second(base: str, unique: str) -> str:
    """Another base name for a file whose hand-given name is taken."""
    return f"{stem(base)}{_SECOND}{unique}"


def sort_key(base: str) -> tuple[int, int, int, int] | None:
    """Oldest first: (seconds, microseconds, process, count); None for a hand-given name, whose file knows its time."""
    own = _OWN.fullmatch(base)
    if own:
        return int(own[1]), int(own[2]), int(own[3]), int(own[4])
    found = _UNIQUE.fullmatch(base)
    if not found:
        return None
    fraction = re.match(r"M(\d{1,6})", found[2])
    return int(found[1]), int(fraction[1]) if fraction else 0, 0, 0


def is_dropping(name: str) -> bool:
    """True for what editors leave while they save (dot files, `~`, `.swp`, `.tmp`, `4913`): no messages."""
    return name.startswith(".") or name.endswith(_DROPPINGS) or name == "4913"


SUBFOLDERS = {"inbox": "", "sent": ".Sent", "archive": ".Archive", "dead": ".Dead"}
DATED = ("archive", "sent")
_LIKELY = ("S", "", "RS", "FS", "FRS", "R", "F")  # flags under which a message is tried before its folder is listed
_LITTER_S = 36 * 3600  # Maildir's own rule: what lies in tmp/ that long belongs to nobody
_NO_LINKS = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP)
_TRIES = 20


@frozen
class Entry:
    """A message file as its name tells it."""

    base: str
    flags: str
    path: str
    new: bool


class Maildir:
    """The folders tmp/, new/ and cur/ below `path`."""

    __slots__ = ("cur", "new", "path", "tmp")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.tmp = os.path.join(self.path, "tmp")
        self.new = os.path.join(self.path, "new")
        self.cur = os.path.join(self.path, "cur")

    def sub(self, folder: str) -> Maildir:
        """The sub-folder: `inbox` (this one), `sent`, `archive` or `dead`, or one of a month, `archive/2026-11` or
        `sent/2026-11`. Raises UserError for another."""
        name, _, month = folder.partition("/")
        if name not in SUBFOLDERS or (month and (name not in DATED or MONTH.fullmatch(month) is None)):
            dated = " or ".join(f"{one}/2026-11" for one in DATED)
            raise UserError(
                f"{folder!r} is no mail folder", mend=f"one of {', '.join(SUBFOLDERS)}, or of a month: {dated}"
            )
        sub = SUBFOLDERS[name] + (f".{month}" if month else "")
        return Maildir(os.path.join(self.path, sub)) if sub else self

    def months(self, folder: str) -> list[str]:
        """The sub-folders of `archive` or `sent` for a month each, the newest first; none of a folder that has none."""
        begin = f"{SUBFOLDERS[folder]}." if folder in DATED else "/"
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        months = (name.removeprefix(begin) for name in names if name.startswith(begin))
        return [f"{folder}/{month}" for month in sorted(filter(MONTH.fullmatch, months), reverse=True)]

    def ensure(self, durable: bool) -> None:
        """Make what is missing of the folder and its sub-folders, and clear old litter out of tmp/."""
        for name in SUBFOLDERS:
            self.sub(name).ensure_one(durable, marked=name != "inbox")
            _clear(self.sub(name).tmp)

    def ensure_one(self, durable: bool, *, marked: bool = True) -> None:
        """Make what is missing of this folder alone; `marked` as a sub-folder."""
        for sub in (self.tmp, self.new, self.cur):
            make_folder(sub, durable=durable)
        if marked:
            mark = os.open(os.path.join(self.path, "maildirfolder"), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666)
            os.close(mark)

    # -- finding

    def names(self, new: bool) -> list[str]:
        """The file names in new/ or cur/, without editors' droppings; empty if there is no such folder."""
        try:
            found = os.listdir(self.new if new else self.cur)
        except FileNotFoundError:
            return []
        return [name for name in found if not is_dropping(name)]

    def entries(self, *places: bool) -> Iterator[Entry]:
        """Every message file, in no order: of new/ (True), of cur/ (False), of both if neither is named."""
        for new in places or (True, False):
            folder = self.new if new else self.cur
            for name in self.names(new):
                base, flags = split(name)
                yield Entry(base, flags, os.path.join(folder, name), new)

    def find(self, base: str) -> Entry | None:
        """Where the message with that base name lies now, whatever its flags."""
        path = os.path.join(self.new, base)
        if os.path.lexists(path):
            return Entry(base, "", path, True)
        for flags in _LIKELY:
            path = os.path.join(self.cur, join(base, flags))
            if os.path.lexists(path):
                return Entry(base, flags, path, False)
        return next((entry for entry in self.entries() if entry.base == base), None)

    def read(self, entry: Entry, limit: int | None = None) -> tuple[bytes, os.stat_result, Entry] | None:
        """The content (at most `limit` bytes), the file's state and where it is now; None if it has been deleted.

        A mail program may rename it meanwhile. Never blocks on a FIFO. Raises OSError: ELOOP for a symbolic link,
        EISDIR or EINVAL for what is no regular file.
        """
        found: Entry | None = entry
        for _ in range(_TRIES):
            if found is None:
                return None
            try:
                file = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            except FileNotFoundError:
                found = self.find(entry.base)
                continue
            try:
                state = os.fstat(file)
                if not stat.S_ISREG(state.st_mode):
                    code = errno.EISDIR if stat.S_ISDIR(state.st_mode) else errno.EINVAL
                    raise OSError(code, "is no regular file", found.path)
                return _read(file, state.st_size if limit is None else min(limit, state.st_size)), state, found
            finally:
                os.close(file)
        return None

    # -- delivering

    def stage(self, base: str, raw: bytes, durable: bool, keep: Maildir | None = None) -> str:
        """Write a message to tmp/ whole; returns its path. Raises OSError, and then nothing is left of it.

        `keep` gets it under its name, as seen; both are durable then.
        """
        path = os.path.join(self.tmp, base)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            left = memoryview(raw)
            while left:  # a full disk shows as a short write first, and as an error then
                left = left[os.write(file, left) :]
            reached("mail.send.written")
            if keep is not None and not keep.link(path, join(base, "S"), new=False):
                keep.copy(path, f"{base}-kept", join(base, "S"), new=False, durable=durable)
            reached("mail.send.kept")
            if durable:
                os.fsync(file)
                if keep is not None:
                    keep.sync(new=False)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(file)
        return path

    def link(self, source: str, name: str, new: bool) -> bool:
        """Give the finished file `source` a name here too; False if the file system has no link for it.

        Raises FileExistsError if the name is taken and OSError for what else is in the way.
        """
        try:
            os.link(source, os.path.join(self.new if new else self.cur, name), follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        return True

    def copy(self, source: str, base: str, name: str, new: bool, durable: bool) -> None:
        """Deliver a copy of `source`, where it cannot be linked. Raises OSError."""
        with open(source, "rb") as file:
            staged = self.stage(base, file.read(), durable)
        try:
            move(staged, os.path.join(self.new if new else self.cur, name), durable=False)
        except BaseException:
            os.unlink(staged)
            raise

    def sync(self, new: bool) -> None:
        """Make the names in new/ or cur/ durable."""
        fsync_folder(self.new if new else self.cur)

    # -- moving

    def flag(self, entry: Entry, flags: str, durable: bool = False) -> Entry | None:
        """Set flags on a message and have it in cur/. As `keep`."""
        return self.keep(entry, self, flags, durable)

    def keep(
        self, entry: Entry, target: Maildir, flags: str = "", durable: bool = False, base: str = ""
    ) -> Entry | None:
        """Move a message to `cur/` of a folder, with `flags` beside those it has, and as `base` if that
        is given; where a mail program renames it meanwhile, its flags stay too.

        Returns where it is now, or None if it has been deleted. Raises OSError.
        """
        found: Entry | None = entry
        for _ in range(_TRIES):
            if found is None:
                return None
            base = base or found.base
            name = join(base, found.flags + flags)
            if os.path.join(target.cur, name) == found.path:
                return found
            try:
                try:
                    move(found.path, os.path.join(target.cur, name), durable=False)
                except FileExistsError:  # another file has that hand-given name there: this one gets a name of its own
                    base = second(base, f"{time.time_ns()}P{os.getpid()}")
                    name = join(base, found.flags + flags)
                    move(found.path, os.path.join(target.cur, name), durable=False)
            except FileNotFoundError:
                found = self.find(entry.base)
                continue
            if durable:
                fsync_folder(target.cur)
                if os.path.dirname(found.path) != target.cur:
                    fsync_folder(os.path.dirname(found.path))
            return Entry(base, split(name)[1], os.path.join(target.cur, name), False)
        return found


@frozen
class Boxes:
    """Opens mailboxes. One that is a symbolic link out of the hive is refused, unless it leads to one of `roots`."""

    layout: Layout
    durable: bool
    roots: tuple[Path, ...]
    _open: dict[tuple[str, str], Maildir] = field(default_factory=dict)

    def get(self, name: str, folder: str = "inbox") -> Maildir:
        """The Maildir of that owner, or its sub-folder. Raises UserError for a bad name and OutsideError."""
        found = self._open.get((name, folder))
        if found is None:
            root = self.layout.mailbox(name)
            maildir = Maildir(root).sub(folder)
            for place in (maildir.new, maildir.cur, maildir.tmp):
                inside(place, self.layout.root, self.roots)
            found = self._open[name, folder] = maildir
        return found

    def ensure(self, name: str) -> Maildir:
        """The Maildir, made if it is not there."""
        box = self.get(name)
        box.ensure(self.durable)
        return box


def bury(box: Maildir, entry: Entry, reason: str, now: datetime, durable: bool) -> Entry | None:
    """Move a message to `.Dead` and say why in `.Dead/<base name>.why`; None if it has been deleted meanwhile.

    The reason is written first: a crash leaves a reason without its message, never a message without its reason.
    Moved back by hand, the message is tried again.
    """
    dead = box.sub("dead")
    make_folder(dead.cur, durable=durable)
    base = entry.base
    if os.path.lexists(os.path.join(dead.cur, join(base, entry.flags))):
        base = second(base, f"{now.timestamp():.6f}P{os.getpid()}")
    name = os.path.basename(entry.path)
    text = f"{now.isoformat(timespec='seconds')}\n{one_line(reason)}\nit was {'new' if entry.new else 'cur'}/{name}\n"
    why = text.encode("utf-8", "surrogateescape")
    write(os.path.join(dead.path, f"{base}.why"), why, durable=durable)
    reached("mail.dead.explained")
    moved = box.keep(entry, dead, durable=durable, base=base)
    reached("mail.dead.moved")
    return moved


def _read(file: int, size: int) -> bytes:
    raw = os.read(file, size)
    while len(raw) < size and (more := os.read(file, size - len(raw))):
        raw += more
    return raw


def _clear(tmp: str) -> None:
    old = time.time() - _LITTER_S
    with os.scandir(tmp) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mtime < old:
                os.unlink(entry.path)
