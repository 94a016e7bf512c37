"""What callers give, looked at before anything is done: a value of another kind is refused in words."""

from __future__ import annotations

import os

from hivemind.documents.errors import DocmemError

__all__ = ["check_flag", "check_path", "check_share", "check_whole", "is_utf8", "shown", "uncitable"]


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


def check_whole(value: int, what: str, least: int | None = None) -> int:
    """`value`, if it is a whole number, and no less than `least`. Raises DocmemError."""
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        bound = "" if least is None else f" from {least} on"
        raise DocmemError(f"{what} is a whole number{bound}, not {shown(value)}")
    return value


def check_share(value: float, what: str) -> float:
    """`value`, if it is a number from 0 to 1. Raises DocmemError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise DocmemError(f"{what} is 0 to 1, not {shown(value)}")
    return float(value)


def check_flag(value: int, what: str) -> int:
    """`value` as 0 or 1, which it must be. Raises DocmemError."""
    if not isinstance(value, int) or value not in (0, 1):
        raise DocmemError(f"{what} is 0 or 1, not {shown(value)}")
    return int(value)


def check_path(path: str | os.PathLike[str]) -> str:
    """The file's name in full, if it can be cited. Raises DocmemError."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(name, str) or "\0" in name:
        raise DocmemError(f"a file is named by its path, not by {shown(name)}")
    if not is_utf8(name):
        raise uncitable(name)
    return os.path.realpath(name)


def shown(value: object) -> str:
    """A value within a sentence, shortened."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
