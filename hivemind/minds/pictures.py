"""Pictures in conversations. A message names pictures by path and digest; the files are read when the message is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, read_input
from hivemind.fs import create, make_folder

PICTURE_TOKENS = 1_600
"""The number of tokens that a picture counts as. Providers scale larger pictures down."""
MAX_PICTURE_BYTES = 5 * 2**20
_SIGNATURES = {b"\x89PNG\r\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def media_type(raw: bytes) -> str | None:
    """Return the media type of a PNG, JPEG, GIF or WebP from its first bytes, else None."""
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES.items() if raw.startswith(start)), None)


def describe_picture(root: Path, path: Path) -> dict[str, str] | None:
    """Return a message part (kind, path, sha256) for a picture below `root`; None for another file, or one over 5 MiB."""
    with suppress(Unreadable, OSError, ValueError):
        raw = read_input(path, MAX_PICTURE_BYTES)
        if (kind := media_type(raw)) is not None:
            return {"kind": kind, "path": path.relative_to(root).as_posix(), "sha256": hashlib.sha256(raw).hexdigest()}
    return None


def save_picture(root: Path, folder: Path, raw: bytes) -> dict[str, str] | None:
    """Save a picture's bytes in `folder`, named by their digest. Return its message part as `describe_picture` does, None for
    bytes that are no picture or over 5 MiB.

    Use this for pictures that are not in a file, or in a file that may change.
    """
    kind = media_type(raw)
    if kind is None or len(raw) > MAX_PICTURE_BYTES:
        return None
    digest = hashlib.sha256(raw).hexdigest()
    path = folder / f"{digest}.{kind.removeprefix('image/')}"
    make_folder(folder)
    with suppress(FileExistsError):
        create(path, raw)
    return {"kind": kind, "path": path.relative_to(root).as_posix(), "sha256": digest}


def read_picture(root: Path, part: Mapping[str, Any]) -> bytes | None:
    """Read the picture of a part. Return None if the file is missing or has changed."""
    with suppress(Unreadable, OSError):
        raw = read_input(root / part["path"], MAX_PICTURE_BYTES)
        if hashlib.sha256(raw).hexdigest() == part["sha256"]:
            return raw
    return None
