"""Pictures in a conversation: a message names them by path and digest, and they are read when it is sent (spec 8)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, read_input
from hivemind.fs import create, make_folder

PICTURE_TOKENS = 1_600
"""What a picture counts for: providers make smaller what is larger."""
MOST_BYTES = 5 * 2**20
_BEGINNINGS = {b"\x89PNG\r\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def kind_of(raw: bytes) -> str | None:
    """Which kind of picture begins with these bytes; None for what is no PNG, JPEG, GIF or WebP."""
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _BEGINNINGS.items() if raw.startswith(start)), None)


def picture_part(root: Path, path: Path) -> dict[str, str] | None:
    """How a message names the picture in a file below `root`: kind, path, sha256. None for what is no picture, or over 5 MiB."""
    with suppress(Unreadable, OSError, ValueError):
        raw = read_input(path, MOST_BYTES)
        if (kind := kind_of(raw)) is not None:
            return {"kind": kind, "path": path.relative_to(root).as_posix(), "sha256": hashlib.sha256(raw).hexdigest()}
    return None


def keep_picture(root: Path, folder: Path, raw: bytes) -> dict[str, str] | None:
    """The same for a picture that is in no file, or in one that may change: a copy is kept in `folder`, by its digest."""
    kind = kind_of(raw)
    if kind is None or len(raw) > MOST_BYTES:
        return None
    digest = hashlib.sha256(raw).hexdigest()
    path = folder / f"{digest}.{kind.removeprefix('image/')}"
    make_folder(folder)
    with suppress(FileExistsError):
        create(path, raw)
    return {"kind": kind, "path": path.relative_to(root).as_posix(), "sha256": digest}


def picture_bytes(root: Path, part: Mapping[str, Any]) -> bytes | None:
    """The picture that a part names; None if the file is not what it was."""
    with suppress(Unreadable, OSError):
        raw = read_input(root / part["path"], MOST_BYTES)
        if hashlib.sha256(raw).hexdigest() == part["sha256"]:
            return raw
    return None
