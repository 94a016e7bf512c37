"""What became of a send that was given its Message-ID, or that did not reach everyone: remembered in `.hive/sends/<sender>/`.

One small log for each such id. It is begun before the message, so that a send that was cut short goes on under the same
file name, and locked while its send runs, so that two of them cannot both deliver.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from hivemind.errors import UserError
from hivemind.fs import DamagedRecord, Log, make_folder
from hivemind.mail.filename import is_own
from hivemind.mail.header import one_line

__all__ = ["SentMemo"]


class SentMemo:
    """The memory of one Message-ID. `open` takes its lock, leaving the context gives it back.

    `base` is the file name that the message has everywhere (None if this is the first send), `outcomes` what is known
    of each recipient: `delivered`, `failed` or `bounced`.
    """

    __slots__ = ("_held", "_id", "_log", "base", "outcomes")

    def __init__(self, folder: Path, message_id: str, *, durable: bool) -> None:
        digest = hashlib.sha256(message_id.encode()).hexdigest()[:40]
        self._log = Log(folder / digest, "mail-sent", 2, numbered=True, durable=durable, lazy=True)
        self._id = message_id
        self._held = ExitStack()
        self.base: str | None = None
        self.outcomes: dict[str, str] = {}

    def open(self) -> SentMemo:
        """Take the lock, waiting for it, and read. Raises UnknownVersion, LogDamaged, DamagedRecord, OSError."""
        make_folder(os.path.dirname(self._log.path), durable=self._log.durable)
        with ExitStack() as held, _as_told():
            held.enter_context(self._log.locked())
            self._load()
            self._held = held.pop_all()
        return self

    def __enter__(self) -> SentMemo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def _load(self) -> None:
        for record in self._log.read():
            match record:
                case {"id": str(known), "name": str(name)}:
                    if known != self._id:
                        raise UserError(f"belongs to {known}", where=self._log.path, mend="move the file away")
                    self.base = name
                case {"to": str(name), "is": str(outcome)}:
                    self.outcomes[name] = outcome
        if self._log.has_header and (self.base is None or not is_own(self.base)):
            raise DamagedRecord("is damaged: it names no message", where=self._log.path, mend="move the file away")

    def begin(self, base: str) -> None:
        """Remember the file name, on the disk, before the message has it anywhere. Raises OSError."""
        self.base = base
        with _as_told():
            self._log.append({"id": self._id, "name": base}, now=True)

    def note(self, outcomes: dict[str, tuple[str, str]]) -> None:
        """Remember what became of recipients: name -> (`delivered`, `failed` or `bounced`, reason). Raises OSError.

        Not made durable: what is lost of it is found again by looking into the recipients' mailboxes.
        """
        said = [{"to": name, "is": word, "why": one_line(reason)} for name, (word, reason) in outcomes.items()]
        if said:
            with _as_told():
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
