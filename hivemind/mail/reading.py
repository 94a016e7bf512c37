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
from hivemind.fs import DeadlyInputs, crash_point, is_settled, open_inside
from hivemind.layout import Layout, month_of
from hivemind.mail.maildir import (
    DATED,
    SUBFOLDERS,
    Mailboxes,
    Maildir,
    MailFile,
    is_leftover,
    is_runtime_name,
    is_unique_name,
    original_base,
    sort_key,
    split_name,
)
from hivemind.mail.message import Message, MessageSummary, preview
from hivemind.mail.parse import ParsedLetter, derived_id, parse_message, plain_id
from hivemind.mail.seal import Seal

_FileContent = tuple[bytes, os.stat_result, MailFile]
MAX_BYTES = 32 << 20  # larger files are not read
_HEAD_BYTES = 8192
_LAST_S = 2.0**37  # a file system may have times outside the calendar
_EPOCH = datetime.fromtimestamp(0, UTC)


def file_key(mail_file: MailFile) -> str:
    """Return the key that identifies a message file across moves and changes of flags.

    A unique base name is the key itself. A person may use a name again for another text. So for a name that a person gave, the
    key also contains the file's size and modification time, which survive a restore from a copy. Raises FileNotFoundError.
    """
    return mail_file.base if is_unique_name(mail_file.base) else _base_key(mail_file.base, os.lstat(mail_file.path))


def time_key(mail_file: MailFile) -> tuple[int, int, int, int, str]:
    """Return a sort key, oldest first: the time in the file's name, or the file's own time for a hand-given name."""
    key = sort_key(mail_file.base)
    if key is None:
        try:
            mtime_ns = os.lstat(mail_file.path).st_mtime_ns
        except OSError:  # deleted or renamed meanwhile: its position does not matter
            mtime_ns = 0
        key = (mtime_ns // 10**9, mtime_ns // 1000 % 10**6, 0, 0)
    return *key, mail_file.base


@frozen
class Head:
    """The parsed beginning of a message, its Message-ID and date, and its current file."""

    parsed: ParsedLetter
    id: str
    date: datetime
    mail_file: MailFile


@frozen
class Reader:
    """Reads messages of all mailboxes.

    Where only polling works, a hand-written file counts as finished once it was unchanged for `settle_ms`.
    """

    layout: Layout
    boxes: Mailboxes
    seal: Seal
    domain: str
    settle_ms: float
    roots: tuple[Path, ...]
    crashes: DeadlyInputs

    def is_finished(self, mail_file: MailFile) -> bool:
        """Check that no program is still writing the file. Files that the runtime delivered are always finished."""
        try:
            with boundary("letter", mail_file.path):
                if (
                    not mail_file.is_new
                    or is_runtime_name(mail_file.base)
                    or is_settled(mail_file.path, self.settle_ms, datetime.now(UTC))
                ):
                    return True
        except Unreadable:  # reading it will report the reason
            return True
        # a broken link: waiting does not help
        return os.path.islink(mail_file.path) and not os.path.exists(mail_file.path)

    def read_message(self, box: str, maildir: Maildir, mail_file: MailFile) -> Message | None:
        """Read the complete message, or return None if it was deleted. Raises Unreadable and OSError."""
        with self._open_letter(maildir, mail_file, None) as content:
            return None if content is None else self._build_message(box, *content)

    def _build_message(self, box: str, raw: bytes, file_stat: os.stat_result, mail_file: MailFile) -> Message:
        parsed_letter = parse_message(raw, self.domain)
        return Message(
            id=parsed_letter.id or derived_id(raw, original_base(mail_file.base), file_stat.st_mtime_ns, self.domain),
            date=_letter_date(parsed_letter, file_stat),
            flags=mail_file.flags,
            path=mail_file.path,
            trusted=self.seal.is_valid(raw),
            box=box,
            base=mail_file.base,
            key=_base_key(mail_file.base, file_stat),
            **{**parsed_letter.content, "to": parsed_letter.to or (box,)},
        )

    def summary(self, box: str, maildir: Maildir, mail_file: MailFile) -> MessageSummary | None:
        """Return the message's summary, or None if it was deleted. If it is unreadable, the subject says why."""
        try:
            head = self.read_head(maildir, mail_file)
        except Unreadable as error:
            subject = f"(unreadable: {error.message})"
            return MessageSummary(mail_file.base, "?", (box,), subject, _EPOCH, mail_file.flags, mail_file.path, "")
        if head is None:
            return None
        parsed_letter, date, current_file = head.parsed, head.date, head.mail_file
        to = parsed_letter.to or (box,)
        return MessageSummary(
            head.id,
            parsed_letter.sender,
            to,
            parsed_letter.subject,
            date,
            current_file.flags,
            current_file.path,
            preview(parsed_letter.body),
            parsed_letter.unanswered,
        )

    def is_sealed(self, maildir: Maildir, mail_file: MailFile) -> bool:
        """Check that the runtime wrote the message and that it is unchanged. Raises OSError."""
        with suppress(Unreadable), self._open_letter(maildir, mail_file, None) as content:
            return content is not None and self.seal.is_valid(content[0])
        return False

    def read_head(self, maildir: Maildir, mail_file: MailFile) -> Head | None:
        """Parse the first 8 KiB, or return None if the file has been deleted. Raises Unreadable and OSError."""
        with self._open_letter(maildir, mail_file, _HEAD_BYTES) as content:
            return None if content is None else self._parse_head(maildir, *content)

    def _parse_head(self, maildir: Maildir, raw: bytes, file_stat: os.stat_result, mail_file: MailFile) -> Head | None:
        is_complete = file_stat.st_size <= len(raw)
        parsed_letter = parse_message(raw, self.domain, is_complete=is_complete)
        # long headers, or an id derived from all bytes
        if not is_complete and (parsed_letter.id is None or parsed_letter.body_offset >= len(raw)):
            content = self._read_content(maildir, mail_file, None)
            if content is None:
                return None
            raw, file_stat, mail_file = content
            parsed_letter = parse_message(raw, self.domain)
        id_ = parsed_letter.id or derived_id(raw, original_base(mail_file.base), file_stat.st_mtime_ns, self.domain)
        return Head(parsed_letter, id_, _letter_date(parsed_letter, file_stat), mail_file)

    def locate(self, box: str, id_: str, folders: Collection[str]) -> tuple[str, MailFile] | None:
        """Return (folder, file) of a message by its Message-ID or base name, or None. `folders` are searched first, then their
        months.

        An id that this hive created contains the base name, and the base name contains the month. For any other id the headers
        are read, newest first.
        """
        wanted_id = id_.strip().removeprefix("<").removesuffix(">")
        local, _, host = wanted_id.rpartition("@")
        is_local_id = host.lower() == self.domain.lower() and is_runtime_name(local)
        name = local if is_local_id else split_name(wanted_id)[0]
        dated_folders = {"archive" if folder == "inbox" else folder for folder in folders} & {*DATED}
        month_folders = [month for folder in sorted(dated_folders) for month in self.boxes.get(box).months(folder)]
        if name and "/" not in name and not is_leftover(name):
            time_fields = sort_key(name)
            suffix = "" if time_fields is None else f"/{month_of(time_fields[0])}"
            for folder in (*folders, *(month for month in month_folders if month.endswith(suffix))):
                mail_file = self.boxes.get(box, folder).find(name)
                if mail_file is not None:
                    return folder, mail_file
        if not is_local_id:
            for folder in (*folders, *month_folders):
                maildir = self.boxes.get(box, folder)
                newest_first = sorted(maildir.mail_files(), key=time_key, reverse=True)
                for head in self._heads(maildir, newest_first):
                    if head.id == plain_id(wanted_id, self.domain):
                        return folder, head.mail_file
        return None

    def thread(self, box: str, start: Message) -> list[Message]:
        """Return the messages in the thread of `start` from all folders of the mailbox, oldest first, each once.

        Of the monthly archives only those from the month of `start` on are searched, and none if `start` is not archived. A
        message in another month is included if a message of the thread refers to it.
        """
        locations: dict[str, tuple[Maildir, MailFile]] = {}
        neighbours: dict[str, set[str]] = {}
        mailbox = self.boxes.get(box)
        month_folders = [folder for kind in DATED for folder in mailbox.months(kind)]
        first_month = next(
            (
                month_folder[-7:]
                for month_folder in month_folders
                if os.path.dirname(start.path) == mailbox.subfolder(month_folder).cur
            ),
            "9999-99",
        )
        for folder in (
            *SUBFOLDERS,
            *(month_folder for month_folder in month_folders if month_folder[-7:] >= first_month),
        ):
            maildir = self.boxes.get(box, folder)
            for head in self._heads(maildir, maildir.mail_files()):
                locations.setdefault(head.id, (maildir, head.mail_file))
                for other_id in (
                    *head.parsed.references,
                    *([head.parsed.in_reply_to] if head.parsed.in_reply_to else []),
                ):
                    neighbours.setdefault(head.id, set()).add(other_id)
                    neighbours.setdefault(other_id, set()).add(head.id)
        messages = []
        for id_ in sorted(_connected_ids(start.id, neighbours)):
            with suppress(Unreadable):  # the head is readable, but not the rest
                if id_ in locations:
                    messages.append(self.read_message(box, *locations[id_]))
                elif (
                    month_folders
                    and is_runtime_name(id_.rpartition("@")[0])
                    and (location := self.locate(box, id_, DATED)) is not None
                ):
                    messages.append(self.read_message(box, self.boxes.get(box, location[0]), location[1]))
        return sorted(filter(None, messages), key=lambda message: (message.date, message.base))

    def _heads(self, maildir: Maildir, mail_files: Iterable[MailFile]) -> Iterator[Head]:
        """Yield the heads of readable messages. Unreadable ones have no id and belong to no thread."""
        for mail_file in mail_files:
            with suppress(Unreadable):
                head = self.read_head(maildir, mail_file)
                if head is not None:
                    yield head

    @contextmanager
    def _open_letter(self, maildir: Maildir, mail_file: MailFile, limit: int | None) -> Iterator[_FileContent | None]:
        """For the duration of a `with` block, open a letter and yield its content of at most `limit` bytes, or None if it was
        deleted.

        The block examines the content; errors in it become Unreadable. Meanwhile the process is marked (`DeadlyInputs`), to find
        letters that kill their readers.
        """
        with boundary("letter", mail_file.path):
            content = self._read_content(maildir, mail_file, limit)
            if content is None:
                yield None
                return
            _, file_stat, current_file = content
            version = f"{file_stat.st_size}-{file_stat.st_mtime_ns}"
            with self.crashes.reading("letter", _base_key(current_file.base, file_stat), version):
                crash_point("mail.read.opened")
                yield content

    def _read_content(self, maildir: Maildir, mail_file: MailFile, limit: int | None) -> _FileContent | None:
        try:
            content = maildir.read(mail_file, MAX_BYTES + 1 if limit is None else limit)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            content = self._read_through_link(mail_file)
        if content is not None and max(content[1].st_size, len(content[0])) > MAX_BYTES:
            raise ValueError(f"the file has more than {MAX_BYTES >> 20} MiB")
        return content

    def _read_through_link(self, mail_file: MailFile) -> _FileContent:
        """Read the target of a symbolic link. Raises ValueError if the target is outside the hive."""
        try:
            file = open_inside(mail_file.path, self.layout.root, self.roots)
        except (UserError, OSError) as error:
            raise ValueError(f"it is a symbolic link that cannot be followed: {error}") from None
        with open(file, "rb") as stream:
            return stream.read(MAX_BYTES + 1), os.lstat(mail_file.path), mail_file


def _base_key(base: str, file_stat: os.stat_result) -> str:
    return base if is_unique_name(base) else f"{original_base(base)}@{file_stat.st_size:x}-{file_stat.st_mtime_ns:x}"


def _letter_date(parsed_letter: ParsedLetter, file_stat: os.stat_result) -> datetime:
    return parsed_letter.date or datetime.fromtimestamp(min(max(0.0, file_stat.st_mtime), _LAST_S), UTC)


def _connected_ids(start_id: str, neighbours: dict[str, set[str]]) -> set[str]:
    connected_ids, pending_ids = {start_id}, [start_id]
    while pending_ids:
        for other_id in neighbours.get(pending_ids.pop(), ()):
            if other_id not in connected_ids:
                connected_ids.add(other_id)
                pending_ids.append(other_id)
    return connected_ids
