"""Messages as they are read, their summaries, and the report of a send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any

from hivemind.frozen import frozen
from hivemind.layout import HUMAN
from hivemind.mail.quoted import answer_text
from hivemind.mime.content import Attachment
from hivemind.mime.header import one_line

PREVIEW_CHARS = 200
DISK_FULL = "disk full"
_NO_FAILURES: Mapping[str, str] = MappingProxyType({})


@frozen
class MessageSummary:
    """A message in a listing, read from its first 8 KiB.

    `id` is the Message-ID without brackets. `sender` and `to` are names in this hive, or full addresses. `flags` are
    Maildir flags (`S` seen, `R` answered, `F` flagged, `T` to be deleted). `path` is the current file.
    `unanswered`: the message reports that an agent gave up a letter.
    """

    id: str
    sender: str
    to: tuple[str, ...]
    subject: str
    date: datetime
    flags: str
    path: str
    preview: str
    unanswered: bool = False

    @property
    def unread(self) -> bool:
        return "S" not in self.flags

    def as_record(self) -> dict[str, object]:
        """Return the fields that `hivemind mail list --json` prints."""
        return {
            "id": self.id,
            "from": self.sender,
            "to": list(self.to),
            "subject": self.subject,
            "date": self.date.isoformat(),
            "flags": self.flags,
            "path": self.path,
            "preview": self.preview,
            "unread": self.unread,
        }


@frozen(kw_only=True)
class Content:
    """The content of a parsed message or of a draft. Senders and recipients are names in this hive or full addresses."""

    sender: str
    to: tuple[str, ...]
    subject: str
    body: str
    cc: tuple[str, ...] = ()
    in_reply_to: str | None = None
    references: tuple[str, ...] = ()
    task: str | None = None
    step: str | None = None
    lane: str | None = None
    importance: str | None = None
    automatic: bool = False
    unanswered: bool = False
    expects_reply: bool = False
    traceparent: str | None = None
    attachments: tuple[Attachment, ...] = ()

    @property
    def content(self) -> dict[str, Any]:
        """Return the fields of this class by name."""
        return {content_field.name: getattr(self, content_field.name) for content_field in fields(Content)}


@frozen(kw_only=True)
class Message(Content):
    """A complete message; `id`, `flags` and `path` are as in MessageSummary.

    `trusted` is true if the runtime wrote the message; if it is false, anyone may have set `sender`. `box` names the mailbox,
    `base` is the base name of the file, and `key` identifies the message in an Intake.
    """

    id: str
    date: datetime
    flags: str
    path: str
    trusted: bool
    box: str
    base: str
    key: str

    @property
    def preview(self) -> str:
        """Return the first 200 characters of the body, on one line."""
        return preview(self.body)

    @property
    def answer(self) -> str:
        """Return the body without quoted letters and signature."""
        return answer_text(self.body)

    @property
    def files(self) -> dict[str, Attachment]:
        """Return the attachments by unique names that every file system accepts."""
        files: dict[str, Attachment] = {}
        for number, attachment in enumerate(self.attachments, 1):
            name = _safe_file_name(attachment.name) or f"attachment-{number}"
            files[f"{number}-{name}" if name in files else name] = attachment
        return files

    @property
    def attachment_summary(self) -> str:
        """Describe the attachments: the name, type and size of each."""
        return ", ".join(
            f"{attachment.name} ({attachment.content_type}, {len(attachment.content):,} bytes)"
            for attachment in self.attachments
        )

    @property
    def thread_id(self) -> str:
        """Return the Message-ID of the first message in its thread; its own if it is not a reply."""
        return self.references[0] if self.references else self.in_reply_to or self.id

    @property
    def answer_subject(self) -> str:
        """Return the subject for a reply."""
        return self.subject if self.subject.lower().startswith("re:") else f"Re: {self.subject}"

    @property
    def origin(self) -> str:
        """Return `human`, `agent` or `external`.

        A letter from `human`, or without a sender, is the operator's, even without the runtime's seal: people write letters by
        hand, and agents' tools cannot write into mailboxes. Any other letter without a seal is external. So is a letter from a
        linked hive, since only that hive vouches for the sender.
        """
        if self.sender == HUMAN:
            return "human"
        return "agent" if self.trusted and "@" not in self.sender else "external"

    @property
    def is_from_person(self) -> bool:
        """Return True if the operator of this hive or of a linked one is the sender."""
        return self.sender == HUMAN or (self.trusted and self.sender.startswith(f"{HUMAN}@"))


def _safe_file_name(name: str) -> str:
    """Return the last part of a path, cut to 200 bytes before its suffix. Return "" for hidden or unprintable names."""
    base_name = name.replace("\\", "/").rpartition("/")[2].strip()
    if base_name.startswith(".") or not base_name.isprintable():
        return ""
    stem, dot, ending = base_name.rpartition(".")
    suffix = ending.encode()[:20].decode(errors="ignore")
    return base_name if len(base_name.encode()) <= 200 else stem.encode()[:170].decode(errors="ignore") + dot + suffix


def preview(text: str) -> str:
    """Return the beginning of a text on one line, at most 200 characters."""
    line = one_line(text[: PREVIEW_CHARS * 4])
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 1] + "…"


@frozen
class Delivery:
    """The result of a send. Each recipient is either in `delivered` or in `failed`.

    `failed` maps recipients to reasons. `bounced` names the unknown recipients about which the sender has received a
    bounce. Sending again with `message_id` delivers only to recipients without the message.
    """

    message_id: str
    delivered: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=lambda: _NO_FAILURES)
    bounced: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Check that all recipients have the message."""
        return not self.failed

    @property
    def disk_full(self) -> bool:
        """Check whether a full disk prevented a delivery; sending again can succeed once there is room."""
        return any(reason.startswith(DISK_FULL) for reason in self.failed.values())
