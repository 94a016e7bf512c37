"""Why a task failed, as error.md says it, in one line (README.md, *The end*)."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["why_failed"]

_MOST_BYTES = 8192
_PART = re.compile(r"\* (where|what|how to mend it): (.*)")


def why_failed(folder: str | os.PathLike[str]) -> str | None:
    """The first paragraph of the error.md in a failed task's folder; None if there is none, or nothing in it.

    Of a drop that could not become a task it is `where: what; how to mend it`, as the refusal itself says it.
    """
    try:
        with open(Path(folder, "error.md"), "rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:  # a folder that a person is moving, a file that nobody may read: a listing goes on without it
        return None
    parts = {found[1]: found[2].strip("`") for line in text.splitlines() if (found := _PART.fullmatch(line))}
    if "where" in parts and "what" in parts:
        said = f"{parts['where']}: {parts['what']}"
        return f"{said}; {parts['how to mend it']}" if "how to mend it" in parts else said
    paragraphs = (part.strip() for part in re.split(r"\n\s*\n", text))
    return next((" ".join(part.split()) for part in paragraphs if part and not part.startswith("#")), None)
