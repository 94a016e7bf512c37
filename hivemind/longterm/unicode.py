"""Texts that can be kept: without half characters (lone surrogates), which UTF-8 cannot say."""

from __future__ import annotations

from hivemind.longterm.errors import EntryInvalid

__all__ = ["check_unicode"]


def check_unicode(text: str, what: str) -> str:
    """The text as it is. Raises EntryInvalid if it has half a character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise EntryInvalid(f"{what} has half a character in it (at {error.start})") from None
    return text
