"""The runtime's mark on what it wrote: a keyed digest in the last header field.

A mailbox is a folder that every process of the user may write to, so a From field proves nothing. The seal proves that
whoever wrote the message could read the hive's key, which lies in `.hive/` (mode 600). It keeps out what a mind has a
tool write into a mailbox, and what a sandboxed command writes there; it does not keep out a program of the same user
that reads the key, and it says nothing about a sealed file copied into another mailbox.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from hivemind.errors import UserError
from hivemind.fs import create

__all__ = ["FIELD", "Seal"]

FIELD = "X-Hive-Seal"
_MARK = f"\n{FIELD}: 1 ".encode()
_DIGITS = 64


class Seal:
    """Makes and checks seals with the key in `path`; the key is made when it is first needed."""

    __slots__ = ("_durable", "_key", "_path")

    def __init__(self, path: Path, durable: bool) -> None:
        self._path = path
        self._durable = durable
        self._key: bytes | None = None

    def key(self) -> bytes:
        """32 bytes. Raises UserError if the file holds something else."""
        if self._key is None:
            found = self._load()
            if found is None:
                found = self._make()
            try:
                self._key = bytes.fromhex(found)
            except ValueError:
                self._key = b""
            if len(self._key) != 32:
                self._key = None
                raise UserError(
                    "is no mail key", where=self._path, mend="delete it; older mail then counts as unsealed"
                )
        return self._key

    def _load(self) -> str | None:
        try:
            with open(self._path, encoding="ascii", errors="replace") as file:
                return file.read().strip()
        except FileNotFoundError:
            return None

    def _make(self) -> str:
        os.makedirs(self._path.parent, exist_ok=True)
        try:
            create(self._path, secrets.token_hex(32) + "\n", durable=self._durable, mode=0o600)
        except FileExistsError:  # another process made it a moment ago
            pass
        return self._load() or ""

    def put(self, head: bytes, body: bytes) -> bytes:
        """The whole message: head (field lines), seal, empty line, body."""
        digest = _digest(self.key(), head, b"\n", body)
        return b"".join((head, _MARK[1:], digest.encode(), b"\n\n", body))

    def holds(self, raw: bytes) -> bool:
        """True if the message is sealed and has not been changed since. Without a key nothing is; none is made for it."""
        head_end = raw.find(b"\n\n") + 1
        at = head_end - 1 - _DIGITS - len(_MARK)
        if at < 0 or raw[at : at + len(_MARK)] != _MARK:
            return False
        if self._key is None and self._load() is None:
            return False
        shown = raw[at + len(_MARK) : head_end - 1]
        digest = _digest(self.key(), raw[: at + 1], raw[head_end:])
        return hmac.compare_digest(digest.encode(), shown)


def _digest(key: bytes, *parts: bytes) -> str:
    """BLAKE2b with a key, 256 bits: a message authentication code by design."""
    return hashlib.blake2b(b"".join(parts), key=key, digest_size=_DIGITS // 2).hexdigest()
