"""Read messages from files in mailboxes, and find files by Message-ID."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import CrashCount, is_settled, open_inside, reached
from hivemind.fs.leftovers import is_leftover
from hivemind.layout import Layout, month_of
from hivemind.mail.maildir import (
    DATED,
    SUBFOLDERS,
    Boxes,
    Maildir,
    MailFile,
    is_own,
    is_unique,
    sort_key,
    split,
    stem,
)
from hivemind.mail.message import Message, MessageSummary, preview
from hivemind.mail.parse import ParsedLetter, derived_id, parse_message, plain_id
from hivemind.mail.seal import Seal

__all__ = ["MAX_BYTES", "Head", "Reader", "entry_key", "time_key"]

_Content = tuple[bytes, os.stat_result, MailFile]
MAX_BYTES = 32 << 20  # larger files are not read
_HEAD_BYTES = 8192
_LAST_S = 2.0**37  # a file system may have times outside the calendar
_EPOCH = datetime.fromtimestamp(0, UTC)


def entry_key(entry: MailFile) -> str:
    """Return the key that identifies a message file across moves and changes of flags.

    It is the base name if that is unique. A person may use a name again for another text, so the key of a hand-given
    name also contains size and modification time, which survive a restore from a copy. Raises FileNotFoundError.
    """
    return entry.base if is_unique(entry.base) else _key(entry.base, os.lstat(entry.path))


def time_key(entry: MailFile) -> tuple[int, int, int, int, str]:
    """Return a sort key, oldest first: by the time in the name, or the file's time for a hand-given name. Never raises."""
    key = sort_key(entry.base)
    if key is None:
        try:
            mtime_ns = os.lstat(entry.path).st_mtime_ns
        except OSError:  # deleted or renamed meanwhile: its position does not matter
            mtime_ns = 0
        key = (mtime_ns // 10**9, mtime_ns // 1000 % 10**6, 0, 0)
    return *key, entry.base


@frozen
class Head:
    """The parsed beginning of a message, its Message-ID and date, and its current file."""

    parsed: ParsedLetter
    id: str
    date: datetime
    entry: MailFile


@frozen
class Reader:
    """Reads messages of all mailboxes.

    A hand-written file counts as finished when it was unchanged for `settle_ms`, where only polling works.
    """

    layout: Layout
    boxes: Boxes
    seal: Seal
    domain: str
    settle_ms: float
    roots: tuple[Path, ...]
    crashes: CrashCount

    def settled(self, entry: MailFile) -> bool:
        """Check that nobody is still writing the file. Files that the runtime delivered are always finished."""
        try:
            with boundary("letter", entry.path):
                if not entry.new or is_own(entry.base) or is_settled(entry.path, self.settle_ms, datetime.now(UTC)):
                    return True
        except Unreadable:  # reading it will report the reason
            return True
        return os.path.islink(entry.path) and not os.path.exists(entry.path)  # a broken link: waiting does not help

    def read_message(self, box: str, maildir: Maildir, entry: MailFile) -> Message | None:
        """Read the complete message, or return None if it was deleted. Raises Unreadable and OSError."""
        with self._opened(maildir, entry, None) as content:
            return None if content is None else self._message(box, *content)

    def _message(self, box: str, raw: bytes, state: os.stat_result, found: MailFile) -> Message:
        parsed = parse_message(raw, self.domain)
        return Message(
            id=parsed.id or derived_id(raw, stem(found.base), state.st_mtime_ns, self.domain),
            date=_date(parsed, state),
            flags=found.flags,
            path=found.path,
            trusted=self.seal.holds(raw),
            box=box,
            base=found.base,
            key=_key(found.base, state),
            **{**parsed.content, "to": parsed.to or (box,)},
        )

    def summary(self, box: str, maildir: Maildir, entry: MailFile) -> MessageSummary | None:
        """Return the message's summary, or None if it was deleted. If it is unreadable, the subject says why."""
        try:
            head = self.read_head(maildir, entry)
        except Unreadable as error:
            subject = f"(unreadable: {error.message})"
            return MessageSummary(entry.base, "?", (box,), subject, _EPOCH, entry.flags, entry.path, "")
        if head is None:
            return None
        parsed, date, current_file = head.parsed, head.date, head.entry
        to = parsed.to or (box,)
        return MessageSummary(
            head.id,
            parsed.sender,
            to,
            parsed.subject,
            date,
            current_file.flags,
            current_file.path,
            preview(parsed.body),
        )

    def is_sealed(self, maildir: Maildir, entry: MailFile) -> bool:
        """Check that the runtime wrote the message and that it is unchanged. Raises OSError."""
        with suppress(Unreadable), self._opened(maildir, entry, None) as content:
            return content is not None and self.seal.holds(content[0])
        return False

    def read_head(self, maildir: Maildir, entry: MailFile) -> Head | None:
        """Parse the first 8 KiB, or return None if the file has been deleted. Raises Unreadable and OSError."""
        with self._opened(maildir, entry, _HEAD_BYTES) as content:
            return None if content is None else self._head(maildir, *content)

    def _head(self, maildir: Maildir, raw: bytes, state: os.stat_result, found: MailFile) -> Head | None:
        is_complete = state.st_size <= len(raw)
        parsed = parse_message(raw, self.domain, whole=is_complete)
        if not is_complete and (
            parsed.id is None or parsed.body_at >= len(raw)
        ):  # long headers, or an id derived from all bytes
            content = self._content(maildir, found, None)
            if content is None:
                return None
            raw, state, found = content
            parsed = parse_message(raw, self.domain)
        id_ = parsed.id or derived_id(raw, stem(found.base), state.st_mtime_ns, self.domain)
        return Head(parsed, id_, _date(parsed, state), found)

    def locate(self, box: str, id_: str, folders: Collection[str]) -> tuple[str, MailFile] | None:
        """Find the folder and file of a message by its Message-ID or base name.

        An id that this hive created contains the base name. Other ids are searched in the headers, newest first. After
        `folders`, their monthly sub-folders are searched: only the month in the base name, if any.
        """
        wanted_id = id_.strip().removeprefix("<").removesuffix(">")
        local, _, host = wanted_id.rpartition("@")
        is_local_id = host.lower() == self.domain.lower() and is_own(local)
        name = local if is_local_id else split(wanted_id)[0]
        dated_folders = {"archive" if folder == "inbox" else folder for folder in folders} & {*DATED}
        month_folders = [month for folder in sorted(dated_folders) for month in self.boxes.get(box).months(folder)]
        if name and "/" not in name and not is_leftover(name):
            time_fields = sort_key(name)
            candidate_folders = (
                month_folders
                if time_fields is None
                else [
                    month_folder
                    for month_folder in month_folders
                    if month_folder.endswith(f"/{month_of(time_fields[0])}")
                ]
            )
            for folder in (*folders, *candidate_folders):
                mail_file = self.boxes.get(box, folder).find(name)
                if mail_file is not None:
                    return folder, mail_file
        if not is_local_id:
            for folder in (*folders, *month_folders):
                maildir = self.boxes.get(box, folder)
                newest_first = sorted(maildir.entries(), key=time_key, reverse=True)
                for head in self._heads(maildir, newest_first):
                    if head.id == plain_id(wanted_id, self.domain):
                        return folder, head.entry
        return None

    def thread(self, box: str, start: Message) -> list[Message]:
        """Return the messages in the thread of `start` from all folders of the mailbox, oldest first, each once.

        Of the monthly sub-folders, only referenced messages are included, unless `start` is in one: then that month and
        all later ones are searched.
        """
        locations: dict[str, tuple[Maildir, MailFile]] = {}
        neighbours: dict[str, set[str]] = {}
        mailbox = self.boxes.get(box)
        month_folders = [folder for kind in DATED for folder in mailbox.months(kind)]
        first_month = next(
            (one[-7:] for one in month_folders if os.path.dirname(start.path) == mailbox.sub(one).cur), "9999-99"
        )
        for folder in (*SUBFOLDERS, *(one for one in month_folders if one[-7:] >= first_month)):
            maildir = self.boxes.get(box, folder)
            for head in self._heads(maildir, maildir.entries()):
                locations.setdefault(head.id, (maildir, head.entry))
                for other_id in (
                    *head.parsed.references,
                    *([head.parsed.in_reply_to] if head.parsed.in_reply_to else []),
                ):
                    neighbours.setdefault(head.id, set()).add(other_id)
                    neighbours.setdefault(other_id, set()).add(head.id)
        messages = []
        for id_ in sorted(_reachable(start.id, neighbours)):
            with suppress(Unreadable):  # the head is readable, but not the rest
                if id_ in locations:
                    messages.append(self.read_message(box, *locations[id_]))
                elif (
                    month_folders
                    and is_own(id_.rpartition("@")[0])
                    and (location := self.locate(box, id_, DATED)) is not None
                ):
                    messages.append(self.read_message(box, self.boxes.get(box, location[0]), location[1]))
        return sorted(filter(None, messages), key=lambda message: (message.date, message.base))

    def _heads(self, maildir: Maildir, entries: Iterable[MailFile]) -> Iterator[Head]:
        """Yield the heads of readable messages. Unreadable ones have no id and belong to no thread."""
        for mail_file in entries:
            with suppress(Unreadable):
                head = self.read_head(maildir, mail_file)
                if head is not None:
                    yield head

    @contextmanager
    def _opened(self, maildir: Maildir, entry: MailFile, limit: int | None) -> Iterator[_Content | None]:
        """Open a letter inside the boundary for letters, the only place where a letter's content is examined.

        The process is recorded meanwhile, in order to find letters that kill their readers.
        """
        with boundary("letter", entry.path):
            content = self._content(maildir, entry, limit)
            if content is None:
                yield None
                return
            _, file_stat, current_file = content
            version = f"{file_stat.st_size}-{file_stat.st_mtime_ns}"
            with self.crashes.reading("letter", _key(current_file.base, file_stat), version):
                reached("mail.read.opened")
                yield content

    def _content(self, maildir: Maildir, entry: MailFile, limit: int | None) -> _Content | None:
        try:
            content = maildir.read(entry, MAX_BYTES + 1 if limit is None else limit)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            content = self._through_link(entry)
        if content is not None and max(content[1].st_size, len(content[0])) > MAX_BYTES:
            raise ValueError(f"the file has more than {MAX_BYTES >> 20} MiB")
        return content

    def _through_link(self, entry: MailFile) -> _Content:
        """Read the target of a symbolic link. Raises ValueError if the target is outside the hive."""
        try:
            file = open_inside(entry.path, self.layout.root, self.roots)
        except (UserError, OSError) as error:
            raise ValueError(f"it is a symbolic link that cannot be followed: {error}") from None
        with open(file, "rb") as stream:
            return stream.read(MAX_BYTES + 1), os.lstat(entry.path), entry


def _key(base: str, state: os.stat_result) -> str:
    return base if is_unique(base) else f"{stem(base)}@{state.st_size:x}-{state.st_mtime_ns:x}"


def _date(parsed: ParsedLetter, state: os.stat_result) -> datetime:
    return parsed.date or datetime.fromtimestamp(min(max(0.0, state.st_mtime), _LAST_S), UTC)


def _reachable(start: str, joined: dict[str, set[str]]) -> set[str]:
    connected_ids, pending_ids = {start}, [start]
    while pending_ids:
        for other_id in joined.get(pending_ids.pop(), ()):
            if other_id not in connected_ids:
                connected_ids.add(other_id)
                pending_ids.append(other_id)
    return connected_ids
