"""The mail of a hive: what the runtime, the command line and the tools call (spec 1, *Mail*)."""

from __future__ import annotations

import builtins
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.fs import CrashCount, create, make_folder
from hivemind.fs.doorbell import Ringer
from hivemind.layout import EXCHANGE, HUMAN, Layout
from hivemind.mail.addressing import Addressing
from hivemind.mail.compose import Draft
from hivemind.mail.maildir import SUBFOLDERS, Boxes, Entry, Maildir, Names, bury, is_own
from hivemind.mail.message import Attachment, Message, MessageSummary, SendReport
from hivemind.mail.parse import REFERABLE, Parsed, bounded, parse_message
from hivemind.mail.reading import MAX_BYTES, Reader, time_key
from hivemind.mail.seal import Seal
from hivemind.mail.sending import Sender, Sending
from hivemind.masking import mask
from hivemind.names import check_name, is_name

Status = Literal["delivered", "read", "answered", "dead", "missing"]

_ID = re.compile(r"[!#-'*+\-./0-9=?A-Z^_`a-z{|}~]+@[!#-'*+\-./0-9=?A-Z^_`a-z{|}~\[\]:]+")
_MAX_ID = 250
_ATTACHMENTS = "attachments"


class Mail:
    """The mailboxes of a hive. Keeps no lock and no file open; any number of processes may have one each.

    `agents` names the agents there are, asked anew at each send; the operator (`human`) is always known. `settle_ms`
    is how long a hand-written file must rest where only polling can see it. Mailboxes may be symbolic links to `roots`.
    """

    def __init__(
        self,
        layout: Layout,
        workspace: str,
        *,
        agents: Callable[[], Collection[str]],
        durable: bool = True,
        settle_ms: float = 250,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        roots: Iterable[Path] = (),
        unknown_sender: str = "needs_you",
        hives: Callable[[], Collection[str]] = tuple,
    ) -> None:
        roots = tuple(roots)
        seal = Seal(layout.mail_key, durable)
        self.durable = durable
        self.clock = clock
        self.boxes = Boxes(layout, durable, roots)
        self._answers_strangers = unknown_sender == "answer"
        self._names = Names()
        self._seal = seal
        self._addressing = Addressing(workspace, agents, hives)
        crashes = CrashCount(layout.reading, read_only=layout.read_only)
        self.reader = Reader(layout, self.boxes, seal, self._addressing.domain, settle_ms, roots, crashes)
        ringer = Ringer(layout.doorbells)
        self._sender = Sender(layout, self.boxes, seal, self._addressing, self._names, durable, clock, ringer)

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
    ) -> SendReport:
        """Send a message in the name of `sender`, which the caller knows from its own identity.

        The report says who has it and who has not; unknown recipients bounce. With a `message_id` that was sent before
        only those get it who have it not. `attachments` are files, or Attachment values. `cause` is the message because of
        which an agent writes: what is written because of an automatic message is automatic itself and does not bounce
        (RFC 3834, 2). Raises UserError for no recipient at all, a bad sender, id or importance, an attachment that cannot
        be read.
        """
        sender = check_name(sender, "sender")
        recipients = self._addressing.resolve(to)
        if self._answers_strangers and cause is not None and not self.knows(cause.sender):
            recipients = [
                self._addressing.outside(cause.sender) if one.shown == cause.sender else one for one in recipients
            ]
        copies = [one for one in self._addressing.resolve(cc) if one not in recipients]
        if not recipients and not copies:
            raise UserError("a message needs a recipient", mend="name at least one agent, or human")
        now = self.clock()
        base = self._names.fresh(now)
        given = None if message_id is None else self._checked_id(message_id)
        ours = None if given is None else self._base_in(given)
        draft = Draft(
            message_id=given or self._addressing.address(base),
            sender=self._addressing.address(sender),
            to=tuple(one.address for one in recipients if one.address),
            cc=tuple(one.address for one in copies if one.address),
            subject=mask(subject),
            body=mask(body),
            date=now,
            in_reply_to=None if in_reply_to is None else _referred(in_reply_to),
            references=bounded([_referred(one) for one in references]),
            task=task,
            step=step,
            lane=lane,
            importance=importance,
            automatic=cause is not None and cause.automatic,
            expects_reply=expects_reply,
            attachments=tuple(_attachment(one) for one in attachments),
        )
        sending = Sending.to(sender, draft, ours or base, (*recipients, *copies))
        report = self._sender.send(sending) if given is None else self._sender.resend(sending, ours is not None)
        if draft.in_reply_to is not None and report.delivered:
            self._mark_answered(sender, draft.in_reply_to)
        return report

    def recipients(self, to: str | Iterable[str]) -> tuple[str, ...]:
        """The names that `to` means. Raises UserError for one that nobody has here (the command line refuses those)."""
        return self._addressing.names(to)

    def reply(self, box: str, id_: str, body: str) -> SendReport:
        """Answer a message: to its sender, in its thread and task; the message answered gets the flag `R`.

        Raises UserError if there is no such message, or if its sender is nobody here.
        """
        box = check_name(box, "mailbox")
        message = self.read(box, id_, mark=True)
        self._addressing.names(message.sender)
        report = self.send(
            box,
            message.sender,
            message.answer_subject,
            body,
            in_reply_to=message.id,
            references=(*message.references, message.id),
            task=message.task,
            lane=message.lane,
        )
        if report.delivered:
            entry = Entry(message.base, message.flags, message.path, False)
            Maildir(Path(message.path).parent.parent).flag(entry, "RS", self.durable)
        return report

    def keep_attachments(self, message: Message) -> tuple[Path, ...]:
        """Keep the attachments of a message as files in its mailbox, where they can be read and cited; returns their paths."""
        folder = Path(
            self.boxes.get(message.box).path, _ATTACHMENTS, hashlib.sha256(message.key.encode()).hexdigest()[:16]
        )
        for name, attachment in message.files.items():
            make_folder(folder, durable=self.durable)
            with suppress(FileExistsError):
                create(folder / name, attachment.content, durable=self.durable)
        return tuple(folder / name for name in message.files)

    # -- letters from unknown addresses

    def knows(self, sender: str) -> bool:
        """Whether the sender of a message is somebody here."""
        return self._addressing.knows(sender)

    def show_human(self, message: Message) -> None:
        """Have a message of another mailbox in the operator's as well, once, as it stands and unread. Raises OSError."""
        self._sender.pass_on(message.path, message.key, HUMAN)

    def bounce(self, message: Message) -> str:
        """Leave in the operator's mailbox, once, what tells the sender of a message that nobody here knows that address;
        not for an automatic message. Returns the reason. Raises OSError."""
        reason = f"this hive does not know the address {message.sender}"
        if not message.automatic:
            original = Draft(
                message_id=message.id,
                sender=self._addressing.outside(message.sender).address or "",
                to=(),
                subject=message.subject,
                body=message.body,
                date=message.date,
                references=message.references,
            )
            self._sender.bounce(original, message.box, reason, HUMAN, f"{message.key}.bounce")
        return reason

    def from_strangers(self, box: str, limit: int = 20) -> builtins.list[MessageSummary]:
        """The newest unread messages whose senders nobody here knows, oldest first; looks at `limit` unread ones. Whoever sent a
        message under the hive's seal was known then."""
        maildir = self.boxes.get(check_name(box, "mailbox"))
        unread = sorted((entry for entry in maildir.entries() if "S" not in entry.flags), key=time_key)[-limit:]
        found = [(entry, self.reader.summary(box, maildir, entry)) for entry in unread if self.reader.settled(entry)]
        return [
            one
            for entry, one in found
            if one is not None
            and one.sender != "?"
            and not self.knows(one.sender)
            and not self.reader.is_sealed(maildir, entry)
        ]

    # -- letters of linked hives

    def deliver(self, box: str, base: str, raw: bytes, hive: str) -> None:
        """Deliver a letter that another hive has sent, once, under the base name that it has there; sealed anew, as the letter
        of an address of that hive. Raises Unreadable for one that is none, or whose sender is of another hive; OSError."""
        sender = self._foreign(base, raw).sender
        if sender.rpartition("@")[2].lower() != hive:
            raise Unreadable(f"{hive} has sent a letter from {sender}", where=base)
        maildir = self.boxes.ensure(check_name(box, "mailbox"))
        with suppress(FileNotFoundError):  # what a crash has left: one process at a time delivers
            os.unlink(os.path.join(maildir.tmp, base))
        staged = maildir.stage(base, self._seal.renew(raw), self.durable)
        try:
            self._sender.pass_on(staged, base, box)
        finally:
            os.unlink(staged)

    def undeliverable(self, base: str, raw: bytes, recipient: str, reason: str) -> None:
        """Tell the sender of a letter, once, that it has not reached an address of another hive; not of an automatic one."""
        letter = self._foreign(base, raw)
        if letter.automatic or not self.knows(letter.sender):
            return
        draft = Draft(
            message_id=letter.id or base, date=self.clock(),
            **{**letter.content, "sender": self._addressing.address(letter.sender), "attachments": ()},
        )  # fmt: skip
        name = hashlib.sha256(recipient.encode()).hexdigest()[:8]
        self._sender.bounce(draft, recipient, reason, letter.sender, f"{base}.{name}")

    def _foreign(self, base: str, raw: bytes) -> Parsed:
        with boundary("letter of another hive", base):
            if not is_own(base) or len(raw) > MAX_BYTES:
                raise ValueError("it has no name of the runtime's, or is too large")
            return parse_message(raw, self._addressing.domain)

    # -- reading

    def list(self, box: str, folder: str = "inbox", limit: int | None = None) -> builtins.list[MessageSummary]:
        """The messages of a folder (`inbox`, `sent`, `archive`, `dead`, or of a month: `archive/2026-11`, `sent/2026-11`),
        oldest first; `limit` keeps the newest. `archive` and `sent` include their months.

        Reads at most 8 KiB of each and marks nothing. Half-written files are left out.
        """
        months = self.boxes.get(check_name(box, "mailbox")).months(folder)
        found: builtins.list[MessageSummary] = []
        for one in (folder, *months):
            maildir = self.boxes.get(box, one)
            for entry in sorted(maildir.entries(), key=time_key, reverse=True):
                if limit is not None and len(found) >= limit:
                    break
                if self.reader.settled(entry) and (summary := self.reader.summary(box, maildir, entry)) is not None:
                    found.append(summary)
        return sorted(found, key=lambda message: message.date) if months else found[::-1]

    def read(self, box: str, id_: str, mark: bool = True) -> Message:
        """One message by its Message-ID or the base name of its file, from any folder; `mark` sets `S` in the inbox.

        Raises UserError if there is none, or if it cannot be read.
        """
        box = check_name(box, "mailbox")
        found = self.reader.locate(box, id_, SUBFOLDERS)
        message = None
        if found is not None:
            folder, entry = found
            maildir = self.boxes.get(box, folder)
            if mark and folder == "inbox":
                entry = maildir.flag(entry, "S", self.durable) or entry
            message = self.reader.read_message(box, maildir, entry)
        if message is None:
            raise UserError(f"no message {id_!r}", where=f"mailbox {box}", mend=f"hivemind mail list {box} names them")
        return message

    def answered(self, box: str, id_: str) -> None:
        """Flag a message of the inbox read and answered (`RS`): its answer came another way than by `reply`. Where it is not
        there any more nothing happens."""
        found = self.reader.locate(check_name(box, "mailbox"), id_, ("inbox",))
        if found is not None:
            self.boxes.get(box).flag(found[1], "RS", self.durable)

    def thread(self, box: str, id_: str) -> builtins.list[Message]:
        """Every message of the mailbox that belongs to the same conversation, oldest first, each once.

        Raises UserError if there is no message with that id.
        """
        return self.reader.thread(check_name(box, "mailbox"), self.read(box, id_, mark=False))

    def status(self, sender: str, id_: str) -> dict[str, Status]:
        """What became of a sent message, for each recipient; `missing` is one who never got it, or deleted it.

        Raises UserError if `sender` has sent no such message.
        """
        sender = check_name(sender, "sender")
        found = self.reader.locate(sender, id_, ("sent",))
        if found is None:
            raise UserError(
                f"no message {id_!r}", where=f"{sender}'s .Sent", mend=f"hivemind mail list {sender} --folder sent"
            )
        message = self.reader.read_message(sender, self.boxes.get(sender, "sent"), found[1])
        if message is None:
            raise UserError(f"the message {id_!r} has just been deleted", where=f"{sender}'s .Sent")
        return {name: self._status(name, message.base) for name in dict.fromkeys((*message.to, *message.cc))}

    def unread(self, box: str) -> int:
        """How many messages are in new/, or in cur/ without the flag `S`: two listings, no file is opened."""
        maildir = self.boxes.get(check_name(box, "mailbox"))
        return sum("S" not in entry.flags for entry in maildir.entries())

    # -- keeping

    def ensure(self, box: str) -> Path:
        """Make the mailbox with its sub-folders, if it is not there; returns its path."""
        return Path(self.boxes.ensure(check_name(box, "mailbox")).path)

    def bury(self, box: str, entry: Entry, reason: str) -> Entry | None:
        """Move a message to `.Dead` with a sidecar that says why; None if it is gone. Raises OSError."""
        return bury(self.boxes.get(box), entry, reason, self.clock(), self.durable)

    def _status(self, name: str, base: str) -> Status:
        """Told by the flags: the message has the same base name in every mailbox. To another hive it is sent, or waits."""
        if self._addressing.is_linked(name):
            return "missing" if self.boxes.get(EXCHANGE).find(base) is not None else "delivered"
        if not is_name(name):
            return "missing"
        located = self.reader.locate(name, base, ("inbox", "archive", "dead"))
        if located is None:
            return "missing"
        folder, found = located
        if folder == "dead":
            return "dead"
        return "answered" if "R" in found.flags else "read" if "S" in found.flags else "delivered"

    def _checked_id(self, given: str) -> str:
        id_ = given.strip().removeprefix("<").removesuffix(">")
        if "@" not in id_:
            id_ = self._addressing.address(id_)
        if len(id_) > _MAX_ID or _ID.fullmatch(id_) is None:
            raise UserError(f"{given[:80]!r} is no Message-ID", mend="like unique-text@workspace: ASCII without spaces")
        return id_

    def _base_in(self, id_: str) -> str | None:
        """The base name that an id of our own holds."""
        local, _, host = id_.rpartition("@")
        return local if host == self._addressing.domain and is_own(local) else None

    def _mark_answered(self, box: str, id_: str) -> None:
        """Flag what was answered where that takes no search: one of our own ids, in the inbox."""
        base = self._base_in(id_)
        if base is not None:
            maildir = self.boxes.get(box)
            entry = maildir.find(base)
            if entry is not None:
                maildir.flag(entry, "RS", self.durable)


def _referred(given: str) -> str:
    """An id that others may have made: anything that cannot break a header field."""
    id_ = given.strip().removeprefix("<").removesuffix(">")
    if REFERABLE.fullmatch(id_) is None:
        raise UserError(f"{given[:80]!r} is no Message-ID", mend="ASCII without spaces")
    return id_


def _attachment(given: Attachment | str | os.PathLike[str]) -> Attachment:
    if isinstance(given, Attachment):
        return given
    try:
        return Attachment.of(given)
    except OSError as error:
        raise UserError(f"cannot be attached ({error.strerror})", where=given) from None
