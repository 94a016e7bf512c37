"""Names in the inbox: which of them may be tasks, and the ids that the tasks get."""

from __future__ import annotations

import os

from hivemind.fs.leftovers import is_leftover
from hivemind.names import slug

ENDINGS = ("", ".md", ".txt", ".yaml", ".yml", ".markdown")
"""The usual endings of names in the inbox. The rest of the name is the task's id."""


def is_task_name(name: str) -> bool:
    """Check that a name in the inbox may be a task's: not README.md, not hidden, not left by an editor."""
    return not is_leftover(name) and name.lower() != "readme.md"


def ignored_why(name: str) -> str | None:
    """Return the reason for ignoring a name in the inbox, or None if it may be a task's."""
    if is_task_name(name):
        return None
    if name.lower() == "readme.md":
        return "the folder's own README.md"
    return "a hidden file" if name.startswith(".") else "left behind by an editor or a download"


def id_of(name: str, is_folder: bool) -> str:
    """Return the id of a drop without an `id:` in its text. It is made from the drop's name; if the drop is a file, without the
    ending.
    """
    return slug(name if is_folder else os.path.splitext(name)[0])
