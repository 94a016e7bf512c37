"""The mail of a hive, as the runtime, the command line and the tools use it."""

from __future__ import annotations

import builtins
import hashlib
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.fs import DeadlyInputs, create, make_folder
from hivemind.fs.doorbell import Ringer
from hivemind.layout import EXCHANGE, HUMAN, LANDING, POSTMASTER, Layout
from hivemind.mail.addressing import Addressing
from hivemind.mail.compose import LetterDraft
from hivemind.mail.maildir import SUBFOLDERS, BaseNames, Mailboxes, Maildir, MailFile, bury, is_runtime_name
from hivemind.mail.message import Delivery, Message, MessageSummary
from hivemind.mail.parse import REFERABLE, ParsedLetter, limit_references, parse_message
from hivemind.mail.reading import MAX_BYTES, Reader, time_key
from hivemind.mail.seal import Seal
from hivemind.mail.sending import Sender, Sending
from hivemind.masking import mask
from hivemind.mime.content import Attachment
from hivemind.names import check_name, is_name
from hivemind.pattern import pattern

Status = Literal["delivered", "read", "answered", "dead", "missing", "unknown"]

_ID = pattern(r"[!#-'*+\-./0-9=?A-Z^_`a-z{|}~]+@[!#-'*+\-./0-9=?A-Z^_`a-z{|}~\[\]:]+")
_MAX_ID = 250
_ATTACHMENTS = "attachments"


class Mail:
    """The mailboxes of a hive. Holds no lock and no open file; any number of processes may use them.

    `agents` is called at each send and returns the current agents; the operator (`human`) always exists. Where
    only polling works, a hand-written file is read once it was unchanged for `settle_ms`. Mailboxes may be symbolic
    links to `roots`.
    """

    def __init__(
        self,
        layout: Layout,
        workspace: str,
        *,
        agents: Callable[[], Collection[str]],
        settle_ms: float = 250,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        roots: Iterable[Path] = (),
        unknown_sender: str = "needs_you",
        hives: Callable[[], Collection[str]] = tuple,
    ) -> None:
        roots = tuple(roots)
        seal = Seal(layout.mail_key)
        self.marks_read = not layout.read_only
        self.clock = clock
        self.mailboxes = Mailboxes(layout, roots)
        self._answers_strangers = unknown_sender == "answer"
        self._names = BaseNames()
        self._seal = seal
        self._addressing = Addressing(workspace, agents, hives)
        crashes = DeadlyInputs(layout.reading, read_only=layout.read_only)
        self.reader = Reader(layout, self.mailboxes, seal, self._addressing.domain, settle_ms, roots, crashes)
        ringer = Ringer(layout.doorbells)
        self._sender = Sender(layout, self.mailboxes, seal, self._addressing, self._names, clock, ringer)

    # -- sending

    def send(
        self,
        sender: str,
        to: str | Iterable[str],
        subject: str,
        body: str,
        *,
        cc: str | Iterable[str] = (),
        message_id: str | None = None,
        in_reply_to: str | None = None,
        references: Iterable[str] = (),
        task: str | None = None,
        step: str | None = None,
        lane: str | None = None,
        importance: str | None = None,
        expects_reply: bool = False,
        attachments: Iterable[Attachment | str | os.PathLike[str]] = (),
        cause: Message | None = None,
        traceparent: str | None = None,
    ) -> Delivery:
        """Send a message as `sender`, which the caller takes from its own identity. Return a report of who has received it and
        who has not.

        Unknown recipients bounce. If `message_id` was sent before, only recipients without the message receive it. `cause` is the
        message that an agent reacts to: a reaction to an automatic message is automatic, too, and does not bounce (RFC 3834, 2).
        `traceparent` names the span that the message belongs to, by default that of its cause. The other arguments become header
        fields. Raises UserError without recipients, and for a bad sender, id, importance or attachment.
        """
        sender = check_name(sender, "sender")
        if sender not in (EXCHANGE, LANDING) and not self.is_known_sender(sender):
            raise UserError(f"no agent is called {sender!r}", location="the sender", remedy="see: hivemind agent list")
        recipients = self._addressing.resolve(to)
        if self._answers_strangers and cause is not None and not self.is_known_sender(cause.sender):
            recipients = [
                self._addressing.recipient_for_stranger(cause.sender)
                if recipient.display_name == cause.sender
                else recipient
                for recipient in recipients
            ]
        copies = [copy for copy in self._addressing.resolve(cc) if copy not in recipients]
        if not recipients and not copies:
            raise UserError("a message needs a recipient", remedy="name at least one agent, or human")
        now = self.clock()
        base = self._names.next_name(now)
        checked_id = None if message_id is None else self._check_message_id(message_id)
        base_from_id = None if checked_id is None else self._base_from_id(checked_id)
        draft = LetterDraft(
            message_id=checked_id or self._addressing.address(base),
            sender=self._addressing.address(sender),
            to=tuple(recipient.address for recipient in recipients if recipient.address),
            cc=tuple(copy.address for copy in copies if copy.address),
            subject=mask(subject),
            body=mask(body),
            date=now,
            in_reply_to=None if in_reply_to is None else _check_reference(in_reply_to),
            references=limit_references([_check_reference(reference) for reference in references]),
            task=task,
            step=step,
            lane=lane,
            importance=importance,
            automatic=cause is not None and cause.automatic,
            expects_reply=expects_reply,
            traceparent=cause.traceparent if traceparent is None and cause is not None else traceparent,
            attachments=tuple(_open_attachment(attachment) for attachment in attachments),
        )
        sending = Sending.to_recipients(sender, draft, base_from_id or base, (*recipients, *copies))
        report = (
            self._sender.send(sending) if checked_id is None else self._sender.resend(sending, base_from_id is not None)
        )
        if draft.in_reply_to is not None and report.delivered:
            self._flag_original_answered(sender, draft.in_reply_to)
        return report

    def recipients(self, to: str | Iterable[str]) -> tuple[str, ...]:
        """Return the display names of the recipients in `to`. Raises UserError for an unknown one."""
        return self._addressing.resolve_known(to)

    def reply(self, box: str, id_: str, body: str) -> Delivery:
        """Reply to a message's sender, in its thread and task, and flag the message with `R`.

        Raises UserError if the message does not exist or its sender is unknown.
        """
        box = check_name(box, "mailbox")
        message = self.read(box, id_, mark=True)
        self._addressing.resolve_known(message.sender)
        report = self.send(
            box,
            message.sender,
            message.answer_subject,
            body,
            in_reply_to=message.id,
            references=(*message.references, message.id),
            task=message.task,
            lane=message.lane,
            traceparent=message.traceparent,
        )
        if report.delivered:
            mail_file = MailFile(message.base, message.flags, message.path, False)
            Maildir(Path(message.path).parent.parent).flag(mail_file, "RS")
        return report

    def save_attachments(self, message: Message) -> tuple[Path, ...]:
        """Save the attachments of a message in its mailbox, where agents can read and cite them. Return their paths."""
        folder = Path(
            self.mailboxes.get(message.box).path, _ATTACHMENTS, hashlib.sha256(message.key.encode()).hexdigest()[:16]
        )
        for name, attachment in message.files.items():
            make_folder(folder)
            with suppress(FileExistsError):
                create(folder / name, attachment.content)
        return tuple(folder / name for name in message.files)

    # -- letters from unknown addresses

    def is_known_sender(self, sender: str) -> bool:
        """Check that the sender of a message is an agent, the operator, the postmaster or in a linked hive."""
        return self._addressing.is_known(sender)

    def copy_to(self, box: str, message: Message) -> None:
        """Deliver a message of another mailbox to `box` as well, unchanged and unread. Do nothing if `box` has it. Raises
        OSError.
        """
        self._sender.deliver_file(message.path, message.key, box)

    def bounce(self, message: Message, reason: str | None = None) -> str:
        """Tell a message's sender by a bounce, once, why nobody answers. Return the reason; None for an unknown sender.

        If the sender is neither an agent nor the operator, the operator's mailbox gets the bounce, because the hive sends no mail
        to the outside. Automatic messages are not bounced. Raises OSError.
        """
        outcome = "delivered" if reason is None else "answered"
        reason = reason or f"this hive does not know the address {message.sender}"
        if not message.automatic:
            is_local = self.is_known_sender(message.sender) and "@" not in message.sender
            name = message.sender if is_local else HUMAN
            stranger = self._addressing.recipient_for_stranger(message.sender)
            original = LetterDraft(
                message_id=message.id, sender=(self._addressing.address(name) if is_local else stranger.address) or "", to=(),
                subject=message.subject, body=message.body, date=message.date, references=message.references,
            )  # fmt: skip
            self._sender.bounce(original, message.box, reason, name, f"{message.key}.bounce", outcome)
        return reason

    def unread_from_strangers(self, box: str, limit: int = 20) -> builtins.list[MessageSummary]:
        """Return those of the newest `limit` unread messages that the operator should look at, oldest first.

        They are messages from unknown senders, and reports that an agent gave up a letter. A message with the hive's seal is
        skipped: its sender was known when it was sent.
        """
        maildir = self.mailboxes.get(check_name(box, "mailbox"))
        unread = sorted((mail_file for mail_file in maildir.mail_files() if "S" not in mail_file.flags), key=time_key)[
            -limit:
        ]
        summaries = [
            (mail_file, self.reader.summary(box, maildir, mail_file))
            for mail_file in unread
            if self.reader.is_finished(mail_file)
        ]
        return [
            summary
            for mail_file, summary in summaries
            if summary is not None
            and summary.sender != "?"
            and (
                (summary.sender == POSTMASTER and summary.unanswered)  # by `bounce`
                or not (self.is_known_sender(summary.sender) or self.reader.is_sealed(maildir, mail_file))
            )
        ]

    # -- letters of linked hives

    def deliver(self, box: str, base: str, raw: bytes, hive: str) -> None:
        """Deliver a letter from the linked hive `hive` once, as a file with the base name `base`, with the seal of this hive.

        Raises Unreadable if `raw` is not a letter or if its sender is not of that hive, and OSError.
        """
        sender = self._parse_foreign_letter(base, raw).sender
        if sender.rpartition("@")[2].lower() != hive:
            raise Unreadable(f"{hive} has sent a letter from {sender}", location=base)
        maildir = self.mailboxes.ensure(check_name(box, "mailbox"))
        with suppress(FileNotFoundError):  # left by a crash: only one process at a time delivers
            os.unlink(os.path.join(maildir.tmp, base))
        staged_path = maildir.stage(base, self._seal.reseal(raw))
        try:
            self._sender.deliver_file(staged_path, base, box)
        finally:
            os.unlink(staged_path)

    def report_undeliverable(self, base: str, raw: bytes, recipient: str, reason: str) -> None:
        """Tell the sender of the letter `raw`, by one bounce, why `recipient` in another hive did not get it. Skip automatic
        letters.
        """
        letter = self._parse_foreign_letter(base, raw)
        if letter.automatic or not self.is_known_sender(letter.sender):
            return
        draft = LetterDraft(
            message_id=letter.id or base, date=self.clock(),
            **{**letter.content, "sender": self._addressing.address(letter.sender), "attachments": ()},
        )  # fmt: skip
        name = hashlib.sha256(recipient.encode()).hexdigest()[:8]
        self._sender.bounce(draft, recipient, reason, letter.sender, f"{base}.{name}")

    def _parse_foreign_letter(self, base: str, raw: bytes) -> ParsedLetter:
        with boundary("letter of another hive", base):
            if not is_runtime_name(base) or len(raw) > MAX_BYTES:
                raise ValueError("its name was not created by a hive, or it is too large")
            return parse_message(raw, self._addressing.domain)

    # -- reading

    def list(self, box: str, folder: str = "inbox", limit: int | None = None) -> builtins.list[MessageSummary]:
        """List the messages of a folder, oldest first; `limit` keeps the newest.

        `folder` is `inbox`, `sent`, `archive`, `dead`, or one month: `archive/2026-11`, `sent/2026-11`. `archive` and `sent`
        include their months. At most 8 KiB of each message are read, and no flag is set. Files that are still being written are
        left out. Raises UserError if no agent or mailbox has the name `box`.
        """
        box = check_name(box, "mailbox")
        if not os.path.isdir(self.mailboxes.get(box).path):
            self._addressing.resolve_known(box)
        months = self.mailboxes.get(box).months(folder)
        summaries: builtins.list[MessageSummary] = []
        for subfolder in (folder, *months):
            maildir = self.mailboxes.get(box, subfolder)
            for mail_file in sorted(maildir.mail_files(), key=time_key, reverse=True):
                if limit is not None and len(summaries) >= limit:
                    break
                if (
                    self.reader.is_finished(mail_file)
                    and (summary := self.reader.summary(box, maildir, mail_file)) is not None
                ):
                    summaries.append(summary)
        return sorted(summaries, key=lambda message: message.date) if months else summaries[::-1]

    def read(self, box: str, id_: str, mark: bool = True) -> Message:
        """Read a message by its Message-ID or the base name of its file, from any folder.

        With `mark`, a message in the inbox is flagged as seen (`S`), unless `Mail.marks_read` is False. Raises UserError if there
        is no such message, or if it cannot be read.
        """
        box = check_name(box, "mailbox")
        location = self.reader.locate(box, id_, SUBFOLDERS)
        message = None
        if location is not None:
            folder, mail_file = location
            maildir = self.mailboxes.get(box, folder)
            if mark and self.marks_read and folder == "inbox":
                mail_file = maildir.flag(mail_file, "S") or mail_file
            message = self.reader.read_message(box, maildir, mail_file)
        if message is None:
            raise UserError(
                f"no message {id_!r}", location=f"mailbox {box}", remedy=f"hivemind mail list {box} names them"
            )
        return message

    def mark_answered(self, box: str, id_: str) -> None:
        """Flag a message of the inbox as read and answered (`RS`), after an answer by other means than `reply`.

        A message that has left the inbox is not flagged.
        """
        location = self.reader.locate(check_name(box, "mailbox"), id_, ("inbox",))
        if location is not None:
            self.mailboxes.get(box).flag(location[1], "RS")

    def thread(self, box: str, id_: str) -> builtins.list[Message]:
        """Return all messages of the mailbox in the same thread, oldest first.

        Raises UserError if the message does not exist.
        """
        return self.reader.thread(check_name(box, "mailbox"), self.read(box, id_, mark=False))

    def status(self, sender: str, id_: str) -> dict[str, Status]:
        """Return a sent message's status for each recipient: `delivered` (unread), `read`, `answered`, or `dead` (given up).

        `missing` means that the message was never delivered or has been deleted, `unknown` that it is for a hive that is not
        linked. Raises UserError if `sender` has not sent the message.
        """
        sender = check_name(sender, "sender")
        location = self.reader.locate(sender, id_, ("sent",))
        if location is None:
            raise UserError(
                f"no message {id_!r}", location=f"{sender}'s .Sent", remedy=f"hivemind mail list {sender} --folder sent"
            )
        message = self.reader.read_message(sender, self.mailboxes.get(sender, "sent"), location[1])
        if message is None:
            raise UserError(f"the message {id_!r} has just been deleted", location=f"{sender}'s .Sent")
        return {name: self._status(name, message) for name in dict.fromkeys((*message.to, *message.cc))}

    def count_unread(self, box: str) -> int:
        """Count the messages without the flag `S` by listing new/ and cur/; no file is opened."""
        maildir = self.mailboxes.get(check_name(box, "mailbox"))
        return sum("S" not in mail_file.flags for mail_file in maildir.mail_files())

    # -- mailboxes and flags

    def ensure(self, box: str) -> Path:
        """Create the mailbox and its sub-folders if they are missing. Return its path."""
        return Path(self.mailboxes.ensure(check_name(box, "mailbox")).path)

    def bury(self, box: str, mail_file: MailFile, reason: str) -> MailFile | None:
        """Move a message to `.Dead` and write the reason next to it. Return None if it is gone. Raises OSError."""
        return bury(self.mailboxes.get(box), mail_file, reason, self.clock())

    def _status(self, name: str, message: Message) -> Status:
        """Return the status, derived from the flags of the recipient's file, which has the same base name in every mailbox.

        For a recipient in a linked hive: `missing` while the message waits for the exchange, `answered` once an answer is here,
        else `delivered`.
        """
        if not is_name(name):
            if self.mailboxes.get(EXCHANGE).find(message.base) is not None:
                return "missing"
            thread = self.reader.thread(message.box, message)
            if any((letter.sender, letter.in_reply_to) == (name, message.id) for letter in thread):
                return "answered"
            return "delivered" if self._addressing.is_linked(name) else "unknown"
        located = self.reader.locate(name, message.base, ("inbox", "archive", "dead"))
        if located is None:
            return "missing"
        folder, mail_file = located
        if folder == "dead":
            return "dead"
        return "answered" if "R" in mail_file.flags else "read" if "S" in mail_file.flags else "delivered"

    def _check_message_id(self, message_id: str) -> str:
        id_ = message_id.strip().removeprefix("<").removesuffix(">")
        if "@" not in id_:
            id_ = self._addressing.address(id_)
        if len(id_) > _MAX_ID or _ID.fullmatch(id_) is None:
            raise UserError(
                f"{message_id[:80]!r} is not a Message-ID", remedy="like unique-text@workspace: ASCII without spaces"
            )
        return id_

    def _base_from_id(self, id_: str) -> str | None:
        """Return the base name that a Message-ID contains, or None if this hive did not create the Message-ID."""
        local, _, host = id_.rpartition("@")
        return local if host == self._addressing.domain and is_runtime_name(local) else None

    def _flag_original_answered(self, box: str, id_: str) -> None:
        """Flag a message as answered, if it is in the inbox and this hive created its id. A message with another id would need a
        search.
        """
        base = self._base_from_id(id_)
        if base is not None:
            maildir = self.mailboxes.get(box)
            mail_file = maildir.find(base)
            if mail_file is not None:
                maildir.flag(mail_file, "RS")


def _check_reference(reference: str) -> str:
    """Return an id without brackets. Raises UserError if it could break a header field."""
    id_ = reference.strip().removeprefix("<").removesuffix(">")
    if REFERABLE.fullmatch(id_) is None:
        raise UserError(f"{reference[:80]!r} is not a Message-ID", remedy="ASCII without spaces")
    return id_


def _open_attachment(attachment: Attachment | str | os.PathLike[str]) -> Attachment:
    if isinstance(attachment, Attachment):
        return attachment
    try:
        return Attachment.from_file(attachment)
    except OSError as error:
        raise UserError(f"cannot be attached ({error.strerror})", location=attachment) from None
