"""Secrets are masked before anything is written to a log, a mail, a memory, a graph or a result (spec 7, *Tools*).

A secret is what looks like a key, by the forms that its makers give it, and the value of any environment variable that is
named like one. `mask` keeps the number of lines and changes nothing that it has masked already, so that a quote of a masked
text still stands where it stood. Most texts have none: those cost a search for a few short strings.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from typing import TypeVar

__all__ = ["MASK", "is_secret_name", "keep_secret", "mask", "masked"]

MASK = "[masked]"
_SHORTEST = 8
_DEPTH = 4
_T = TypeVar("_T")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode

_NAMED = re.compile(
    r"(?:^|_)(?:\w*KEY|\w*TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?|PAT|AUTH)(?:$|_)",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(r"PWD|OLDPWD|SSH_AUTH_SOCK", re.IGNORECASE)
_BODY = r"(?:[A-Za-z0-9+/=\s:,]|\\+[nrt])"
# What each form begins with is searched first; a literal beginning keeps the pattern itself fast as well. What stands before
# the group `kept` is no secret. A form that goes on from a letter or a digit (`task-`) is part of a word.
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "-----BEGIN ",
        re.compile(rf"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:{_BODY}*?-----END [A-Z0-9 ]*PRIVATE KEY-----|{_BODY}*)"),
    ),
    ("sk-", re.compile(r"sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}")),
    ("k_live_", re.compile(r"[rs]k_live_[A-Za-z0-9]{16,}")),
    ("k_test_", re.compile(r"[rs]k_test_[A-Za-z0-9]{16,}")),
    ("AKIA", re.compile(r"AKIA[A-Z0-9]{16}(?![A-Z0-9])")),
    ("ASIA", re.compile(r"ASIA[A-Z0-9]{16}(?![A-Z0-9])")),
    *((f"gh{kind}_", re.compile(rf"gh{kind}_[A-Za-z0-9]{{20,}}")) for kind in "opsur"),
    ("github_pat_", re.compile(r"github_pat_[A-Za-z0-9_]{20,}")),
    ("glpat-", re.compile(r"glpat-[A-Za-z0-9_-]{16,}")),
    ("xox", re.compile(r"xox[abeoprs]-[A-Za-z0-9-]{10,}")),
    ("AIza", re.compile(r"AIza[A-Za-z0-9_-]{30,}")),
    ("npm_", re.compile(r"npm_[A-Za-z0-9]{30,}")),
    ("pypi-", re.compile(r"pypi-[A-Za-z0-9_-]{32,}")),
    ("hf_", re.compile(r"hf_[A-Za-z0-9]{30,}")),
    ("eyJ", re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}")),
    ("earer ", re.compile(r"(?P<kept>[Bb]earer )[A-Za-z0-9._~+/=-]{16,}")),
    ("://", re.compile(r"(?P<kept>://)[^\s/:@\"'\\]{1,64}:[^\s/@\"'\\]{3,}(?=@)")),
)
_GOES_ON = frozenset(("earer ", "://"))
_SAID: set[str] = set()


def is_secret_name(name: str) -> bool:
    """True for the name of an environment variable that says that its value is a secret."""
    return _NAMED.search(name) is not None and _NOT_SECRET.fullmatch(name) is None


def keep_secret(name: str) -> None:
    """Mask the value of this environment variable from now on, whatever it is called: a person has said that it is a key."""
    if name not in _SAID:
        _SAID.add(name)
        _values.cache_clear()


def mask(text: str) -> str:
    """The text with `[masked]` in the place of every secret."""
    for value in _values():
        if value in text:
            text = text.replace(value, _in_place_of(value))
    for hint, form in _FORMS:
        if hint in text:
            text = form.sub(_mask_in_word if hint in _GOES_ON else _mask_word, text)
    return text


def masked(value: _T) -> _T:
    """The same for every text in a value of JSON's kinds. It is looked at as one line of JSON, so that a value without secrets,
    which most are, costs little and is given back as it is."""
    if isinstance(value, str):
        return mask(value)  # type: ignore[return-value]
    line = _encode(value)
    told = mask(line)
    return value if told == line else json.loads(told)


def _mask_word(found: re.Match[str]) -> str:
    start, text = found.start(), found.string
    goes_on = start > 0 and text[start - 1].isalnum()
    after_escape = (
        goes_on and start > 1 and text[start - 2] == "\\" and text[start - 1] in "nrt"
    )  # a line's end in JSON
    return found[0] if goes_on and not after_escape else _in_place_of(found[0])


def _mask_in_word(found: re.Match[str]) -> str:
    return found["kept"] + MASK


def _in_place_of(secret: str) -> str:
    return MASK + "\n" * secret.count("\n")


@cache
def _values() -> tuple[str, ...]:
    """The secrets of this process's environment, longest first, also as JSON writes them. Paths and plain words are none."""
    found = set()
    for name, value in os.environ.items():
        value = value.strip()
        if not (is_secret_name(name) or name in _SAID) or len(value) < _SHORTEST or value.startswith(("/", "~")):
            continue
        if value.isdecimal() or (value.isalpha() and value.islower()):
            continue
        for _ in range(_DEPTH):
            found |= {value, json.dumps(value, ensure_ascii=False)[1:-1]}
            value = json.dumps(value)[1:-1]  # as it stands one JSON deeper
    return tuple(sorted(found, key=lambda one: (-len(one), one)))
