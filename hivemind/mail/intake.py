"""What an agent takes in: every message once, across crashes and restarts and whatever mail programs do meanwhile.

The order is: the caller makes its block (named by the Message-ID), `taken` records the file's key, then moves the file
to cur/ with `S`. A crash before the record gives the message out again, for the same block; after it never again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from hivemind.boundary import Unreadable
from hivemind.errors import UnknownVersion, UserError, is_disk_full
from hivemind.fs import Log, make_folder, reached, set_aside
from hivemind.mail.mail import Mail
from hivemind.mail.maildir import Entry
from hivemind.mail.message import Message
from hivemind.mail.reading import entry_key, time_key
from hivemind.names import check_name

_log = logging.getLogger(__name__)
_WORDS = ("taken", "failed", "dead")
_KEPT = 4096  # names that are in no folder any more are remembered this long, should someone bring one back


def _open_log(path: str, *, durable: bool) -> Log:
    return Log(path, "mail-taken", 2, durable=durable)


def _read(log: Log) -> Iterator[tuple[str, str]]:
    """What a record says and of which key; what is no such record is left out."""
    for record in log.read():
        for word, key in record.items():
            if word in _WORDS and isinstance(key, str):
                yield word, key


class TakenRecord:
    """`taken` are the keys of messages that were taken in; `failures` counts for those that were not."""

    __slots__ = ("_lines", "_log", "failures", "is_damaged", "taken")

    def __init__(self, path: str, durable: bool) -> None:
        """Reads the record. Raises UnknownVersion for one of another version, OSError."""
        self._log = _open_log(path, durable=durable)
        self._lines = 0
        self.taken: dict[str, None] = {}
        self.failures: dict[str, int] = {}
        self.is_damaged = False  # what was there was no such record, and is kept beside: this one begins anew
        try:
            for word, key in _read(self._log):
                self._apply(word, key)
            begun = os.path.isfile(path) and os.path.getsize(path) > 0
            problem = "is damaged" if begun and not self._log.has_header else ""
        except UnknownVersion:
            raise
        except UserError as error:
            problem = error.what
        if problem:
            _log.warning("%s %s: kept as %s", path, problem, set_aside(path).name)
            self.is_damaged = True

    def _apply(self, word: str, key: str) -> None:
        self._lines += 1
        if word == "failed":
            self.failures[key] = self.failures.get(key, 0) + 1
            return
        self.failures.pop(key, None)
        if word == "taken":
            self.taken[key] = None

    def add(self, word: str, key: str) -> None:
        """Record one of `taken`, `failed`, `dead`. Raises UserError if it cannot be written; then nothing has changed."""
        self._log.append({word: key})
        self._apply(word, key)

    def overgrown(self, present: int) -> bool:
        """True if most of the file is about messages that are gone, when so many are `present`."""
        return self._lines > 4 * _KEPT + 2 * present

    def compact(self, present: Collection[str]) -> None:
        """Forget all but the newest 4096 of the names that are not `present` in the folders."""
        gone = [key for key in self.taken if key not in present]
        for key in gone[: max(0, len(gone) - _KEPT)]:
            del self.taken[key]
        self.failures = {key: times for key, times in self.failures.items() if key in present}
        records = [{"taken": key} for key in self.taken]
        records += [{"failed": key} for key, times in self.failures.items() for _ in range(times)]
        self._log.rewrite(records)
        self._lines = len(records)


def read_taken(path: str | os.PathLike[str]) -> set[str]:
    """The keys that a record says were taken in; for who only looks. None for a file that is not there or is no record."""
    try:
        return {key for word, key in _read(_open_log(os.fspath(path), durable=False)) if word == "taken"}
    except (OSError, UserError):
        return set()


_YOUNG_NS = 2_000_000_000  # time stamps may be this coarse: a second change can hide behind an equal one


class Glance:
    """What was last seen of a folder's time. Times are compared for being equal, never for being later."""

    __slots__ = ("_cost_s", "_every_s", "_folder", "_listed_at", "_seen", "_young")

    def __init__(self, folder: str, every_s: float) -> None:
        """`every_s`: a listing this old is not believed in any case (clocks differ, events are lost)."""
        self._folder = folder
        self._every_s = every_s
        self._seen: tuple[int, int] | None = None
        self._young = True
        self._listed_at = float("-inf")
        self._cost_s = 0.0

    def changed(self, patient: bool = False) -> bool:
        """True if the folder may have changed since `listing`.

        A time stamp younger than two seconds may hide a second change. Where `patient`, that doubt alone is not acted
        on until two seconds after the last listing, nor before fifty times what that listing took.
        """
        if self._now() != self._seen:
            return True
        age = time.monotonic() - self._listed_at
        if self._young and (not patient or age > max(2.0, 50 * self._cost_s)):
            return True
        return age > self._every_s

    def listing(self) -> None:
        """To be called just before the folder is listed."""
        self._seen = self._now()
        self._young = self._seen is None or abs(time.time_ns() - self._seen[1]) < _YOUNG_NS
        self._listed_at = time.monotonic()

    def listed(self) -> None:
        """To be called when the listing is done."""
        self._cost_s = time.monotonic() - self._listed_at

    def before_own(self) -> bool:
        """True if nobody has changed the folder since the listing; to be asked before a change of our own."""
        return self._now() == self._seen

    def after_own(self, clean: bool) -> None:
        """Take a change of our own for seen, if `before_own` was true."""
        if clean:
            self._seen = self._now()
            self._young = True

    def _now(self) -> tuple[int, int] | None:
        try:
            state = os.stat(self._folder)
        except FileNotFoundError:
            return None
        return state.st_ino, state.st_mtime_ns


_FAILURES = 3  # times that a handler may fail
_NEW_S = 10.0
_CUR_S = 60.0


class Intake:
    """The messages of one agent's mailbox that it has not taken in yet. One process at a time may have it open."""

    def __init__(self, mail: Mail, agent: str, state_folder: Path) -> None:
        """Opens the record in `state_folder` (made if missing), finishes what a crash cut short. Raises UserError."""
        self._mail = mail
        self._agent = check_name(agent, "agent name")
        mail.ensure(self._agent)
        self._box = mail.boxes.get(self._agent)
        make_folder(state_folder, durable=mail.durable)
        self._record = TakenRecord(os.path.join(state_folder, "mail-taken"), mail.durable)
        self._waiting: dict[str, Entry] = {}
        self._new = Glance(self._box.new, _NEW_S)
        self._cur = Glance(self._box.cur, _CUR_S)
        self.unsettled = 0
        """How many files the last look left alone because they are still being written: look again soon."""
        if self._record.is_damaged:
            self._begin_anew()
        self._finish()

    def new(self, limit: int | None = None, but: Collection[str] = ()) -> list[Message]:
        """The messages not taken in yet, oldest first, at most `limit`; from new/ and from cur/. Those with the keys `but` are
        left out: the caller has them still.

        Messages stay in the list until `taken` or `failed` is called for them. What cannot be read goes to `.Dead`.
        Lists a folder only when its time has changed, opens only the files that it returns.
        """
        enough = limit is not None and len(self._waiting) - len(but) > limit
        if not enough:
            self._look()
        found = self._collect(limit, but)
        if enough and limit is not None and len(found) < limit:  # not all that waits can be read yet
            self._look()
            found = self._collect(limit, but)
        return found

    def taken(self, message: Message) -> None:
        """Record that the message is a block now, then move it to cur/ as seen. A second call does nothing more.

        Raises UserError if it cannot be recorded: then `new` gives it out again. Raises OSError if it cannot be moved:
        it is recorded all the same, and will not be given out again.
        """
        if message.key not in self._record.taken:
            self._record.add("taken", message.key)
        reached("mail.intake.recorded")
        self._waiting.pop(message.key, None)
        self._move(Entry(message.base, message.flags, message.path, os.path.dirname(message.path) == self._box.new))
        reached("mail.intake.moved")

    def failed(self, message: Message, reason: str) -> bool:
        """Count that the message's handler failed; the third time it goes to `.Dead`. True if it is there now."""
        self._record.add("failed", message.key)
        reached("mail.intake.counted")
        times = self._record.failures[message.key]
        if times < _FAILURES:
            return False
        self.give_up(message, f"its handler failed {times} times, the last time: {reason}")
        return True

    def give_up(self, message: Message, reason: str) -> None:
        """Move the message to `.Dead` now, with the reason beside it."""
        entry = self._waiting.get(message.key) or Entry(message.base, message.flags, message.path, True)
        self._bury(message.key, entry, reason)

    # -- looking

    def _look(self) -> None:
        """Bring `_waiting` up to date with the folders, as far as they have changed."""
        new, cur = self._new.changed(), self._cur.changed(patient=True)
        if not new and not cur:
            return
        fresh: dict[str, Entry] = {}
        present: set[str] = set()
        for glance, wanted, is_new in ((self._new, new, True), (self._cur, cur, False)):
            if wanted:
                glance.listing()
                self._list(is_new, present, fresh)
                glance.listed()
        if fresh:
            waiting = [*self._waiting.items(), *fresh.items()]
            waiting.sort(key=lambda item: time_key(item[1]))
            self._waiting = dict(waiting)
        if new and cur and self._record.overgrown(len(present)):
            self._record.compact(present)

    def _list(self, new: bool, present: set[str], fresh: dict[str, Entry]) -> None:
        taken = self._record.taken
        for entry in self._box.entries(new):
            key = self._key(entry)
            if key is not None:
                present.add(key)
                if key not in taken and key not in self._waiting:
                    fresh[key] = entry

    def _collect(self, limit: int | None, but: Collection[str]) -> list[Message]:
        self.unsettled = 0
        found: list[Message] = []
        opened = set(but)
        while True:
            next_ones = islice(self._waiting.items(), None if limit is None else limit + len(opened))
            todo = [(key, entry) for key, entry in next_ones if key not in opened]  # never a copy of a long backlog
            if not todo:
                return found
            for key, entry in todo:
                opened.add(key)
                message = self._open(key, entry)
                if message is not None:
                    found.append(message)
                if len(found) == limit:
                    return found

    def _key(self, entry: Entry) -> str | None:
        try:
            return entry_key(entry)
        except FileNotFoundError:  # a hand-named file that is gone, or was renamed: the next listing has it
            return None

    def _open(self, key: str, entry: Entry) -> Message | None:
        if not self._mail.reader.settled(entry):
            self.unsettled += 1
            return None
        if self._record.failures.get(key, 0) >= _FAILURES:
            self._bury(key, entry, f"its handler failed {_FAILURES} times")
            return None
        try:
            message = self._mail.reader.read_message(self._agent, self._box, entry)
        except Unreadable as unreadable:
            try:
                self._bury(key, entry, unreadable.what)
            except (OSError, UserError) as error:
                if not is_disk_full(error):
                    raise
                self.unsettled += 1  # it stays where it is until there is room
            return None
        if message is None or message.key != key:  # deleted, or another file of that hand-given name: it has its turn
            del self._waiting[key]
            return None
        return message

    # -- moving

    def _begin_anew(self) -> None:
        """What was taken in had been moved to cur/ and marked as seen: not all of a mailbox's past is given out again."""
        seen = {key for entry in self._box.entries(False) if "S" in entry.flags and (key := self._key(entry))}
        self._record.taken.update(dict.fromkeys(seen))
        self._record.compact(seen)

    def _finish(self) -> None:
        """Moves of messages that are recorded may not have happened, or a power cut has undone them."""
        for entry in self._box.entries(True):
            if self._key(entry) in self._record.taken:
                self._move(entry)

    def _move(self, entry: Entry) -> None:
        clean = self._cur.before_own()
        self._box.flag(entry, "S")  # not synced: what a power cut undoes `_finish` does
        self._cur.after_own(clean)

    def _bury(self, key: str, entry: Entry, reason: str) -> None:
        self._mail.bury(self._agent, entry, reason)
        self._record.add("dead", key)
        self._waiting.pop(key, None)


def count_waiting(mail: Mail, agent: str, state_folder: Path) -> int:
    """How many unread messages an agent has not taken in: what a person marks unread again is not new to it.

    For who looks from another process.
    """
    entries = [entry for entry in mail.boxes.get(check_name(agent, "agent name")).entries() if "S" not in entry.flags]
    if not entries:
        return 0
    taken = read_taken(os.path.join(state_folder, "mail-taken"))
    waiting = 0
    for entry in entries:
        try:
            waiting += entry_key(entry) not in taken
        except FileNotFoundError:  # gone, or renamed meanwhile: the next look counts it
            waiting += 1
    return waiting
