"""What became of a send that was given its Message-ID, or that did not reach everyone: remembered in `.hive/sends/<sender>/`.

One small text file for each such id. It is written before the message, so that a send that was cut short goes on
under the same file name, and locked while its send runs, so that two of them cannot both deliver.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, unquote

from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import DamagedRecord, fsync_folder, make_folder
from hivemind.mail.filename import is_own
from hivemind.mail.header import one_line
from hivemind.mail.record import append_whole

__all__ = ["SentMemo"]

_FIRST = "hivemind-sent 1"


class SentMemo:
    """The memory of one Message-ID. `open` takes its lock, leaving the context gives it back.

    `base` is the file name that the message has everywhere (None if this is the first send), `outcomes` what is known
    of each recipient: `delivered`, `failed` or `bounced`.
    """

    __slots__ = ("_durable", "_file", "_id", "_path", "base", "outcomes")

    def __init__(self, folder: Path, message_id: str, *, durable: bool) -> None:
        digest = hashlib.sha256(message_id.encode()).hexdigest()[:40]
        self._path = os.path.join(folder, digest)
        self._id = message_id
        self._durable = durable
        self._file = -1
        self.base: str | None = None
        self.outcomes: dict[str, str] = {}

    def open(self) -> SentMemo:
        """Take the lock, waiting for it, and read. Raises UnknownVersion, DamagedRecord, OSError."""
        make_folder(os.path.dirname(self._path), durable=self._durable)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._load()
        except BaseException:
            os.close(self._file)
            raise
        return self

    def __enter__(self) -> SentMemo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def _load(self) -> None:
        raw = os.pread(self._file, os.fstat(self._file).st_size, 0)
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):  # a line that a crash cut short
            os.ftruncate(self._file, len(whole))
        lines = whole.decode("utf-8", "replace").splitlines()
        if not lines:
            return
        if lines[0] != _FIRST:
            raise UnknownVersion(f"is no {_FIRST} record", where=self._path, mend="move the file away")
        for line in lines[1:]:
            word, _, rest = line.partition(" ")
            if word == "name":
                self.base = rest
            elif word == "id" and rest != self._id:
                raise UserError(f"belongs to {rest}", where=self._path, mend="move the file away")
            elif word in ("delivered", "failed", "bounced"):
                self.outcomes[unquote(rest.partition(" ")[0])] = word
        if self.base is None or not is_own(self.base):
            raise DamagedRecord("is damaged: it names no message", where=self._path, mend="move the file away")

    def begin(self, base: str) -> None:
        """Remember the file name, before the message has it anywhere."""
        self.base = base
        append_whole(self._file, f"{_FIRST}\nid {self._id}\nname {base}\n".encode("utf-8", "replace"))
        if self._durable:
            os.fsync(self._file)
            fsync_folder(os.path.dirname(self._path))

    def note(self, outcomes: dict[str, tuple[str, str]]) -> None:
        """Remember what became of recipients: name -> (`delivered`, `failed` or `bounced`, reason).

        Not made durable: what is lost of it is found again by looking into the recipients' mailboxes.
        """
        lines = [
            f"{word} {quote(name, safe='@')} {one_line(reason)}".rstrip() + "\n"
            for name, (word, reason) in outcomes.items()
        ]
        append_whole(self._file, "".join(lines).encode("utf-8", "replace"))
