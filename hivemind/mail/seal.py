"""The runtime's mark on what it wrote: a keyed digest in the last header field.

A mailbox is a folder that every process of the user may write to, so a From field proves nothing. The seal proves that
whoever wrote the message could read the hive's key, which lies in `.hive/`, open to whom `access:` says. It
keeps out what a mind has a tool write into a mailbox, and what a sandboxed command writes there; it does not keep out a
program of the same user that reads the key, and it says nothing about a sealed file copied into another mailbox.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import stat
from pathlib import Path

from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.errors import UserError
from hivemind.fs import Lock, create, make_folder, set_aside

FIELD = "X-Hive-Seal"
_MARK = f"\n{FIELD}: 1 ".encode()
_DIGITS = 64
_log = logging.getLogger(__name__)


class Seal:
    """Makes and checks seals with the key in `path`; the key is made when it is first needed."""

    __slots__ = ("_durable", "_key", "_path")

    def __init__(self, path: Path, durable: bool) -> None:
        self._path = path
        self._durable = durable
        self._key: bytes | None = None

    def key(self) -> bytes:
        """32 bytes; made where there is none. A file that holds something else is kept beside, under another name: what was
        sealed with it counts as unsealed. Raises UserError for one that can't be read: nothing is known of what it holds."""
        if self._key is None:
            self._key = self._load() or self._make()
        return self._key

    def is_damaged(self) -> bool:
        """Whether there is a file, and no key in it."""
        return self._path.exists() and self._load() is None

    def is_gone(self) -> bool:
        """Whether a key was made, and there is no file any more."""
        return os.path.lexists(f"{self._path}.lock") and not os.path.lexists(self._path)

    def _load(self) -> bytes | None:
        try:
            raw = read_input(self._path)
            with boundary("mail key", self._path):
                key = bytes.fromhex(raw.decode("ascii").strip())
        except (FileNotFoundError, Unreadable):
            return None
        except OSError as error:
            mend = "its owner makes it readable: chmod or chown, with access: group hivemind doctor --fix"
            raise UserError(f"cannot be read ({error.strerror})", where=self._path, mend=mend) from error
        return key if len(key) == _DIGITS // 2 else None

    def _make(self) -> bytes:
        make_folder(self._path.parent, durable=self._durable)
        with Lock(f"{self._path}.lock"):
            while (found := self._load()) is None:  # else another process made it a moment ago
                if os.path.lexists(self._path):
                    _log.warning("%s holds no mail key: kept as %s", self._path, set_aside(self._path).name)
                shared = self._path.parent.stat().st_mode & stat.S_IWGRP  # who may write there could replace it
                mode = 0o660 if shared else 0o600
                create(self._path, secrets.token_hex(32) + "\n", durable=self._durable, mode=mode)
        return found

    def put(self, head: bytes, body: bytes) -> bytes:
        """The whole message: head (field lines), seal, empty line, body."""
        digest = _digest(self.key(), head, b"\n", body)
        return b"".join((head, _MARK[1:], digest.encode(), b"\n\n", body))

    def renew(self, raw: bytes) -> bytes:
        """The message under this hive's own seal, whatever seal it had."""
        head, _, body = raw.partition(b"\n\n")
        lines = [line for line in head.split(b"\n") if not line.lower().startswith(FIELD.lower().encode())]
        return self.put(b"\n".join(lines) + b"\n", body)

    def holds(self, raw: bytes) -> bool:
        """True if the message is sealed and has not been changed since. Without a key nothing is; none is made for it."""
        head_end = raw.find(b"\n\n") + 1
        at = head_end - 1 - _DIGITS - len(_MARK)
        if at < 0 or raw[at : at + len(_MARK)] != _MARK:
            return False
        key = self._key or self._load()
        if key is None:
            return False
        shown = raw[at + len(_MARK) : head_end - 1]
        digest = _digest(key, raw[: at + 1], raw[head_end:])
        return hmac.compare_digest(digest.encode(), shown)


def _digest(key: bytes, *parts: bytes) -> str:
    """BLAKE2b with a key, 256 bits: a message authentication code by design."""
    return hashlib.blake2b(b"".join(parts), key=key, digest_size=_DIGITS // 2).hexdigest()
