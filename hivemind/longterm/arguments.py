"""What callers give, checked before anything is done with it: what is no such thing raises EntryInvalid, in words."""

from __future__ import annotations

from datetime import datetime

from hivemind.longterm.errors import EntryInvalid
from hivemind.longterm.moment import FIRST, LAST, as_micros
from hivemind.masking import mask

__all__ = ["check_between", "check_flag", "check_name", "check_text", "check_time", "check_unicode", "check_whole"]

_SHOWN = 60
_MOST = 1 << 40  # a whole number beyond means: all there are


def check_unicode(text: str, what: str) -> str:
    """The text as it is. Raises EntryInvalid if it has half a character (a lone surrogate), which UTF-8 cannot say."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise EntryInvalid(f"{what} has half a character in it (at {error.start})") from None
    return text


def check_name(name: str, what: str) -> str:
    """The name as it is. Raises EntryInvalid for half a character, and for a secret, which a name would show everywhere."""
    if mask(check_unicode(name, what), words=False) != name:
        raise EntryInvalid(f"{what} holds a secret", mend="choose another: a name is shown wherever the entry is")
    return name


def check_text(text: object, what: str) -> str:
    """A text, which may be blank."""
    if not isinstance(text, str):
        raise EntryInvalid(f"{what} is a text, {_told(text)} is none")
    return text


def check_whole(number: object, what: str) -> int:
    """A whole number from 0."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise EntryInvalid(f"{what} is a whole number from 0, {_told(number)} is none")
    return min(number, _MOST)


def check_between(number: object, what: str, least: float, most: float) -> float:
    """A number from `least` to `most`."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not least <= number <= most:
        raise EntryInvalid(f"{what} is a number from {least:g} to {most:g}, {_told(number)} is none")
    return float(number)


def check_flag(flag: object, what: str) -> bool:
    """True or False: what only counts as true must not widen a search, or store what was not to be stored."""
    if not isinstance(flag, bool):
        raise EntryInvalid(f"{what} is True or False, {_told(flag)} is neither")
    return flag


def check_time(moment: object, what: str) -> int:
    """A time in microseconds since 1970; one without a zone is UTC. It must be one that a datetime in UTC can say."""
    if not isinstance(moment, datetime):
        raise EntryInvalid(f"{what} is a datetime, {_told(moment)} is none", mend="without a zone it is taken as UTC")
    micros = as_micros(moment)
    if not FIRST <= micros <= LAST:
        raise EntryInvalid(f"{what} is a time that UTC cannot say: {moment.isoformat()}")
    return micros


def _told(value: object) -> str:
    """A value in a message: short, whatever it is."""
    try:
        said = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return f"a {type(value).__name__}"
    return said if len(said) <= _SHOWN else said[:_SHOWN] + "…"
