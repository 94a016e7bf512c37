"""Names of files that may be any bytes: one that is no UTF-8 stands in no citation and in no database."""

from __future__ import annotations

import os

from hivemind.documents.errors import DocmemError

__all__ = ["is_utf8", "uncitable"]


def is_utf8(name: str) -> bool:
    """Whether a name, as the operating system gives it, is text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def uncitable(name: str) -> DocmemError:
    """Why the file of such a name is no document."""
    try:
        raw = os.fsencode(name)
    except UnicodeEncodeError:  # half a character: no operating system gave this name
        raw = name.encode("utf-8", "backslashreplace")
    shown = raw.decode("utf-8", "backslashreplace")
    return DocmemError("has a name that is no UTF-8: it cannot be cited", where=shown, mend="rename it")
