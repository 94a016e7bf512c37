"""Sending: written once, linked into `.Sent` and into each recipient's new/, told of by their bells.

`.Sent` comes first: what recipients have, the sender can look up. Each recipient then has the message or has it not;
the report says which, and a second send under the same Message-ID goes on where the first one stopped.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from hivemind.errors import UserError, is_disk_full
from hivemind.frozen import frozen
from hivemind.fs import DamagedRecord, Log, make_folder, reached
from hivemind.fs.doorbell import Ringer
from hivemind.layout import EXCHANGE, POSTMASTER, Layout, month_of
from hivemind.mail.addressing import Addressing, Recipient
from hivemind.mail.compose import Draft, bounce, compose
from hivemind.mail.header import one_line
from hivemind.mail.maildir import Boxes, Maildir, Names, is_own, sort_key
from hivemind.mail.message import DISK_FULL, SendReport
from hivemind.mail.reading import MAX_BYTES
from hivemind.mail.seal import Seal


class SentMemo:
    """The memory of one Message-ID, for who has it `open`.

    `base` is the file name that the message has everywhere (None if this is the first send), `outcomes` what is known
    of each recipient: `delivered`, `failed` or `bounced`.
    """

    __slots__ = ("_id", "_log", "base", "outcomes")

    def __init__(self, folder: Path, message_id: str, *, durable: bool) -> None:
        digest = hashlib.sha256(message_id.encode()).hexdigest()[:40]
        self._log = Log(folder / digest, "mail-sent", 2, numbered=True, durable=durable, lazy=True)
        self._id = message_id
        self.base: str | None = None
        self.outcomes: dict[str, str] = {}

    @contextmanager
    def open(self) -> Iterator[SentMemo]:
        """Hold its lock, waiting for it, and read. Raises UnknownVersion, LogDamaged, DamagedRecord, OSError."""
        make_folder(os.path.dirname(self._log.path), durable=self._log.durable)
        with _as_told():
            torn = self._log.torn()
            if b"\n" in torn and self._lines() - torn.count(b"\n") <= 1:
                raise self._damaged()  # a send that was cut short before its first line was on the disk has none behind it
            with self._log.locked():
                self._load()
                yield self

    def _load(self) -> None:
        for record in self._log.read():
            match record:
                case {"id": str(known), "name": str(name)}:
                    if known != self._id:
                        raise UserError(f"belongs to {known}", where=self._log.path, mend="move the file away")
                    self.base = name
                case {"to": str(name), "is": str(outcome)}:
                    self.outcomes[name] = outcome
        if self._lines() > 1 if self.base is None else not is_own(self.base):
            raise self._damaged()

    def _lines(self) -> int:
        """How many whole lines the record has, its header counted."""
        return Path(self._log.path).read_bytes().count(b"\n")

    def _damaged(self) -> DamagedRecord:
        return DamagedRecord("is damaged: it names no message", where=self._log.path, mend="move the file away")

    def begin(self, base: str) -> None:
        """Remember the file name, on the disk, before the message has it anywhere. Raises OSError."""
        self.base = base
        self._log.append({"id": self._id, "name": base}, now=True)

    def note(self, outcomes: dict[str, tuple[str, str]]) -> None:
        """Remember what became of recipients: name -> (`delivered`, `failed` or `bounced`, reason). Raises OSError.

        Not made durable: what is lost of it is found again by looking into the recipients' mailboxes.
        """
        said = [{"to": name, "is": word, "why": one_line(reason)} for name, (word, reason) in outcomes.items()]
        if said:
            self._log.append(*said)


@contextmanager
def _as_told() -> Iterator[None]:
    """Raise what the system said, where that is what stopped the log: a report of a send names it."""
    try:
        yield
    except UserError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise


_Failures = dict[str, str]


@frozen
class Sending:
    """One send: the draft, whose it is, the mailboxes it goes to, and who is unknown, with the reason."""

    sender: str
    draft: Draft
    base: str
    names: tuple[str, ...]
    unknown: Mapping[str, str]
    elsewhere: tuple[str, ...] = ()
    """The addresses of linked hives, for which `names` has `exchange`."""

    @classmethod
    def to(cls, sender: str, draft: Draft, base: str, recipients: Iterable[Recipient]) -> Sending:
        recipients = tuple(recipients)
        names: list[str] = []
        unknown: dict[str, str] = {}
        elsewhere = tuple(one.shown for one in recipients if one.name == EXCHANGE)
        for one in recipients:
            if one.name is None:
                unknown[one.shown] = one.reason
            else:
                names.append(one.name)
        return cls(sender, draft, base, tuple(dict.fromkeys(names)), unknown, elsewhere)

    def report(self, failed: Mapping[str, str], bounced: Iterable[str] = ()) -> SendReport:
        have = self._shown(name for name in self.names if name not in failed)
        missing = {shown: why for name, why in failed.items() for shown in self._shown([name])}
        return SendReport(self.draft.message_id, have, {**missing, **self.unknown}, tuple(bounced))

    def _shown(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(one for name in names for one in (self.elsewhere if name == EXCHANGE else (name,)))


@dataclass(slots=True)
class Sender:
    """Delivers into mailboxes, and rings for whoever has got a letter."""

    layout: Layout
    boxes: Boxes
    seal: Seal
    addressing: Addressing
    names: Names
    durable: bool
    clock: Callable[[], datetime]
    ringer: Ringer

    def send(self, sending: Sending) -> SendReport:
        """Send a message that was never sent before, under a base name that nothing has."""
        try:
            staged = self._stage(sending)
        except OSError as error:
            return sending.report(dict.fromkeys(sending.names, _reason(error)))
        try:
            failed = self._hand_over(staged, sending.base, sending.names)
        finally:
            _discard(staged)
        bounced = self._bounce(sending, sending.unknown)
        if failed:
            self._remember(sending, failed, bounced)
        return sending.report(failed, bounced)

    def resend(self, sending: Sending, made_here: bool) -> SendReport:
        """Send under a Message-ID that may have been sent before: only those get it who have it not.

        `made_here` says that the id is one of ours and holds the base name. If the message stands in `.Sent` already,
        that one is delivered, whatever the draft says now.
        """
        try:
            with self._memo(sending).open() as memo:
                return self._resend(sending, memo, again=made_here or memo.base is not None)
        except OSError as error:
            return sending.report(dict.fromkeys(sending.names, _reason(error)))

    def _resend(self, sending: Sending, memo: SentMemo, again: bool) -> SendReport:
        sent, base = self.boxes.get(sending.sender, "sent"), memo.base or sending.base
        missing = tuple(
            name
            for name in sending.names
            if not (again and (memo.outcomes.get(name) == "delivered" or self._has(name, base)))
        )
        told = {name for name in sending.unknown if memo.outcomes.get(name) == "bounced"}
        failed: _Failures = {}
        try:
            if memo.base is None:
                memo.begin(base)
            reached("mail.send.remembered")
            _discard(os.path.join(sent.tmp, base))  # the memo's lock is ours: whoever staged that is dead
            if missing or not again:
                failed = self._complete(replace(sending, base=base), sent, missing, again)
        except OSError as error:
            failed = dict.fromkeys(missing, _reason(error))
        bounced = self._bounce(sending, {name: why for name, why in sending.unknown.items() if name not in told})
        _note(memo, missing, failed, bounced)
        return sending.report(failed, (name for name in sending.unknown if name in bounced | told))

    def _memo(self, sending: Sending) -> SentMemo:
        return SentMemo(self.layout.sends(sending.sender), sending.draft.message_id, durable=self.durable)

    def _stage(self, sending: Sending) -> str:
        """Compose, seal and write it, with the copy in the sender's `.Sent`; without that copy nobody gets it."""
        sent = self.boxes.get(sending.sender, "sent")
        raw = self.seal.put(*compose(sending.draft))
        if len(raw) > MAX_BYTES:
            raise UserError(f"a message has at most {MAX_BYTES >> 20} MiB, this one {len(raw):,} bytes")
        try:
            staged = sent.stage(sending.base, raw, self.durable, keep=sent)
        except FileNotFoundError:  # the sender has no mailbox yet
            self.boxes.ensure(sending.sender)
            staged = sent.stage(sending.base, raw, self.durable, keep=sent)
        reached("mail.send.staged")
        return staged

    def _hand_over(self, staged: str, base: str, names: Iterable[str]) -> _Failures:
        failed: _Failures = {}
        for name in names:
            try:
                self._put(self.boxes.get(name), staged, base, name)
            except OSError as error:
                failed[name] = _reason(error)
            except UserError as error:  # a mailbox that leads out of the hive
                failed[name] = str(error)
            else:
                reached("mail.send.delivered")
        return failed

    def _put(self, box: Maildir, staged: str, base: str, name: str) -> None:
        try:
            self._link_or_copy(box, staged, base)
        except FileNotFoundError:  # no mailbox yet
            self.boxes.ensure(name)
            self._link_or_copy(box, staged, base)
        self.ringer.ring(name)  # it can be read, and its text is on the disk: only the name's flush is waited for
        if self.durable:
            try:
                box.sync(new=True)
            except OSError:
                _discard(os.path.join(box.new, base))  # either it has it for good, or it has it not
                raise

    def _link_or_copy(self, box: Maildir, staged: str, base: str) -> None:
        if not box.link(staged, base, new=True):
            box.copy(staged, base, base, new=True, durable=self.durable)

    def _complete(self, sending: Sending, sent: Maildir, names: tuple[str, ...], again: bool) -> _Failures:
        """Go on with a send: with the copy in `.Sent` if there is a whole one, else from the beginning."""
        base, kept = sending.base, None
        if again:
            kept = sent.find(base) or self.boxes.get(sending.sender, _dated("sent", base)).find(base)
        content = None if kept is None else sent.read(kept)
        if content is not None and self.seal.holds(content[0]):
            staged = sent.stage(sending.base, content[0], self.durable)
        else:
            if content is not None:  # a power cut took its text: nobody has got it yet
                os.unlink(content[2].path)
            staged = self._stage(sending)
        try:
            return self._hand_over(staged, sending.base, names)
        finally:
            _discard(staged)

    def _has(self, name: str, base: str) -> bool:
        try:
            places = ("inbox", "archive", "dead", _dated("archive", base))
            return any(self.boxes.get(name, folder).find(base) for folder in places)
        except UserError:  # a mailbox that leads out of the hive: handing over says so
            return False

    def _bounce(self, sending: Sending, unknown: Mapping[str, str]) -> set[str]:
        """Tell the sender who is unknown; returns those of whom it has been told."""
        told: set[str] = set()
        for name, reason in unknown.items():
            if sending.sender == POSTMASTER or sending.draft.automatic:
                break
            try:
                self.bounce(sending.draft, name, reason, sending.sender, self.names.fresh(self.clock()))
            except OSError:  # the report says it all the same: `failed` has the reason
                continue
            told.add(name)
        return told

    def bounce(self, original: Draft, recipient: str, reason: str, name: str, base: str) -> None:
        """Tell whom `original` is from that it has not reached `recipient`, in the mailbox `name`. Raises OSError."""
        from_, id_, now = self.addressing.address(POSTMASTER), self.addressing.address(base), self.clock()
        box = self.boxes.ensure(name)
        _discard(os.path.join(box.tmp, base))
        staged = box.stage(
            base, self.seal.put(*compose(bounce(original, recipient, reason, id_, from_, now))), self.durable
        )
        try:
            self.pass_on(staged, base, name)
        finally:
            _discard(staged)

    def pass_on(self, path: str, base: str, name: str) -> None:
        """Deliver a finished file as it stands, unless the mailbox has one of that base name. Raises OSError."""
        if not self._has(name, base):
            self._put(self.boxes.get(name), path, base, name)
            reached("mail.send.delivered")

    def _remember(self, sending: Sending, failed: Mapping[str, str], bounced: Iterable[str]) -> None:
        try:
            with self._memo(sending).open() as memo:
                memo.begin(sending.base)
                _note(memo, sending.names, failed, bounced)
        except OSError:  # the disk that refused the message refuses this too: a second send looks into the mailboxes
            return


def _note(memo: SentMemo, names: Iterable[str], failed: Mapping[str, str], bounced: Iterable[str]) -> None:
    found = {name: ("failed", failed[name]) if name in failed else ("delivered", "") for name in names}
    try:
        memo.note({**found, **dict.fromkeys(bounced, ("bounced", ""))})
    except (OSError, UserError):  # what happened has happened: a second send finds it out from the mailboxes
        return


def _dated(folder: str, base: str) -> str:
    """The folder for the month of a message with a name of the runtime's own."""
    return f"{folder}/{month_of((sort_key(base) or (0,))[0])}"


def _reason(error: OSError) -> str:
    where = error.filename2 or error.filename
    said = f"{error.strerror or error}{f' ({where})' if isinstance(where, str) else ''}"
    return f"{DISK_FULL}: {said}" if is_disk_full(error) else said


def _discard(staged: str) -> None:
    try:
        os.unlink(staged)
    except OSError:  # not there, or litter in tmp/ that `ensure` clears away one day: the message has its names
        return
