"""Which file systems tell of changes made elsewhere: not those on the network."""

from __future__ import annotations

import os
import re

__all__ = ["mounts", "needs_polling"]

# A mount by one of these shows changes that another machine (or the host) made, and inotify does not report them.
_REMOTE = re.compile(
    r"nfs\d*|cifs|smb\d*|smbfs|fuse(?:\..+)?|9p|afs|ceph|glusterfs|lustre|gpfs|beegfs|ocfs2|gfs2|ncpfs|virtiofs|"
    r"vboxsf|vmhgfs|drvfs|davfs|coda|orangefs"
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def mounts(table: str = "/proc/self/mountinfo") -> list[tuple[str, str]]:
    """(mount point, type of file system) of all that is mounted; empty where the system has no such table."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:  # not Linux: whether watching works there shows when it is tried
        return []
    found = []
    for line in lines:
        left, _, right = line.partition(" - ")
        if right:
            point = _ESCAPE.sub(lambda octal: chr(int(octal.group(1), 8)), left.split(" ")[4])
            found.append((point, right.split(" ")[0]))
    return found


def needs_polling(folder: str | os.PathLike[str], mounted: list[tuple[str, str]]) -> str | None:
    """The type of the remote file system that `folder` lies on, or None if it is local (or cannot be told)."""
    real = os.path.realpath(folder)
    best, kind = "", ""
    for point, found in mounted:
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, kind = point, found
    return kind if _REMOTE.fullmatch(kind) else None
