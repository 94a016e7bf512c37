"""Leftovers of other programs: names of backup, swap and unfinished files, which are neither tasks, mail nor knowledge."""

from __future__ import annotations

import re

from hivemind.pattern import pattern

_LEFTOVER = pattern(
    r"\..*|.*~|#.*#|.*\.(?:sw[a-z]|tmp|bak|orig|rej|part|filepart|crdownload|download)|4913", re.IGNORECASE | re.DOTALL
)


def is_leftover(name: str) -> bool:
    """Check whether a file of that name is hidden, or a leftover of an editor, a merge or a download.

    Vim writes `4913` to see whether it may create files in the folder.
    """
    return _LEFTOVER.fullmatch(name) is not None
