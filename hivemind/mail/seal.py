"""Seal messages that the runtime writes, with a keyed digest in the last header field.

Every process of the user may write to a mailbox, so a From field proves little. The seal proves that the writer could
read the hive's key in `.hive/`, which only the users in `access:` can. It detects messages that a mind's tools or a
sandboxed command wrote into a mailbox. It does not detect messages by a program of the same user that reads the key,
nor copies of a sealed file in another mailbox.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.errors import UserError
from hivemind.fs import Lock, create, make_folder, set_aside
from hivemind.logger import logger

FIELD = "X-Hive-Seal"
_MARK = f"\n{FIELD}: 1 ".encode()
_DIGITS = 64
_log = logger(__name__)


class Seal:
    """Creates and checks seals with the key in `path`. The key is created when it is first needed."""

    __slots__ = ("_key", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: bytes | None = None

    def key(self) -> bytes:
        """Return the key (32 bytes) and create it if it is missing.

        A file without a valid key is kept under another name, and messages sealed with it count as unsealed. Raises
        UserError if the file cannot be read, since it may contain a valid key.
        """
        if self._key is None:
            self._key = self._load_key() or self._make_key()
        return self._key

    def is_damaged(self) -> bool:
        """Check whether the key's file exists but does not contain a key."""
        return self._path.exists() and self._load_key() is None

    def is_gone(self) -> bool:
        """Check whether a key was created but its file is missing."""
        return os.path.lexists(f"{self._path}.lock") and not os.path.lexists(self._path)

    def _load_key(self) -> bytes | None:
        try:
            raw = read_input(self._path)
            with boundary("mail key", self._path):
                key = bytes.fromhex(raw.decode("ascii").strip())
        except (FileNotFoundError, Unreadable):
            return None
        except OSError as error:
            remedy = "its owner must make it readable: chmod or chown, or with access: group hivemind doctor --fix"
            raise UserError(f"cannot be read ({error.strerror})", location=self._path, remedy=remedy) from error
        return key if len(key) == _DIGITS // 2 else None

    def _make_key(self) -> bytes:
        make_folder(self._path.parent)
        with Lock(f"{self._path}.lock"):
            while (key := self._load_key()) is None:  # unless another process has just created it
                if os.path.lexists(self._path):
                    _log.warning("%s does not contain a mail key: kept as %s", self._path, set_aside(self._path).name)
                # group members could replace the file anyway
                is_group_writable = self._path.parent.stat().st_mode & stat.S_IWGRP
                mode = 0o660 if is_group_writable else 0o600
                create(self._path, os.urandom(32).hex() + "\n", mode=mode)
        return key

    def seal_message(self, head: bytes, body: bytes) -> bytes:
        """Return the sealed message: head (field lines), seal, empty line, body."""
        digest = _digest(self.key(), head, b"\n", body)
        return b"".join((head, _MARK[1:], digest.encode(), b"\n\n", body))

    def reseal(self, raw: bytes) -> bytes:
        """Return the message with this hive's seal, which replaces any other seal."""
        head, _, body = raw.partition(b"\n\n")
        lines = [line for line in head.split(b"\n") if not line.lower().startswith(FIELD.lower().encode())]
        return self.seal_message(b"\n".join(lines) + b"\n", body)

    def is_valid(self, raw: bytes) -> bool:
        """Check that the message is sealed and unchanged. Without a key, return False and create none."""
        head_end = raw.find(b"\n\n") + 1
        mark_offset = head_end - 1 - _DIGITS - len(_MARK)
        if mark_offset < 0 or raw[mark_offset : mark_offset + len(_MARK)] != _MARK:
            return False
        key = self._key or self._load_key()
        if key is None:
            return False
        message_digest = raw[mark_offset + len(_MARK) : head_end - 1]
        digest = _digest(key, raw[: mark_offset + 1], raw[head_end:])
        import hmac

        return hmac.compare_digest(digest.encode(), message_digest)


def _digest(key: bytes, *parts: bytes) -> str:
    """Return the keyed BLAKE2b digest of the parts (256 bits), which is a message authentication code by design."""
    return hashlib.blake2b(b"".join(parts), key=key, digest_size=_DIGITS // 2).hexdigest()
