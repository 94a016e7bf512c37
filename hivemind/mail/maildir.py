"""Maildirs: a mailbox or one of its sub-folders, all mailboxes of a hive, and the move of bad messages to `.Dead`.

All operations look up, link and rename files; no lock is needed. A message file never changes once it has its name, because
several mailboxes may share its inode.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import field
from datetime import datetime
from itertools import count
from pathlib import Path

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import crash_point, flush_postponed, fsync_folder, is_durable, make_folder, move, resolve_inside, write
from hivemind.layout import MONTH, Layout
from hivemind.mime.header import one_line
from hivemind.pattern import pattern

# <seconds>.M<microseconds>P<pid>Q<count>R<random>.<host>: only the runtime creates this form
_RUNTIME_NAME = pattern(r"(\d{1,12})\.M(\d{6})P(\d+)Q(\d+)R[0-9a-f]{8}\.[a-z0-9-]+")
# names by mail programs: seconds, a unique part, the host
_UNIQUE_NAME = pattern(r"(\d{9,12})\.([^./]+)\..+", re.DOTALL)
_EDITOR_SUFFIXES = ("~", ".swp", ".swo", ".swx", ".tmp")
_UNIQUE_ATTRIBUTE = ",U="  # tells files with the same hand-given name apart, in the form of a Maildir++ attribute


class BaseNames:
    """A source of unique base names, made of time, microseconds, process, counter, random number and host."""

    __slots__ = ("_count", "_host", "_random")

    def __init__(self, host: str | None = None) -> None:
        host_label = re.sub(r"[^a-z0-9]+", "-", (host or os.uname().nodename).split(".")[0].lower()).strip("-")
        self._host = host_label or "localhost"
        self._random = os.urandom(4).hex()
        self._count = count()

    def next_name(self, now: datetime) -> str:
        seconds = max(0, int(now.timestamp()))
        serial = f"M{now.microsecond:06d}P{os.getpid()}Q{next(self._count)}R{self._random}"
        return f"{seconds}.{serial}.{self._host}"


def split_name(name: str) -> tuple[str, str]:
    """Split a file name and return (base name, flags)."""
    base, _, flags = name.partition(":2,")
    return base, flags


def join_name(base: str, flags: str) -> str:
    """Return the file name for cur/, with each flag once, in ASCII order."""
    return f"{base}:2,{''.join(sorted(set(flags)))}"


def is_runtime_name(base: str) -> bool:
    """Check that `BaseNames` created the name: it is unique, and the file was complete before it got the name."""
    return _RUNTIME_NAME.fullmatch(base) is not None


def is_unique_name(base: str) -> bool:
    """Check that the runtime or a mail program created the name. A person may use the same name twice."""
    return _RUNTIME_NAME.fullmatch(base) is not None or _UNIQUE_NAME.fullmatch(base) is not None


def original_base(base: str) -> str:
    """Return the base name without the attribute that `second_base` adds."""
    return base.partition(_UNIQUE_ATTRIBUTE)[0]


def second_base(base: str, unique: str) -> str:
    """Return the base name with `unique` added as an attribute, for a file whose name a person chose and another file already
    has.
    """
    return f"{original_base(base)}{_UNIQUE_ATTRIBUTE}{unique}"


def sort_key(base: str) -> tuple[int, int, int, int] | None:
    """Return (seconds, microseconds, process, count) from a base name, or None for a name that a person chose."""
    match = _RUNTIME_NAME.fullmatch(base)
    if match:
        return int(match[1]), int(match[2]), int(match[3]), int(match[4])
    program_match = _UNIQUE_NAME.fullmatch(base)
    if not program_match:
        return None
    fraction = re.match(r"M(\d{1,6})", program_match[2])
    return int(program_match[1]), int(fraction[1]) if fraction else 0, 0, 0


def is_leftover(name: str) -> bool:
    """Check for temporary files of editors (dot files, `~`, `.swp`, `.tmp`, `4913`), which are not messages."""
    return name.startswith(".") or name.endswith(_EDITOR_SUFFIXES) or name == "4913"


SUBFOLDERS = {"inbox": "", "sent": ".Sent", "archive": ".Archive", "dead": ".Dead"}
DATED = ("archive", "sent")
_LIKELY_FLAGS = ("S", "", "RS", "FS", "FRS", "R", "F")  # flags to try before the folder is listed
_MAX_TMP_AGE_S = 36 * 3600  # Maildir's rule for files in tmp/: an unfinished delivery this old has been abandoned
_NO_LINK_ERRORS = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP)
_MAX_TRIES = 20


@frozen
class MailFile:
    """A message file: its base name, its flags, its path, and whether it is in new/."""

    base: str
    flags: str
    path: str
    is_new: bool


class Maildir:
    """A Maildir: the folders tmp/, new/ and cur/ in `path`."""

    __slots__ = ("cur", "new", "path", "tmp")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.tmp = os.path.join(self.path, "tmp")
        self.new = os.path.join(self.path, "new")
        self.cur = os.path.join(self.path, "cur")

    def subfolder(self, folder: str) -> Maildir:
        """Return a sub-folder: `inbox` (this one), `sent`, `archive`, `dead`, or a month's, as `archive/2026-11`.

        Raises UserError for any other name.
        """
        name, _, month = folder.partition("/")
        if name not in SUBFOLDERS or (month and (name not in DATED or MONTH.fullmatch(month) is None)):
            dated = " or ".join(f"{dated_folder}/2026-11" for dated_folder in DATED)
            raise UserError(
                f"{folder!r} is not a mail folder", remedy=f"one of {', '.join(SUBFOLDERS)}, or of a month: {dated}"
            )
        sub = SUBFOLDERS[name] + (f".{month}" if month else "")
        return Maildir(os.path.join(self.path, sub)) if sub else self

    def months(self, folder: str) -> list[str]:
        """Return the monthly sub-folders of `archive` or `sent`, newest first; other folders have none."""
        prefix = f"{SUBFOLDERS[folder]}." if folder in DATED else "/"
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        months = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
        return [f"{folder}/{month}" for month in sorted(filter(MONTH.fullmatch, months), reverse=True)]

    def ensure(self) -> None:
        """Create the missing folders of the mailbox and its sub-folders, and delete old files in tmp/."""
        for name in SUBFOLDERS:
            self.subfolder(name).ensure_folder(is_subfolder=name != "inbox")
            _clear_old_files(self.subfolder(name).tmp)

    def ensure_folder(self, *, is_subfolder: bool = True) -> None:
        """Create the missing folders of this Maildir alone. `is_subfolder` adds Maildir++'s marker."""
        for sub in (self.tmp, self.new, self.cur):
            make_folder(sub)
        if is_subfolder:
            marker = os.open(os.path.join(self.path, "maildirfolder"), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666)
            os.close(marker)

    # -- finding

    def file_names(self, in_new: bool) -> list[str]:
        """Return the file names in new/ or cur/, without editors' temporary files. A missing folder is empty."""
        try:
            names_in_folder = os.listdir(self.new if in_new else self.cur)
        except FileNotFoundError:
            return []
        return [name for name in names_in_folder if not is_leftover(name)]

    def mail_files(self, *in_new: bool) -> Iterator[MailFile]:
        """Yield the message files of new/ (argument True), of cur/ (False) or, without arguments, of both, in no order."""
        for is_new in in_new or (True, False):
            folder = self.new if is_new else self.cur
            for name in self.file_names(is_new):
                base, flags = split_name(name)
                yield MailFile(base, flags, os.path.join(folder, name), is_new)

    def find(self, base: str) -> MailFile | None:
        """Return the file of the message with that base name and any flags, or None if there is none."""
        path = os.path.join(self.new, base)
        if os.path.lexists(path):
            return MailFile(base, "", path, True)
        for flags in _LIKELY_FLAGS:
            path = os.path.join(self.cur, join_name(base, flags))
            if os.path.lexists(path):
                return MailFile(base, flags, path, False)
        return next((mail_file for mail_file in self.mail_files() if mail_file.base == base), None)

    def read(self, mail_file: MailFile, limit: int | None = None) -> tuple[bytes, os.stat_result, MailFile] | None:
        """Read at most `limit` bytes of a message. Return content, stat and current file, or None if it was deleted.

        If a mail program renames the file meanwhile, it is found again. A FIFO does not block. Raises OSError: ELOOP
        for a symbolic link, EISDIR or EINVAL for anything else that is not a regular file.
        """
        current_file: MailFile | None = mail_file
        for _ in range(_MAX_TRIES):
            if current_file is None:
                return None
            try:
                descriptor = os.open(current_file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            except FileNotFoundError:
                current_file = self.find(mail_file.base)
                continue
            try:
                file_stat = os.fstat(descriptor)
                if not stat.S_ISREG(file_stat.st_mode):
                    code = errno.EISDIR if stat.S_ISDIR(file_stat.st_mode) else errno.EINVAL
                    raise OSError(code, "is not a regular file", current_file.path)
                return (
                    _read_bytes(descriptor, file_stat.st_size if limit is None else min(limit, file_stat.st_size)),
                    file_stat,
                    current_file,
                )
            finally:
                os.close(descriptor)
        return None

    # -- delivering

    def stage(self, base: str, raw: bytes, sent_folder: Maildir | None = None) -> str:
        """Write a complete message to tmp/ and return its path. On OSError the file is removed.

        If `sent_folder` is given, the message is also linked there as seen, and file and link are made durable.
        """
        path = os.path.join(self.tmp, base)
        if durable := is_durable(path):
            flush_postponed()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            remaining = memoryview(raw)
            while remaining:  # on a full disk, a short write comes before the error
                remaining = remaining[os.write(descriptor, remaining) :]
            crash_point("mail.send.written")
            if sent_folder is not None and not sent_folder.link(path, join_name(base, "S"), in_new=False):
                sent_folder.copy(path, f"{base}-kept", join_name(base, "S"), in_new=False)
            crash_point("mail.send.kept")
            if durable:
                os.fsync(descriptor)
                if sent_folder is not None:
                    sent_folder.sync(in_new=False)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        return path

    def link(self, source: str, name: str, in_new: bool) -> bool:
        """Link the complete file `source` into new/ or cur/ of this Maildir. Return False if the file system cannot link it.

        Raises FileExistsError if the name exists, and OSError.
        """
        try:
            os.link(source, os.path.join(self.new if in_new else self.cur, name), follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_LINK_ERRORS:
                return False
            raise
        return True

    def copy(self, source: str, base: str, name: str, in_new: bool) -> None:
        """Deliver a copy of `source` to new/ or cur/, where `link` is impossible. Raises OSError."""
        with open(source, "rb") as file:
            staged_path = self.stage(base, file.read())
        try:
            move(staged_path, os.path.join(self.new if in_new else self.cur, name), durable=False)
        except BaseException:
            os.unlink(staged_path)
            raise

    def sync(self, in_new: bool) -> None:
        """Sync the file names in new/ or cur/."""
        fsync_folder(self.new if in_new else self.cur)

    # -- moving

    def flag(self, mail_file: MailFile, flags: str, *, sync_now: bool = True) -> MailFile | None:
        """Add flags to a message and move it to cur/ of this Maildir. Return the current file, or None if it was deleted.

        With `sync_now=False`, a power cut may undo this. Raises OSError.
        """
        return self.move_to_cur(mail_file, self, flags, sync_now=sync_now)

    def move_to_cur(
        self, mail_file: MailFile, target: Maildir, flags: str = "", *, sync_now: bool = True, base: str = ""
    ) -> MailFile | None:
        """Move a message to `cur/` of a folder, add `flags`, and rename it to `base` if that is not empty.

        Flags that a mail program sets meanwhile are kept. With `sync_now=False`, a power cut may undo the move. Return the
        current file, or None if it was deleted. Raises OSError.
        """
        current_file: MailFile | None = mail_file
        for _ in range(_MAX_TRIES):
            if current_file is None:
                return None
            base = base or current_file.base
            name = join_name(base, current_file.flags + flags)
            if os.path.join(target.cur, name) == current_file.path:
                return current_file
            try:
                try:
                    move(current_file.path, os.path.join(target.cur, name), durable=False)
                except FileExistsError:  # another file has the same hand-given name
                    base = second_base(base, f"{time.time_ns()}P{os.getpid()}")
                    name = join_name(base, current_file.flags + flags)
                    move(current_file.path, os.path.join(target.cur, name), durable=False)
            except FileNotFoundError:
                current_file = self.find(mail_file.base)
                continue
            if sync_now:
                fsync_folder(target.cur)
            return MailFile(base, split_name(name)[1], os.path.join(target.cur, name), False)
        return current_file


@frozen
class Mailboxes:
    """Opens mailboxes. Refuses symbolic links out of the hive, unless they lead to one of `roots`."""

    layout: Layout
    roots: tuple[Path, ...]
    _maildirs: dict[tuple[str, str], Maildir] = field(default_factory=dict)

    def get(self, name: str, folder: str = "inbox") -> Maildir:
        """Return the Maildir of the owner `name` or one of its sub-folders. Raises UserError (bad name), OutsideError."""
        cached_maildir = self._maildirs.get((name, folder))
        if cached_maildir is None:
            root = self.layout.mailbox(name)
            maildir = Maildir(root).subfolder(folder)
            for path in (maildir.new, maildir.cur, maildir.tmp):
                resolve_inside(path, self.layout.root, self.roots)
            cached_maildir = self._maildirs[name, folder] = maildir
        return cached_maildir

    def ensure(self, name: str) -> Maildir:
        """Return the owner's Maildir and create its missing folders."""
        box = self.get(name)
        box.ensure()
        return box


def bury(mailbox: Maildir, mail_file: MailFile, reason: str, now: datetime) -> MailFile | None:
    """Move a message to `.Dead` and write the reason to `.Dead/<base name>.why`. Return None if it was deleted.

    The reason is written first: a crash may leave a reason without its message, but never the reverse. A message that
    a person moves back is tried again.
    """
    dead = mailbox.subfolder("dead")
    make_folder(dead.cur)
    base = mail_file.base
    if os.path.lexists(os.path.join(dead.cur, join_name(base, mail_file.flags))):
        base = second_base(base, f"{now.timestamp():.6f}P{os.getpid()}")
    name = os.path.basename(mail_file.path)
    text = f"{now.isoformat(timespec='seconds')}\n{one_line(reason)}\nit was {'new' if mail_file.is_new else 'cur'}/{name}\n"
    sidecar = text.encode("utf-8", "surrogateescape")
    write(os.path.join(dead.path, f"{base}.why"), sidecar)
    crash_point("mail.dead.explained")
    buried_file = mailbox.move_to_cur(mail_file, dead, base=base)
    crash_point("mail.dead.moved")
    return buried_file


def _read_bytes(descriptor: int, size: int) -> bytes:
    raw = os.read(descriptor, size)
    while len(raw) < size and (chunk := os.read(descriptor, size - len(raw))):
        raw += chunk
    return raw


def _clear_old_files(tmp: str) -> None:
    oldest_time = time.time() - _MAX_TMP_AGE_S
    with os.scandir(tmp) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mtime < oldest_time:
                os.unlink(entry.path)
