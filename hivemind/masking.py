"""Secrets are masked before anything is written to a log, a mail, a memory, a graph or a result (spec 7, *Tools*);
what steers a terminal is taken out before a person is shown it.

A secret is what looks like a key, by the forms that its makers give it, and the value of any environment variable that is
named like one. `mask` keeps the number of lines and changes nothing that it has masked already, so that a quote of a masked
text still stands where it stood. Most texts have none, and are only looked at for runs of letters as long as a key's.

A value that is a word in small letters or a number is masked where it stands by itself: not within a longer word, a path or
an id. What names a thing to programs (`_NAMES`) and the keys of JSON keep such a word, so that a password that happens to be
a task's id breaks nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from json import JSONEncoder, dumps
from typing import Any, TypeVar

MASK = "[masked]"
_MIN_LENGTH = 6
_DEPTH = 4
_T = TypeVar("_T")

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:\w*KEY|\w*TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?|PAT|AUTH)(?:$|_)",
    re.IGNORECASE,
)
_HARMLESS_NAME = re.compile(r"PWD|OLDPWD|SSH_AUTH_SOCK", re.IGNORECASE)
_PLAIN_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD)$", re.IGNORECASE)
"""Names whose value is a secret even if it is a plain word: AUTH_METHOD=password and TOKEN_LIMIT=100000 are none."""
_HARMLESS_VALUES = frozenset(
    {
        "admin", "administrator", "authenticated", "bearer", "changeme", "default", "disabled", "elastic", "enabled", "example",
        "letmein", "minioadmin", "ollama", "optional", "password", "placeholder", "postgres", "private", "public", "rabbitmq",
        "required", "secret", "testing", "unused", "username",
    }
)  # fmt: skip
"""Words that stand where there is no secret, and first passwords that everybody knows."""
_NAME_FIELDS = frozenset(
    {
        "action", "agent", "agent_id", "branch", "by", "from", "holder", "holder_agent_id", "id", "kind", "lane", "mind", "mode",
        "name", "origin", "owner", "path", "role", "state", "status", "step", "step_id", "tag", "target", "task", "task_id",
        "to", "tool", "type", "workspace",
    }
)  # fmt: skip
"""Fields of JSON that name a thing to programs."""
_KEY_BODY = (
    r"(?:[A-Za-z0-9+/=\s:,>#*|]++|-(?!-)|\\+[nrt]|\[masked\])*+(?P<end>-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?"
)
_IN_KEY = re.compile(_KEY_BODY)
_PRIVATE_KEY = re.compile(rf"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----{_KEY_BODY}")
"""With all that may belong to it: a key whose end is not there is none the less one."""
# What stands before the group `kept` is no secret.
_BEARER = re.compile(r"(?P<kept>[Bb]earer )[A-Za-z0-9._~+/=-]{16,}")
_IN_ADDRESS = re.compile(r"(?P<kept>://)[^\s/:@\"'\\]{1,64}:[^\s/@\"'\\]{3,}(?=@)")
_FORMS: tuple[tuple[str, str], ...] = (
    ("sk-", r"sk-(?=[A-Za-z_-]{0,200}+\d)[A-Za-z0-9_-]{16,}"),
    ("k_live_", r"[rs]k_live_[A-Za-z0-9]{16,}"),
    ("k_test_", r"[rs]k_test_[A-Za-z0-9]{16,}"),
    ("AKIA", r"AKIA[A-Z0-9]{16}(?![A-Z0-9])"),
    ("ASIA", r"ASIA[A-Z0-9]{16}(?![A-Z0-9])"),
    *((f"gh{kind}_", rf"gh{kind}_[A-Za-z0-9]{{20,}}") for kind in "opsur"),
    ("github_pat_", r"github_pat_[A-Za-z0-9_]{20,}"),
    ("glpat-", r"glpat-[A-Za-z0-9_-]{16,}"),
    ("xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("AIza", r"AIza[A-Za-z0-9_-]{30,}"),
    ("npm_", r"npm_[A-Za-z0-9]{30,}"),
    ("pypi-", r"pypi-[A-Za-z0-9_-]{32,}"),
    ("hf_", r"hf_[A-Za-z0-9]{30,}"),
    ("eyJ", r"eyJ[A-Za-z0-9_-]{12,2048}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}"),
)
"""Each has a beginning, which is searched for first, and is in its beginning a run of `_RUN` letters, digits, _ and -. One
that goes on from a letter or a digit (`task-`) is part of a word."""
_MAX_BUFFER = 65_536
_MIN_BUFFER = 16_384
_STEP = 1_021
_RUN = b"x" * 15
_LETTERS = bytes(
    ord("x") if byte < 128 and (chr(byte).isalnum() or chr(byte) in "_-") else ord(" ") for byte in range(256)
)
_ESCAPE = re.compile(r"\\(?:[bfnrt]|u[0-9a-f]{4})$")
"""A character that is none of a word, as JSON writes it."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (ESC and C1 among them), overrides and isolates of the writing direction, halves of characters."""
_declared_names: set[str] = set()
_agent_secrets: set[tuple[str, str]] = set()


def is_secret_name(name: str) -> bool:
    """True for the name of an environment variable that says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None and _HARMLESS_NAME.fullmatch(name) is None


def keep_secret(name: str) -> None:
    """Mask the value of this environment variable from now on, whatever it is called: a person has said that it is a key."""
    if name not in _declared_names:
        _declared_names.add(name)
        _values.cache_clear()


def keep_secrets(environ: Mapping[str, str]) -> None:
    """Mask from now on what a further environment has under names of secrets: an agent's file gives it to its commands."""
    secrets = {(name, value) for name, value in environ.items() if is_secret_name(name)}
    if not secrets <= _agent_secrets:
        _agent_secrets.update(secrets)
        _values.cache_clear()


def secret_names() -> list[str]:
    """The environment variables of this process that hold a secret."""
    return [name for name, value in os.environ.items() if value and (is_secret_name(name) or name in _declared_names)]


def mask(text: str, *, words: bool = True) -> str:
    """The text with `[masked]` in the place of every secret; without `words` those stay that are a plain word or a number."""
    return _mask_part(text, words=words, inside=False)[0]


def strip_controls(text: str) -> str:
    """The text with `\ufffd` for each character that steers a terminal or turns the writing around; CRLF becomes `\\n`.

    Mail, files and tasks come from anywhere: an escape sequence in a subject must not retitle a person's window.
    """
    return text if text.isprintable() else _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def escape_controls(text: str) -> str:
    """JSON (or TOML) with such characters in its strings as escapes: it says the same."""
    return text if text.isprintable() else _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class Masker:
    """Masks a text that comes in parts: what the parts return is, joined, what `mask` returns for the whole.

    A line is held back until it is whole, a secret of several lines until it is; no more than 64 KiB and a part.
    """

    def __init__(self) -> None:
        self._buffer = ""
        self._in_key = False

    def feed(self, text: str) -> str:
        """What can be told by now."""
        self._buffer += text
        end = self._complete_lines_end()
        return self._release(self._end_inside_line() if len(self._buffer) - end > _MAX_BUFFER else end)

    def close(self) -> str:
        """What was held back."""
        return self._release(len(self._buffer))

    def _release(self, end: int) -> str:
        text, self._in_key = _mask_part(self._buffer[:end], words=True, inside=self._in_key)
        self._buffer = self._buffer[end:]
        return text

    def _complete_lines_end(self) -> int:
        """The last end of a line that no value of several lines stands across, as far as it is there."""
        end = self._buffer.rfind("\n") + 1
        multiline_values = [value for value in _values()[0] if "\n" in value]
        while (value_start := next((at for value in multiline_values if (at := self._value_start(end, value)) >= 0), -1)) >= 0:
            end = self._buffer.rfind("\n", 0, value_start) + 1
        return end

    def _value_start(self, end: int, value: str) -> int:
        """Where a value (or its beginning, at the end of what is held) stands across `end`; -1 if nowhere."""
        at = self._buffer.find(value[0], max(0, end - len(value) + 1), end)
        while at >= 0 and not value.startswith(self._buffer[at : at + len(value)]):
            at = self._buffer.find(value[0], at + 1, end)
        return at

    def _end_inside_line(self) -> int:
        """A place where the held text can be divided so that its parts are told as the whole is."""
        text, last = self._buffer, len(self._buffer) - max([_MIN_BUFFER, *(len(value) for value in _values()[0])])
        masked_text = _mask_part(text, words=True, inside=self._in_key)[0]
        for end in range(last, 0, -_STEP):
            first_part, inside = _mask_part(text[:end], words=True, inside=self._in_key)
            if masked_text == first_part + _mask_part(text[end:], words=True, inside=inside)[0]:
                return end
        return max(last, 0)


def mask_values(value: _T) -> _T:
    """The same for every text in a value of JSON's kinds. One without secrets, which most are, is given back as it is."""
    if isinstance(value, str):
        return mask(value)  # type: ignore[return-value]
    text = _ENCODER.encode(value)
    return value if mask(text) == text else _mask_nested(value, words=True)


_ENCODER = JSONEncoder(ensure_ascii=False, default=lambda mapping: dict(mapping) if isinstance(mapping, Mapping) else str(mapping))


def _mask_nested(value: Any, *, words: bool) -> Any:
    if isinstance(value, str):
        return mask(value, words=words)
    if isinstance(value, Mapping):
        return {
            mask(key, words=False) if isinstance(key, str) else key: _mask_nested(nested, words=key not in _NAME_FIELDS)
            for key, nested in value.items()
        }
    if isinstance(value, list | tuple):
        return [_mask_nested(nested, words=words) for nested in value]
    if value is None or isinstance(value, int | float):
        return value
    text = mask(str(value), words=words)
    return value if text == str(value) else text


def _mask_part(text: str, *, words: bool, inside: bool) -> tuple[str, bool]:
    """A part of a text masked, and whether its end is inside a private key; `inside` says that of its beginning."""
    values, plain = _values()
    for value in values:
        if value in text:
            text = text.replace(value, _replacement(value))
    if words:
        for word, pattern in plain:
            if word in text:
                text = pattern.sub(MASK, text)
    text, inside = _without_private_keys(text, inside)
    for form in _forms_in(text):
        text = re.sub(form, _mask_word, text)
    if "earer " in text:
        text = _BEARER.sub(_mask_in_word, text)
    if "@" in text and "://" in text:
        text = _IN_ADDRESS.sub(_mask_in_word, text)
    return text, inside


def _without_private_keys(text: str, inside: bool) -> tuple[str, bool]:
    """The text without private keys, and whether its end is inside one; `inside` says that of its beginning."""
    if not inside and "-----BEGIN " not in text:
        return text, False
    parts, at = [], 0
    match = _IN_KEY.match(text) if inside else None
    if match is not None:
        parts.append("\n" * match[0].count("\n"))
        at, inside = match.end(), match.end() == len(text) and match["end"] is None
    for match in _PRIVATE_KEY.finditer(text, at):
        parts += text[at : match.start()], _replacement(match[0])
        at, inside = match.end(), match.end() == len(text) and match["end"] is None
    return "".join([*parts, text[at:]]), inside


def _forms_in(text: str) -> Iterator[str]:
    """Those forms of which a run of letters in the text has the beginning."""
    raw = text.encode("utf-8", "surrogatepass")
    shape = raw.translate(_LETTERS)
    start = shape.find(_RUN)
    if start < 0:
        return
    runs = []
    while start >= 0:
        end = shape.find(b" ", start)
        end = len(shape) if end < 0 else end
        runs.append(raw[start:end])
        start = shape.find(_RUN, end)
    letters = b" ".join(runs).decode("ascii")
    for beginning, form in _FORMS:
        if beginning in letters:
            yield form


def _mask_word(match: re.Match[str]) -> str:
    start, text = match.start(), match.string
    is_inside_word = start > 0 and text[start - 1].isalnum() and not _ESCAPE.search(text, max(0, start - 6), start)
    return match[0] if is_inside_word else _replacement(match[0])


def _mask_in_word(match: re.Match[str]) -> str:
    return match["kept"] + MASK


def _replacement(secret: str) -> str:
    return MASK + "\n" * secret.count("\n")


_Plain = tuple[str, re.Pattern[str]]


@cache
def _values() -> tuple[tuple[str, ...], tuple[_Plain, ...]]:
    """The secrets of this process's environment, and of those that agents' files give: those that are masked wherever they
    stand, longest first, also as JSON writes them; and the plain ones, which are masked where they stand alone."""
    values: set[str] = set()
    plain: set[str] = set()
    for name, value in [*((name, os.environ[name]) for name in secret_names()), *_agent_secrets]:
        value = value.strip()
        if len(value) < _MIN_LENGTH or value.lower() in _HARMLESS_VALUES or _is_file(value):
            continue
        if value.isdecimal() or (value.isalpha() and value.islower()):
            if name in _declared_names or _PLAIN_SECRET_NAME.search(name):
                plain.add(value)
            continue
        for _ in range(_DEPTH):
            values |= {value, dumps(value, ensure_ascii=False)[1:-1]}
            value = dumps(value)[1:-1]  # as it stands one JSON deeper
    return tuple(sorted(values, key=lambda value: (-len(value), value))), tuple((one, _word_pattern(one)) for one in sorted(plain))


def _word_pattern(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?:(?<![\w./-])|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{{4}})){re.escape(word)}(?![\w-]|[./]\w)")


def _is_file(value: str) -> bool:
    """A key's file is named by such variables, too; a key may begin with a slash."""
    return value.startswith(("/", "~")) and os.path.exists(os.path.expanduser(value))
