"""Reading: from the file in a mailbox to a message, and from a Message-ID to the file."""

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
from hivemind.layout import Layout, month_of
from hivemind.mail.maildir import (
    DATED,
    SUBFOLDERS,
    Boxes,
    Entry,
    Maildir,
    is_dropping,
    is_own,
    is_unique,
    sort_key,
    split,
    stem,
)
from hivemind.mail.message import Message, MessageSummary, preview
from hivemind.mail.parse import Parsed, derived_id, parse_message, plain_id
from hivemind.mail.seal import Seal

__all__ = ["MAX_BYTES", "Head", "Reader", "entry_key", "time_key"]

_Content = tuple[bytes, os.stat_result, Entry]
MAX_BYTES = 32 << 20  # a larger file is no message
_HEAD_BYTES = 8192
_LAST_S = 2.0**37  # a file system may hold times that no calendar has
_EPOCH = datetime.fromtimestamp(0, UTC)


def entry_key(entry: Entry) -> str:
    """What a message file is known by, wherever it is moved and whatever flags it has.

    The base name where that is unique. A name that a person gave may come again with another text: size and time of
    writing tell the files apart then, also in a hive that was put back from a copy. Raises FileNotFoundError.
    """
    return entry.base if is_unique(entry.base) else _key(entry.base, os.lstat(entry.path))


def time_key(entry: Entry) -> tuple[int, int, int, int, str]:
    """Sorts messages oldest first: by the time in the name, for a hand-given name by the file's. Never raises."""
    key = sort_key(entry.base)
    if key is None:
        try:
            when = os.lstat(entry.path).st_mtime_ns
        except OSError:  # gone or renamed meanwhile: its place in the order does not matter
            when = 0
        key = (when // 10**9, when // 1000 % 10**6, 0, 0)
    return *key, entry.base


@frozen
class Head:
    """What the beginning of a message says, its Message-ID and date, and where it lies now."""

    parsed: Parsed
    id: str
    date: datetime
    entry: Entry


@frozen
class Reader:
    """Reads messages of any mailbox; `settle_ms` is how long a hand-written file rests where only polling sees it."""

    layout: Layout
    boxes: Boxes
    seal: Seal
    domain: str
    settle_ms: float
    roots: tuple[Path, ...]
    crashes: CrashCount

    def settled(self, entry: Entry) -> bool:
        """False while someone is still writing the file. What the runtime delivered was finished before it came."""
        try:
            with boundary("letter", entry.path):
                if not entry.new or is_own(entry.base) or is_settled(entry.path, self.settle_ms, datetime.now(UTC)):
                    return True
        except Unreadable:  # reading it says why
            return True
        return os.path.islink(entry.path) and not os.path.exists(entry.path)  # it leads to nothing: no use waiting

    def read_message(self, box: str, maildir: Maildir, entry: Entry) -> Message | None:
        """The whole message, or None if it has been deleted meanwhile. Raises Unreadable, OSError."""
        with self._opened(maildir, entry, None) as content:
            return None if content is None else self._message(box, *content)

    def _message(self, box: str, raw: bytes, state: os.stat_result, found: Entry) -> Message:
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

    def summary(self, box: str, maildir: Maildir, entry: Entry) -> MessageSummary | None:
        """The message as a listing shows it, or None if it has been deleted; what cannot be read says why."""
        try:
            head = self.read_head(maildir, entry)
        except Unreadable as error:
            subject = f"(unreadable: {error.what})"
            return MessageSummary(entry.base, "?", (box,), subject, _EPOCH, entry.flags, entry.path, "")
        if head is None:
            return None
        parsed, date, found = head.parsed, head.date, head.entry
        to = parsed.to or (box,)
        return MessageSummary(
            head.id, parsed.sender, to, parsed.subject, date, found.flags, found.path, preview(parsed.body)
        )

    def is_sealed(self, maildir: Maildir, entry: Entry) -> bool:
        """Whether the runtime wrote the message, as it stands. Raises OSError."""
        with suppress(Unreadable), self._opened(maildir, entry, None) as content:
            return content is not None and self.seal.holds(content[0])
        return False

    def read_head(self, maildir: Maildir, entry: Entry) -> Head | None:
        """What the first 8 KiB say, or None if it has been deleted meanwhile. Raises Unreadable, OSError."""
        with self._opened(maildir, entry, _HEAD_BYTES) as content:
            return None if content is None else self._head(maildir, *content)

    def _head(self, maildir: Maildir, raw: bytes, state: os.stat_result, found: Entry) -> Head | None:
        whole = state.st_size <= len(raw)
        parsed = parse_message(raw, self.domain, whole=whole)
        if not whole and (parsed.id is None or parsed.body_at >= len(raw)):  # long headers, or an id made from it all
            content = self._content(maildir, found, None)
            if content is None:
                return None
            raw, state, found = content
            parsed = parse_message(raw, self.domain)
        id_ = parsed.id or derived_id(raw, stem(found.base), state.st_mtime_ns, self.domain)
        return Head(parsed, id_, _date(parsed, state), found)

    def locate(self, box: str, id_: str, folders: Collection[str]) -> tuple[str, Entry] | None:
        """The folder and file of the message with that Message-ID, or that base name.

        One of our own ids holds the name of its file; any other is looked for in the headers, newest first. What is in none of
        them is looked for in their archives: by the month that stands in the name, where one does.
        """
        wanted = id_.strip().removeprefix("<").removesuffix(">")
        local, _, host = wanted.rpartition("@")
        ours = host.lower() == self.domain.lower() and is_own(local)
        name = local if ours else split(wanted)[0]
        kept = {"archive" if folder == "inbox" else folder for folder in folders} & {*DATED}
        older = [month for folder in sorted(kept) for month in self.boxes.get(box).months(folder)]
        if name and "/" not in name and not is_dropping(name):
            when = sort_key(name)
            months = older if when is None else [one for one in older if one.endswith(f"/{month_of(when[0])}")]
            for folder in (*folders, *months):
                found = self.boxes.get(box, folder).find(name)
                if found is not None:
                    return folder, found
        if not ours:
            for folder in (*folders, *older):
                maildir = self.boxes.get(box, folder)
                newest_first = sorted(maildir.entries(), key=time_key, reverse=True)
                for head in self._heads(maildir, newest_first):
                    if head.id == plain_id(wanted, self.domain):
                        return folder, head.entry
        return None

    def thread(self, box: str, start: Message) -> list[Message]:
        """Every message of the mailbox and its sub-folders in the thread of `start`, oldest first, each once. Of the archive's:
        those that these refer to, and where `start` lies there, those of its month and later."""
        found: dict[str, tuple[Maildir, Entry]] = {}
        joined: dict[str, set[str]] = {}
        own = self.boxes.get(box)
        there = [folder for kind in DATED for folder in own.months(kind)]
        since = next((one[-7:] for one in there if os.path.dirname(start.path) == own.sub(one).cur), "9999-99")
        for folder in (*SUBFOLDERS, *(one for one in there if one[-7:] >= since)):
            maildir = self.boxes.get(box, folder)
            for head in self._heads(maildir, maildir.entries()):
                found.setdefault(head.id, (maildir, head.entry))
                for other in (*head.parsed.references, *([head.parsed.in_reply_to] if head.parsed.in_reply_to else [])):
                    joined.setdefault(head.id, set()).add(other)
                    joined.setdefault(other, set()).add(head.id)
        messages = []
        for id_ in sorted(_reachable(start.id, joined)):
            with suppress(Unreadable):  # its head can be read, the rest cannot
                if id_ in found:
                    messages.append(self.read_message(box, *found[id_]))
                elif there and is_own(id_.rpartition("@")[0]) and (older := self.locate(box, id_, DATED)) is not None:
                    messages.append(self.read_message(box, self.boxes.get(box, older[0]), older[1]))
        return sorted(filter(None, messages), key=lambda message: (message.date, message.base))

    def _heads(self, maildir: Maildir, entries: Iterable[Entry]) -> Iterator[Head]:
        """The heads of the messages that can be read: any other belongs to no thread, and has no id to be found by."""
        for entry in entries:
            with suppress(Unreadable):
                head = self.read_head(maildir, entry)
                if head is not None:
                    yield head

    @contextmanager
    def _opened(self, maildir: Maildir, entry: Entry, limit: int | None) -> Iterator[_Content | None]:
        """The boundary of letters: all that looks into one stands in here, and its process is known should it die."""
        with boundary("letter", entry.path):
            content = self._content(maildir, entry, limit)
            if content is None:
                yield None
                return
            _, state, found = content
            version = f"{state.st_size}-{state.st_mtime_ns}"
            with self.crashes.reading("letter", _key(found.base, state), version):
                reached("mail.read.opened")
                yield content

    def _content(self, maildir: Maildir, entry: Entry, limit: int | None) -> _Content | None:
        try:
            found = maildir.read(entry, MAX_BYTES + 1 if limit is None else limit)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            found = self._through_link(entry)
        if found is not None and max(found[1].st_size, len(found[0])) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
        return found

    def _through_link(self, entry: Entry) -> _Content:
        """A symbolic link is read if it stays in the hive."""
        try:
            file = open_inside(entry.path, self.layout.root, self.roots)
        except (UserError, OSError) as error:
            raise ValueError(f"it is a symbolic link that cannot be followed: {error}") from None
        with open(file, "rb") as opened:
            return opened.read(MAX_BYTES + 1), os.lstat(entry.path), entry


def _key(base: str, state: os.stat_result) -> str:
    return base if is_unique(base) else f"{stem(base)}@{state.st_size:x}-{state.st_mtime_ns:x}"


def _date(parsed: Parsed, state: os.stat_result) -> datetime:
    return parsed.date or datetime.fromtimestamp(min(max(0.0, state.st_mtime), _LAST_S), UTC)


def _reachable(start: str, joined: dict[str, set[str]]) -> set[str]:
    seen, todo = {start}, [start]
    while todo:
        for other in joined.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen
