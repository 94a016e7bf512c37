"""`@tags`: links across documents that stand in the text itself (seed 003, *Linking*)."""

from __future__ import annotations

import re

__all__ = ["tags_in", "without_tags"]

# Not after a word character, so that ann@hive is an address and no tag.
_TAG = re.compile(r"(?<![\w@./])@([^\W\d_][\w-]{0,62}\w|[^\W\d_])")


def tags_in(text: str) -> set[str]:
    """The tags of a text, lower-cased, without the `@`: `see @Billing, not a@b.c` gives {"billing"}."""
    return {found.casefold() for found in _TAG.findall(text)} if "@" in text else set()


def without_tags(text: str) -> str:
    """The text without its tags."""
    return _TAG.sub(" ", text)
