"""Pictures in a conversation: a message names them by path and digest, and they are read when it is sent (spec 8)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, read_input

__all__ = ["PICTURE_TOKENS", "picture_bytes", "picture_part"]

PICTURE_TOKENS = 1_600
"""What a picture counts for: providers make smaller what is larger."""
_MOST_BYTES = 5 * 2**20
_BEGINNINGS = {b"\x89PNG\r\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def picture_part(root: Path, path: Path) -> dict[str, str] | None:
    """How a message names the picture in a file below `root`: kind, path, sha256. None for what is no PNG, JPEG, GIF or WebP
    of at most 5 MiB."""
    with suppress(Unreadable, OSError, ValueError):
        raw = read_input(path, _MOST_BYTES)
        kind = next((kind for start, kind in _BEGINNINGS.items() if raw.startswith(start)), None)
        if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
            kind = "image/webp"
        if kind is not None:
            name = path.relative_to(root).as_posix()
            return {"kind": kind, "path": name, "sha256": hashlib.sha256(raw).hexdigest()}
    return None


def picture_bytes(root: Path, part: Mapping[str, Any]) -> bytes | None:
    """The picture that a part names; None if the file is not what it was."""
    with suppress(Unreadable, OSError):
        raw = read_input(root / part["path"], _MOST_BYTES)
        if hashlib.sha256(raw).hexdigest() == part["sha256"]:
            return raw
    return None
