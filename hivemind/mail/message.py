"""What a message is, once read, and what a send answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any

from hivemind.frozen import frozen
from hivemind.layout import HUMAN
from hivemind.mail.answer import answer_text
from hivemind.mail.header import one_line

PREVIEW_CHARS = 200
DISK_FULL = "disk full"
_NOTHING: Mapping[str, str] = MappingProxyType({})


@frozen
class Attachment:
    """A file that travels with a message."""

    name: str
    content: bytes
    content_type: str = "application/octet-stream"

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Attachment:
        """The file at `path`, with the type that its name suggests. Raises OSError."""
        import mimetypes

        kind, packed = mimetypes.guess_type(os.fspath(path))
        with open(path, "rb") as file:
            content = file.read()
        return cls(os.path.basename(path), content, kind if kind and not packed else "application/octet-stream")


@frozen
class MessageSummary:
    """A message as a listing shows it: what its first 8 KiB tell.

    `id` is the Message-ID without brackets, `sender` and `to` names of this hive or whole addresses of others, `flags`
    the Maildir's (`S` seen, `R` answered, `F` flagged, `T` to be deleted), `path` where the file lies now.
    """

    id: str
    sender: str
    to: tuple[str, ...]
    subject: str
    date: datetime
    flags: str
    path: str
    preview: str

    @property
    def unread(self) -> bool:
        return "S" not in self.flags

    def as_record(self) -> dict[str, object]:
        """The fields that `hivemind mail list --json` gives: id, from, to, subject, date, flags, path, preview."""
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
    """What a message says, whoever wrote it: names of this hive or whole addresses of others, a text, what it is about."""

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
    expects_reply: bool = False
    attachments: tuple[Attachment, ...] = ()

    @property
    def content(self) -> dict[str, Any]:
        """These fields by name."""
        return {one.name: getattr(self, one.name) for one in fields(Content)}


@frozen(kw_only=True)
class Message(Content):
    """A message, whole; `id`, `flags` and `path` as in MessageSummary.

    `trusted` is true if the runtime wrote it: only then is `sender` more than what the file says of itself. `box` is
    whose mailbox it was read from, `base` the base name of its file, `key` what an Intake knows it by.
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
        """The first 200 characters of the body, on one line."""
        return preview(self.body)

    @property
    def answer(self) -> str:
        """Its text without the letter that it quotes and without a signature: what its author wrote this time."""
        return answer_text(self.body)

    @property
    def files(self) -> dict[str, Attachment]:
        """Its attachments by names that any file system takes, each another."""
        files: dict[str, Attachment] = {}
        for at, attachment in enumerate(self.attachments, 1):
            name = _file_name(attachment.name) or f"attachment-{at}"
            files[f"{at}-{name}" if name in files else name] = attachment
        return files

    @property
    def attached(self) -> str:
        """Its attachments in words: the name, the kind and the size of each."""
        return ", ".join(f"{one.name} ({one.content_type}, {len(one.content):,} bytes)" for one in self.attachments)

    @property
    def thread(self) -> str:
        """The Message-ID with which its thread began: its own, if it answers nothing."""
        return self.references[0] if self.references else self.in_reply_to or self.id

    @property
    def answer_subject(self) -> str:
        """The subject of an answer to it."""
        return self.subject if self.subject.lower().startswith("re:") else f"Re: {self.subject}"

    @property
    def origin(self) -> str:
        """Where it is from: human, agent, or external. What the runtime did not seal came through a folder that a person
        writes to; what a linked hive has sent is that hive's word."""
        if self.sender == HUMAN:
            return "human"
        return "agent" if self.trusted and "@" not in self.sender else "external"


def _file_name(name: str) -> str:
    """The last part of a name as any file system takes it: at most 200 bytes, its ending kept; empty for one that hides."""
    plain = name.replace("\\", "/").rpartition("/")[2].strip()
    if plain.startswith(".") or not plain.isprintable():
        return ""
    stem, dot, ending = plain.rpartition(".")
    kept = ending.encode()[:20].decode(errors="ignore")
    return plain if len(plain.encode()) <= 200 else stem.encode()[:170].decode(errors="ignore") + dot + kept


def preview(text: str) -> str:
    """The beginning of a text on one line, 200 characters at most."""
    line = one_line(text[: PREVIEW_CHARS * 4])
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 1] + "…"


@frozen
class SendReport:
    """Who has the message and who has not: each recipient stands in `delivered` or in `failed`, never in both.

    `failed` gives the reason for each; those in `bounced` are unknown here, and the sender has been told so by mail.
    Sending again with `message_id` delivers only what is missing.
    """

    message_id: str
    delivered: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    bounced: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if everyone has it."""
        return not self.failed

    @property
    def disk_full(self) -> bool:
        """True if somebody has it not because a disk is full: then it is worth sending again once there is room."""
        return any(reason.startswith(DISK_FULL) for reason in self.failed.values())
