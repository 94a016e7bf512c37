"""Which file systems tell of changes made elsewhere: not those on the network."""

from __future__ import annotations

import os
import re

__all__ = ["needs_polling"]

# A mount by one of these shows changes that another machine (or the host) made, and inotify does not report them.
_REMOTE = re.compile(
    r"nfs\d*|cifs|smb\d*|smbfs|fuse(?:\..+)?|9p|afs|ceph|glusterfs|lustre|gpfs|beegfs|ocfs2|gfs2|ncpfs|virtiofs|"
    r"vboxsf|vmhgfs|drvfs|davfs|coda|orangefs"
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def needs_polling(folder: str | os.PathLike[str], table: str = "/proc/self/mountinfo") -> str | None:
    """The type of the remote file system that `folder` lies on, or None if it is local (or cannot be told)."""
    real = os.path.realpath(folder)
    best, kind = "", None
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:  # not Linux: whether watching works there shows when it is tried
        return None
    for line in lines:
        left, _, right = line.partition(" - ")
        if not right:
            continue
        point = _ESCAPE.sub(lambda found: chr(int(found.group(1), 8)), left.split(" ")[4])
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, kind = point, right.split(" ")[0]
    return kind if kind and _REMOTE.fullmatch(kind) else None
