"""Pass each message of a mailbox to its agent once, across crashes, restarts and changes by mail programs.

The caller first stores the message in the agent's memory, as a block named by the Message-ID. Then it calls `mark_taken`, which
records the file's key and moves the file to cur/ with the flag `S` (seen). If a crash comes before the key is recorded, the
message is returned again and its block is overwritten. After that it is never returned again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from hivemind.boundary import Unreadable
from hivemind.errors import UnknownVersion, UserError, is_disk_full
from hivemind.fs import Log, crash_point, make_folder, set_aside
from hivemind.logger import logger
from hivemind.mail.mail import Mail
from hivemind.mail.maildir import MailFile
from hivemind.mail.message import Message
from hivemind.mail.reading import file_key, time_key
from hivemind.names import check_name

_log = logger(__name__)
_OUTCOMES = ("taken", "failed", "dead")
_MAX_GONE_KEYS = 4096  # keys of removed messages that are remembered, in case a message is put back


def _open_log(path: str) -> Log:
    return Log(path, "mail-taken", 2)


def _read_outcomes(log: Log) -> Iterator[tuple[str, str]]:
    """Yield (outcome, key of the message) for each line of the record. Unknown lines are skipped."""
    for record in log.read():
        for outcome, key in record.items():
            if outcome in _OUTCOMES and isinstance(key, str):
                yield outcome, key


class IntakeRecord:
    """The durable record of the messages that an agent has taken in or failed to handle.

    `taken_keys` are the keys of messages that were taken in. `failure_counts` counts the failures of the other messages.
    """

    __slots__ = ("_line_count", "_log", "failure_counts", "is_damaged", "taken_keys")

    def __init__(self, path: str) -> None:
        """Read the record at `path`, which may be missing. Raises UnknownVersion and OSError."""
        self._log = _open_log(path)
        self._line_count = 0
        self.taken_keys: dict[str, None] = {}
        self.failure_counts: dict[str, int] = {}
        self.is_damaged = False
        """True if the file was not a record. The file is kept under another name, and this record starts empty."""
        try:
            for outcome, key in _read_outcomes(self._log):
                self._apply(outcome, key)
            has_content = os.path.isfile(path) and os.path.getsize(path) > 0
            problem = "is damaged" if has_content and not self._log.has_header else ""
        except UnknownVersion:
            raise
        except UserError as error:
            problem = error.message
        if problem:
            _log.warning("%s %s: kept as %s", path, problem, set_aside(path).name)
            self.is_damaged = True

    def _apply(self, outcome: str, key: str) -> None:
        self._line_count += 1
        if outcome == "failed":
            self.failure_counts[key] = self.failure_counts.get(key, 0) + 1
            return
        self.failure_counts.pop(key, None)
        if outcome == "taken":
            self.taken_keys[key] = None

    def add(self, outcome: str, key: str) -> None:
        """Record an outcome for the message `key`: `taken`, `failed` or `dead` (given up).

        Raises UserError if writing fails; nothing has changed then.
        """
        self._log.append({outcome: key})
        self._apply(outcome, key)

    def is_overgrown(self, present_count: int) -> bool:
        """Check whether most lines are about removed messages, given the number of messages in the folders."""
        return self._line_count > 4 * _MAX_GONE_KEYS + 2 * present_count

    def compact(self, present_keys: Collection[str]) -> None:
        """Of the taken keys that are not in `present_keys`, forget all but the newest 4096."""
        gone_keys = [key for key in self.taken_keys if key not in present_keys]
        for key in gone_keys[: max(0, len(gone_keys) - _MAX_GONE_KEYS)]:
            del self.taken_keys[key]
        self.failure_counts = {
            key: failure_count for key, failure_count in self.failure_counts.items() if key in present_keys
        }
        records = [{"taken": key} for key in self.taken_keys]
        records += [{"failed": key} for key, failure_count in self.failure_counts.items() for _ in range(failure_count)]
        self._log.rewrite(records)
        self._line_count = len(records)


_TIMESTAMP_DOUBT_NS = 2_000_000_000  # time stamps may be this coarse: two changes within this time can have equal ones


class FolderChange:
    """A detector of changes of a folder, by the folder's modification time. Times are compared for equality only."""

    __slots__ = ("_folder", "_is_young", "_listed_at", "_listed_state", "_listing_s", "_max_age_s")

    def __init__(self, folder: str, max_age_s: float) -> None:
        """Watch a folder. A listing older than `max_age_s` is repeated in any case (clocks differ, events are lost)."""
        self._folder = folder
        self._max_age_s = max_age_s
        self._listed_state: tuple[int, int] | None = None
        self._is_young = True
        self._listed_at = float("-inf")
        self._listing_s = 0.0

    def may_have_changed(self, is_patient: bool = False) -> bool:
        """Check whether the folder may have changed since the last listing.

        A time stamp that was younger than two seconds at the listing is not reliable: the folder may have changed again under the
        same stamp. Then this returns True at once. With `is_patient` it returns True only after two seconds, and after fifty
        times the duration of the last listing.
        """
        if self._state() != self._listed_state:
            return True
        age = time.monotonic() - self._listed_at
        if self._is_young and (not is_patient or age > max(2.0, 50 * self._listing_s)):
            return True
        return age > self._max_age_s

    def begin_listing(self) -> None:
        """Note the folder's state. Call this just before listing the folder."""
        self._listed_state = self._state()
        self._is_young = self._listed_state is None or abs(time.time_ns() - self._listed_state[1]) < _TIMESTAMP_DOUBT_NS
        self._listed_at = time.monotonic()

    def end_listing(self) -> None:
        """Note the duration of the listing. Call this just after listing the folder."""
        self._listing_s = time.monotonic() - self._listed_at

    def is_unchanged(self) -> bool:
        """Check that the folder has not changed since the listing. Call this before changing the folder."""
        return self._state() == self._listed_state

    def accept_own_change(self, was_unchanged: bool) -> None:
        """Treat the folder as listed after the caller's own change, unless others had changed it before (`was_unchanged` is
        False).
        """
        if was_unchanged:
            self._listed_state = self._state()
            self._is_young = True

    def _state(self) -> tuple[int, int] | None:
        try:
            folder_stat = os.stat(self._folder)
        except FileNotFoundError:
            return None
        return folder_stat.st_ino, folder_stat.st_mtime_ns


_MAX_FAILURES = 3  # after so many failures of its handler a message goes to .Dead
_MAX_NEW_AGE_S = 10.0
_MAX_CUR_AGE_S = 60.0


class Intake:
    """The messages in an agent's mailbox that the agent has not taken in yet. For one process at a time."""

    def __init__(self, mail: Mail, agent: str, state_folder: Path) -> None:
        """Open or create the record in `state_folder` and finish moves that a crash interrupted. Raises UserError."""
        self._mail = mail
        self._agent = check_name(agent, "agent name")
        mail.ensure(self._agent)
        self._box = mail.mailboxes.get(self._agent)
        make_folder(state_folder)
        self._record = IntakeRecord(os.path.join(state_folder, "mail-taken"))
        self._backlog: dict[str, MailFile] = {}
        self._new_folder = FolderChange(self._box.new, _MAX_NEW_AGE_S)
        self._cur_folder = FolderChange(self._box.cur, _MAX_CUR_AGE_S)
        self.unsettled_count = 0
        """The number of files that the last call skipped because they are still being written. Try again soon."""
        if self._record.is_damaged:
            self._rebuild_record()
        self._finish_moves()

    def new_messages(self, limit: int | None = None, excluded_keys: Collection[str] = ()) -> list[Message]:
        """Return the messages in new/ and cur/ that are not taken in yet, oldest first, at most `limit`.

        `excluded_keys` are messages that the caller still has. A message is returned until it is marked by `mark_taken`
        or moved to `.Dead`, as unreadable messages are. A folder is listed only if its time has changed; only files of
        returned messages are opened.
        """
        has_enough = limit is not None and len(self._backlog) - len(excluded_keys) > limit
        if not has_enough:
            self._update_backlog()
        messages = self._collect(limit, excluded_keys)
        if has_enough and limit is not None and len(messages) < limit:  # some files are still being written
            self._update_backlog()
            messages = self._collect(limit, excluded_keys)
        return messages

    def mark_taken(self, message: Message) -> None:
        """Record that the agent's memory has the message now, then move its file to cur/ as seen. A second call has no effect.

        Raises UserError if the record cannot be written: `new_messages` then returns the message again. Raises OSError if the
        file cannot be moved: the message is recorded nevertheless and not returned again.
        """
        if message.key not in self._record.taken_keys:
            self._record.add("taken", message.key)
        crash_point("mail.intake.recorded")
        self._backlog.pop(message.key, None)
        self._move(MailFile(message.base, message.flags, message.path, os.path.dirname(message.path) == self._box.new))
        crash_point("mail.intake.moved")

    def count_failure(self, message: Message, reason: str) -> bool:
        """Count a failure of the message's handler. After the third failure, move the message to `.Dead` and return True."""
        self._record.add("failed", message.key)
        crash_point("mail.intake.counted")
        failure_count = self._record.failure_counts[message.key]
        if failure_count < _MAX_FAILURES:
            return False
        self.give_up(message, f"its handler failed {failure_count} times, the last time: {reason}")
        return True

    def give_up(self, message: Message, reason: str | None = None) -> None:
        """Tell the sender that nobody answers, move the message to `.Dead`, and write the reason there.

        The default reason is that the sender is unknown.
        """
        reason = self._mail.bounce(message, reason)
        mail_file = self._backlog.get(message.key) or MailFile(message.base, message.flags, message.path, True)
        self._bury(message.key, mail_file, reason)

    # -- listing and reading

    def _update_backlog(self) -> None:
        """Update the list of messages that are not taken in yet, from the folders that have changed."""
        new_changed, cur_changed = (
            self._new_folder.may_have_changed(),
            self._cur_folder.may_have_changed(is_patient=True),
        )
        if not new_changed and not cur_changed:
            return
        new_files: dict[str, MailFile] = {}
        present_keys: set[str] = set()
        for folder, has_changed, is_new in (
            (self._new_folder, new_changed, True),
            (self._cur_folder, cur_changed, False),
        ):
            if has_changed:
                folder.begin_listing()
                self._list_folder(is_new, present_keys, new_files)
                folder.end_listing()
        if new_files:
            backlog = [*self._backlog.items(), *new_files.items()]
            backlog.sort(key=lambda key_and_file: time_key(key_and_file[1]))
            self._backlog = dict(backlog)
        if new_changed and cur_changed and self._record.is_overgrown(len(present_keys)):
            self._record.compact(present_keys)

    def _list_folder(self, in_new: bool, present_keys: set[str], new_files: dict[str, MailFile]) -> None:
        taken_keys = self._record.taken_keys
        for mail_file in self._box.mail_files(in_new):
            key = self._key(mail_file)
            if key is not None:
                present_keys.add(key)
                if key not in taken_keys and key not in self._backlog:
                    new_files[key] = mail_file

    def _collect(self, limit: int | None, excluded_keys: Collection[str]) -> list[Message]:
        self.unsettled_count = 0
        messages: list[Message] = []
        opened_keys = set(excluded_keys)
        while True:
            next_files = islice(self._backlog.items(), None if limit is None else limit + len(opened_keys))
            # a long backlog is never copied
            unopened_files = [(key, file) for key, file in next_files if key not in opened_keys]
            if not unopened_files:
                return messages
            for key, mail_file in unopened_files:
                opened_keys.add(key)
                message = self._open(key, mail_file)
                if message is not None:
                    messages.append(message)
                if len(messages) == limit:
                    return messages

    def _key(self, mail_file: MailFile) -> str | None:
        try:
            return file_key(mail_file)
        except FileNotFoundError:  # a hand-named file was deleted or renamed; a renamed one is in the next listing
            return None

    def _open(self, key: str, mail_file: MailFile) -> Message | None:
        if not self._mail.reader.is_finished(mail_file):
            self.unsettled_count += 1
            return None
        if self._record.failure_counts.get(key, 0) >= _MAX_FAILURES:
            self._bury(key, mail_file, f"its handler failed {_MAX_FAILURES} times")
            return None
        try:
            message = self._mail.reader.read_message(self._agent, self._box, mail_file)
        except Unreadable as unreadable:
            try:
                self._bury(key, mail_file, unreadable.message)
            except (OSError, UserError) as error:
                if not is_disk_full(error):
                    raise
                self.unsettled_count += 1  # the message stays until the disk has room
            return None
        # deleted, or replaced by a file of the same name, which is listed separately
        if message is None or message.key != key:
            del self._backlog[key]
            return None
        return message

    # -- moving

    def _rebuild_record(self) -> None:
        """Record all seen messages in cur/ as taken in, so old mail is not returned again after the record was lost."""
        seen_keys = {
            key for mail_file in self._box.mail_files(False) if "S" in mail_file.flags and (key := self._key(mail_file))
        }
        self._record.taken_keys.update(dict.fromkeys(seen_keys))
        self._record.compact(seen_keys)

    def _finish_moves(self) -> None:
        """Move recorded messages out of new/: a crash may have prevented their move, or a power cut undone it."""
        for mail_file in self._box.mail_files(True):
            if self._key(mail_file) in self._record.taken_keys:
                self._move(mail_file)

    def _move(self, mail_file: MailFile) -> None:
        was_unchanged = self._cur_folder.is_unchanged()
        self._box.flag(mail_file, "S", sync_now=False)  # `_finish_moves` repeats a move that a power cut undid
        self._cur_folder.accept_own_change(was_unchanged)

    def _bury(self, key: str, mail_file: MailFile, reason: str) -> None:
        self._mail.bury(self._agent, mail_file, reason)
        self._record.add("dead", key)
        self._backlog.pop(key, None)


def count_backlog(mail: Mail, agent: str, state_folder: Path) -> int:
    """Count the unread messages that an agent has not taken in. Other processes may call this.

    A message that a person marks as unread again does not count: the agent took it in.
    """
    unread_files = [
        file for file in mail.mailboxes.get(check_name(agent, "agent name")).mail_files() if "S" not in file.flags
    ]
    if not unread_files:
        return 0
    taken_keys = set[str]()
    with suppress(OSError, UserError):  # a missing or invalid record has none
        log = _open_log(os.path.join(state_folder, "mail-taken"))
        taken_keys = {key for outcome, key in _read_outcomes(log) if outcome == "taken"}
    backlog_count = 0
    for mail_file in unread_files:
        try:
            backlog_count += file_key(mail_file) not in taken_keys
        except FileNotFoundError:  # deleted or renamed meanwhile
            backlog_count += 1
    return backlog_count
