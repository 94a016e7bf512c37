"""Half-written drops: whether a program may still be writing a file or folder of the inbox (README.md, *Half-written*)."""

from __future__ import annotations

import os
import time

from hivemind.fs.trees import walk_entries
from hivemind.tasks.record import is_made_whole
from hivemind.tasks.settings import Settings


def stat_at_rest(file: int, settings: Settings) -> os.stat_result | None:
    """Return an open file's stat, or None if a program may still be writing the file."""
    now = settings.clock()
    if not settings.settled(file, settings.settle_ms, now):
        return None
    file_stat = os.fstat(file)
    if file_stat.st_size == 0 and 0 <= now.timestamp() - file_stat.st_ctime < settings.grace_s:
        return None  # an empty file gets more time: `touch`, then the editor
    return file_stat


def is_folder_whole(folder: str, settings: Settings) -> bool:
    """Check that a dropped folder is complete: no file in it was changed lately or is open for writing."""
    if is_made_whole(folder):
        return True
    now, settle_ms = settings.clock(), settings.settle_ms
    newest, files = _newest_change(folder)
    if now.timestamp() < newest:  # a clock set back: wait and compare
        time.sleep(settle_ms / 1000)
        if _newest_change(folder)[0] != newest:
            return False
    elif now.timestamp() - newest < settle_ms / 1000:
        return False
    return all(settings.settled(file, settle_ms, now) for file in files)


def _newest_change(folder: str) -> tuple[float, list[str]]:
    """Return the time of the newest change in a folder, in seconds since 1970, and the paths of its regular files.

    The folder's own change time is left out, because moving the folder changes it.
    """
    newest = os.stat(folder, follow_symlinks=False).st_mtime
    files: list[str] = []
    for dir_entry in walk_entries(folder):
        newest = max(newest, dir_entry.stat(follow_symlinks=False).st_ctime)
        if dir_entry.is_file(follow_symlinks=False):
            files.append(dir_entry.path)
    return newest, files
