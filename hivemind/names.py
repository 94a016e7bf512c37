"""The rule for names that become parts of paths."""

from __future__ import annotations

import re
import unicodedata

from hivemind.errors import UserError
from hivemind.pattern import pattern

MAX_LENGTH = 64
_NAME = pattern(r"[a-z0-9][a-z0-9._-]{0,63}")
_ADDRESS = pattern(r"(?:.*<)?\s*([^<>@\s]+)(?:@([^<>@\s]+))?\s*>?\s*", re.DOTALL)


def is_name(text: str) -> bool:
    """Check whether `text`, in lower case, may be the name of an agent, a task or a topic."""
    text = text.lower()
    return _NAME.fullmatch(text) is not None and ".." not in text


def check_name(text: object, description: str = "name") -> str:
    """Return the name, trimmed and in lower case: 1 to 64 characters, first a letter or digit, then `A-Z a-z 0-9 . _ -`.

    Raises UserError for any other value (`..`, a path separator, an absolute path, an empty text, a value that is not a
    text).
    """
    name = text.strip().lower() if isinstance(text, str) else ""
    if _NAME.fullmatch(name) is None or ".." in name:
        value_text = repr(text) if len(repr(text)) <= 80 else repr(text)[:77] + "..."
        raise UserError(
            f"{value_text} is not a valid {description}",
            remedy="1 to 64 characters: first a letter or digit, then letters, digits, '.', '_', '-', never '..'",
        )
    return name


def check_maker(text: str) -> str:
    """Return the normalised maker of a task: a name, or `name@hive` of a linked hive. Raises UserError for any other
    text."""
    name, at, hive = text.partition("@")
    return check_name(name, "agent name") + (f"@{check_name(hive, 'name of a hive')}" if at else "")


def slug(text: str, default: str = "task") -> str:
    """Return a name made from free text: `Was ist los?` becomes `was-ist-los`. At most 48 characters, cut between words.

    It is never empty: a text without Latin letters and digits becomes `default`.
    """
    ascii_text = unicodedata.normalize("NFKD", text.casefold()).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9._]+", "-", ascii_text)
    words = re.sub(r"\.{2,}", ".", words).strip("-._")
    if len(words) > 48:
        whole_words = words[:49].rpartition("-")[0]
        words = (whole_words if len(whole_words) >= 24 else words[:48]).strip("-._")
    return words or default


def address(name: str, workspace: str) -> str:
    """Return the mail address of an agent: `name@workspace`."""
    return f"{name}@{workspace}"


def local_part(text: str) -> str:
    """Return the agent's name from `name`, `name@workspace` or `Name <name@workspace>`. Raises UserError if the text
    has none."""
    match = _ADDRESS.fullmatch(text.strip())
    return check_name(match.group(1) if match else text, "agent or address")
