"""Send messages: write a file once, link it into `.Sent` and each recipient's new/, and ring their doorbells.

The link in `.Sent` comes first, so the sender can look up every delivered message. The report says which recipients have
the message. Another send with the same Message-ID continues where the first send stopped.
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
from hivemind.fs import DamagedRecord, Log, crash_point, make_folder
from hivemind.fs.doorbell import Ringer
from hivemind.layout import EXCHANGE, POSTMASTER, Layout, month_of
from hivemind.mail.addressing import Addressing, Recipient
from hivemind.mail.compose import LetterDraft, bounce_draft, compose
from hivemind.mail.maildir import BaseNames, Mailboxes, Maildir, is_runtime_name, sort_key
from hivemind.mail.message import DISK_FULL, Delivery
from hivemind.mail.reading import MAX_BYTES
from hivemind.mail.seal import Seal
from hivemind.mime.header import one_line


class SendRecord:
    """The durable record of the sends of one Message-ID. Its methods may be called only in the block of `open`.

    `base` is the message's base name in all mailboxes, or None before the first send. `outcomes` maps recipients to `delivered`,
    `failed` or `bounced`.
    """

    __slots__ = ("_id", "_log", "base", "outcomes")

    def __init__(self, folder: Path, message_id: str) -> None:
        digest = hashlib.sha256(message_id.encode()).hexdigest()[:40]
        self._log = Log(folder / digest, "mail-sent", 2, numbered=True, lazy=True)
        self._id = message_id
        self.base: str | None = None
        self.outcomes: dict[str, str] = {}

    @contextmanager
    def open(self) -> Iterator[SendRecord]:
        """Wait for the record's lock, hold it, and read the record.

        Raises UnknownVersion, LogDamaged, DamagedRecord and OSError.
        """
        make_folder(os.path.dirname(self._log.path))
        with _raise_system_errors():
            torn = self._log.torn_bytes()
            if b"\n" in torn and self._count_lines() - torn.count(b"\n") <= 1:
                raise self._damage_error()  # a send interrupted before its first line was on disk has no further lines
            with self._log.locked():
                self._load()
                yield self

    def _load(self) -> None:
        for record in self._log.read():
            match record:
                case {"id": str(recorded_id), "name": str(name)}:
                    if recorded_id != self._id:
                        raise UserError(
                            f"belongs to {recorded_id}", location=self._log.path, remedy="move the file away"
                        )
                    self.base = name
                case {"to": str(name), "is": str(outcome)}:
                    self.outcomes[name] = outcome
        if self._count_lines() > 1 if self.base is None else not is_runtime_name(self.base):
            raise self._damage_error()

    def _count_lines(self) -> int:
        """Count the complete lines of the record, including its header."""
        return Path(self._log.path).read_bytes().count(b"\n")

    def _damage_error(self) -> DamagedRecord:
        return DamagedRecord("is damaged: it names no message", location=self._log.path, remedy="move the file away")

    def begin(self, base: str) -> None:
        """Record the base name durably, before any file gets that name. Raises OSError."""
        self.base = base
        self._log.append({"id": self._id, "name": base}, sync_now=True)

    def record_outcomes(self, outcomes: dict[str, tuple[str, str]]) -> None:
        """Record outcomes: name -> (`delivered`, `failed` or `bounced`, reason). Raises OSError.

        A power cut may lose outcomes; the next send finds them again in the recipients' mailboxes.
        """
        records = [{"to": name, "is": outcome, "why": one_line(reason)} for name, (outcome, reason) in outcomes.items()]
        if records:
            self._log.append(*records)


@contextmanager
def _raise_system_errors() -> Iterator[None]:
    """Within a `with` block, replace a log's UserError by the OSError that caused it, so the send's report has that error's
    message.
    """
    try:
        yield
    except UserError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise


_Failures = dict[str, str]


@frozen
class Sending:
    """One send: the sender, the draft, the base name, the mailboxes, and the unknown recipients with reasons."""

    sender: str
    draft: LetterDraft
    base: str
    names: tuple[str, ...]
    unknown: Mapping[str, str]
    linked_addresses: tuple[str, ...] = ()
    """The recipients in linked hives; in `names`, `exchange` represents all of them."""

    @classmethod
    def to_recipients(cls, sender: str, draft: LetterDraft, base: str, recipients: Iterable[Recipient]) -> Sending:
        recipients = tuple(recipients)
        names: list[str] = []
        unknown: dict[str, str] = {}
        elsewhere = tuple(recipient.display_name for recipient in recipients if recipient.name == EXCHANGE)
        for one in recipients:
            if one.name is None:
                unknown[one.display_name] = one.reason
            else:
                names.append(one.name)
        return cls(sender, draft, base, tuple(dict.fromkeys(names)), unknown, elsewhere)

    def report(self, failed: Mapping[str, str], bounced: Iterable[str] = ()) -> Delivery:
        delivered = self._display_names(name for name in self.names if name not in failed)
        undelivered = {
            display_name: reason for name, reason in failed.items() for display_name in self._display_names([name])
        }
        return Delivery(self.draft.message_id, delivered, {**undelivered, **self.unknown}, tuple(bounced))

    def _display_names(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(
            display_name for name in names for display_name in (self.linked_addresses if name == EXCHANGE else (name,))
        )


@dataclass(slots=True)
class Sender:
    """Delivers messages to mailboxes and rings the recipients' doorbells."""

    layout: Layout
    mailboxes: Mailboxes
    seal: Seal
    addressing: Addressing
    names: BaseNames
    clock: Callable[[], datetime]
    ringer: Ringer

    def send(self, sending: Sending) -> Delivery:
        """Send a new message under a new base name. Return the report."""
        try:
            staged_path = self._stage_letter(sending)
        except OSError as error:
            return sending.report(dict.fromkeys(sending.names, _failure_reason(error)))
        try:
            failures = self._deliver_all(staged_path, sending.base, sending.names)
        finally:
            _discard(staged_path)
        bounced = self._bounce_unknown(sending, sending.unknown)
        if failures:
            self._record_failures(sending, failures, bounced)
        return sending.report(failures, bounced)

    def resend(self, sending: Sending, is_local_id: bool) -> Delivery:
        """Send under a Message-ID that may have been sent before, to recipients that do not have the message.

        `is_local_id` says that this hive created the id, which then contains the base name. If `.Sent` already contains
        the message, the file there is delivered instead of the draft.
        """
        try:
            with self._send_record(sending).open() as record:
                return self._resend(sending, record, is_repeat=is_local_id or record.base is not None)
        except OSError as error:
            return sending.report(dict.fromkeys(sending.names, _failure_reason(error)))

    def _resend(self, sending: Sending, record: SendRecord, is_repeat: bool) -> Delivery:
        sent_folder, base = self.mailboxes.get(sending.sender, "sent"), record.base or sending.base
        missing_names = tuple(
            name
            for name in sending.names
            if not (is_repeat and (record.outcomes.get(name) == "delivered" or self._has_message(name, base)))
        )
        earlier_bounces = {name for name in sending.unknown if record.outcomes.get(name) == "bounced"}
        failures: _Failures = {}
        try:
            if record.base is None:
                record.begin(base)
            crash_point("mail.send.remembered")
            # We hold the record's lock, so the process that staged the file has died.
            _discard(os.path.join(sent_folder.tmp, base))
            if missing_names or not is_repeat:
                failures = self._complete(replace(sending, base=base), sent_folder, missing_names, is_repeat)
        except OSError as error:
            failures = dict.fromkeys(missing_names, _failure_reason(error))
        bounced = self._bounce_unknown(
            sending, {name: reason for name, reason in sending.unknown.items() if name not in earlier_bounces}
        )
        _record_outcomes(record, missing_names, failures, bounced)
        return sending.report(failures, (name for name in sending.unknown if name in bounced | earlier_bounces))

    def _send_record(self, sending: Sending) -> SendRecord:
        return SendRecord(self.layout.send_records(sending.sender), sending.draft.message_id)

    def _stage_letter(self, sending: Sending) -> str:
        """Compose, seal and write the message, also into `.Sent`. Return its path for `_deliver_all`. Raises OSError."""
        sent_folder = self.mailboxes.get(sending.sender, "sent")
        raw = self.seal.seal_message(*compose(sending.draft))
        if len(raw) > MAX_BYTES:
            raise UserError(f"a message has at most {MAX_BYTES >> 20} MiB, this one {len(raw):,} bytes")
        try:
            staged_path = sent_folder.stage(sending.base, raw, sent_folder=sent_folder)
        except FileNotFoundError:  # the sender has no mailbox yet
            self.mailboxes.ensure(sending.sender)
            staged_path = sent_folder.stage(sending.base, raw, sent_folder=sent_folder)
        crash_point("mail.send.staged")
        return staged_path

    def _deliver_all(self, staged_path: str, base: str, names: Iterable[str]) -> _Failures:
        failures: _Failures = {}
        for name in names:
            try:
                self._deliver(self.mailboxes.get(name), staged_path, base, name)
            except OSError as error:
                failures[name] = _failure_reason(error)
            except UserError as error:  # a mailbox that leads out of the hive
                failures[name] = str(error)
            else:
                crash_point("mail.send.delivered")
        return failures

    def _deliver(self, mailbox: Maildir, staged_path: str, base: str, name: str) -> None:
        try:
            self._link_or_copy(mailbox, staged_path, base)
        except FileNotFoundError:  # no mailbox yet
            self.mailboxes.ensure(name)
            self._link_or_copy(mailbox, staged_path, base)
        self.ringer.ring(name)  # the file is complete and on disk; only its name is not synced yet
        try:
            mailbox.sync(in_new=True)
        except OSError:
            _discard(os.path.join(mailbox.new, base))  # a recipient has a message durably or not at all
            raise

    def _link_or_copy(self, mailbox: Maildir, staged_path: str, base: str) -> None:
        if not mailbox.link(staged_path, base, in_new=True):
            mailbox.copy(staged_path, base, base, in_new=True)

    def _complete(self, sending: Sending, sent_folder: Maildir, names: tuple[str, ...], is_repeat: bool) -> _Failures:
        """Deliver the message to the recipients `names`. Return the recipients for which that failed, with the reasons.

        A repeated send (`is_repeat`) delivers the message in `.Sent` again if it is complete there. If not, the draft is composed
        again.
        """
        base, sent_file = sending.base, None
        if is_repeat:
            sent_file = sent_folder.find(base) or self.mailboxes.get(sending.sender, _month_folder("sent", base)).find(
                base
            )
        content = None if sent_file is None else sent_folder.read(sent_file)
        if content is not None and self.seal.is_valid(content[0]):
            staged_path = sent_folder.stage(sending.base, content[0])
        else:
            if content is not None:  # a power cut truncated it, so it was not delivered
                os.unlink(content[2].path)
            staged_path = self._stage_letter(sending)
        try:
            return self._deliver_all(staged_path, sending.base, names)
        finally:
            _discard(staged_path)

    def _has_message(self, name: str, base: str) -> bool:
        try:
            folders = ("inbox", "archive", "dead", _month_folder("archive", base))
            return any(self.mailboxes.get(name, folder).find(base) for folder in folders)
        except UserError:  # a mailbox that leads out of the hive: the delivery will report it
            return False

    def _bounce_unknown(self, sending: Sending, unknown: Mapping[str, str]) -> set[str]:
        """Send the sender a bounce for each unknown recipient. Return the recipients that were bounced.

        `unknown` maps recipients to the reasons why they are unknown.
        """
        bounced_names: set[str] = set()
        for name, reason in unknown.items():
            if sending.sender == POSTMASTER or sending.draft.automatic:
                break
            try:
                self.bounce(sending.draft, name, reason, sending.sender, self.names.next_name(self.clock()))
            except OSError:  # the report still has the reason, in `failed`
                continue
            bounced_names.add(name)
        return bounced_names

    def bounce(
        self, original: LetterDraft, recipient: str, reason: str, name: str, base: str, outcome: str = "delivered"
    ) -> None:
        """Put a bounce into the mailbox `name`: `recipient` did not receive or answer `original`. Raises OSError.

        `base` is the bounce's base name. `outcome` is `delivered` or `answered`, whichever did not happen.
        """
        sender, message_id, now = self.addressing.address(POSTMASTER), self.addressing.address(base), self.clock()
        mailbox = self.mailboxes.ensure(name)
        _discard(os.path.join(mailbox.tmp, base))
        staged_path = mailbox.stage(
            base,
            self.seal.seal_message(
                *compose(bounce_draft(original, recipient, reason, message_id, sender, now, outcome))
            ),
        )
        try:
            self.deliver_file(staged_path, base, name)
        finally:
            _discard(staged_path)

    def deliver_file(self, path: str, base: str, name: str) -> None:
        """Deliver the complete file `path` to the mailbox `name`, unless that has a file with the base name. Raises OSError."""
        if not self._has_message(name, base):
            self._deliver(self.mailboxes.get(name), path, base, name)
            crash_point("mail.send.delivered")

    def _record_failures(self, sending: Sending, failed: Mapping[str, str], bounced: Iterable[str]) -> None:
        try:
            with self._send_record(sending).open() as record:
                record.begin(sending.base)
                _record_outcomes(record, sending.names, failed, bounced)
        except OSError:  # the disk is still failing: the next send looks into the mailboxes
            return


def _record_outcomes(
    record: SendRecord, names: Iterable[str], failed: Mapping[str, str], bounced: Iterable[str]
) -> None:
    outcomes = {name: ("failed", failed[name]) if name in failed else ("delivered", "") for name in names}
    try:
        record.record_outcomes({**outcomes, **dict.fromkeys(bounced, ("bounced", ""))})
    except (OSError, UserError):  # the next send finds the outcomes in the mailboxes
        return


def _month_folder(folder: str, base: str) -> str:
    """Return the monthly sub-folder for a base name that the runtime created."""
    return f"{folder}/{month_of((sort_key(base) or (0,))[0])}"


def _failure_reason(error: OSError) -> str:
    path = error.filename2 or error.filename
    message = f"{error.strerror or error}{f' ({path})' if isinstance(path, str) else ''}"
    return f"{DISK_FULL}: {message}" if is_disk_full(error) else message


def _discard(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:  # missing, or left in tmp/ until `ensure` deletes it; the delivered links are not affected
        return
