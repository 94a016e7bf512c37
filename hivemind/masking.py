"""Mask secrets before a text is written to a log, a mail, a memory, a graph or a result. Remove control characters
before a person sees a text.

Secrets are texts in the known formats of API keys, and the values of environment variables with names like `API_KEY`.
`mask` keeps the number of lines and does not change masked text again, so a quote of a masked text keeps its place.
Most texts have no secrets and are only scanned for runs of letters as long as a key.

A value that is a lower-case word or a number is masked only as a separate word, not inside a longer word, a path or an
id. It is not masked in JSON keys and in fields that name objects (`_NAME_FIELDS`): a password that equals a task's id
must not break those references.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from json import JSONEncoder, dumps
from typing import Any, TypeVar

from hivemind.pattern import pattern

MASK = "[masked]"
MASK_NOTE = f"`{MASK}` replaces what looks like a secret in the file."
_MIN_LENGTH = 6
_DEPTH = 4
_T = TypeVar("_T")

_SECRET_NAME = pattern(
    r"(?:^|_)(?:\w*KEY|\w*TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?|PAT|AUTH)(?:$|_)",
    re.IGNORECASE,
)
_HARMLESS_NAME = pattern(r"PWD|OLDPWD|SSH_AUTH_SOCK", re.IGNORECASE)
_PLAIN_SECRET_NAME = pattern(r"(?:KEY|TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD)$", re.IGNORECASE)
"""Names for which even a plain word is a secret, unlike AUTH_METHOD=password and TOKEN_LIMIT=100000."""
_HARMLESS_VALUES = frozenset(
    {
        "admin", "administrator", "authenticated", "bearer", "changeme", "default", "disabled", "elastic", "enabled", "example",
        "letmein", "minioadmin", "ollama", "optional", "password", "placeholder", "postgres", "private", "public", "rabbitmq",
        "required", "secret", "testing", "unused", "username",
    }
)  # fmt: skip
"""Placeholders, and default passwords that everybody knows."""
_NAME_FIELDS = frozenset(
    {
        "action", "agent", "agent_id", "branch", "by", "from", "holder", "holder_agent_id", "id", "kind", "lane", "mind", "mode",
        "name", "origin", "owner", "path", "role", "state", "status", "step", "step_id", "tag", "target", "task", "task_id",
        "to", "tool", "type", "workspace",
    }
)  # fmt: skip
"""JSON fields that contain names and ids."""
_KEY_BODY = (
    r"(?:[A-Za-z0-9+/=\s:,>#*|]++|-(?!-)|\\+[nrt]|\[masked\])*+(?P<end>-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?"
)
_IN_KEY = pattern(_KEY_BODY)
_PRIVATE_KEY = pattern(rf"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----{_KEY_BODY}")
"""A private key. The end marker is optional, because a key that was cut off is a secret too."""
# The group `kept` is not secret and stays.
_BEARER = pattern(r"(?P<kept>[Bb]earer )[A-Za-z0-9._~+/=-]{16,}")
_IN_ADDRESS = pattern(r"(?P<kept>://)(?P<user>[^\s/:@\"'\\]{1,64}):(?P<password>[^\s/@\"'\\]{3,})(?=@)")
_PLACEHOLDER = pattern(
    r"[<{].*[>}]\]?|\[masked\]|\$\{?[A-Z_]+\}?|(?:[a-z]+_?)?(?:pass(?:word|wd)?|secret|token)(?:_[a-z]+)?|[a-z_]+_key"
)
"""Passwords that say what belongs there: `<password>`, `{pw}`, `$PASSWORD`, `mypass`."""
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
"""The first characters of each format, which are searched first, and the format. Each starts with a run of at least
`_RUN` letters, digits, _ and -. After a letter or digit (`task-`) it is part of a word."""
_MAX_BUFFER = 65_536
_MIN_BUFFER = 16_384
_STEP = 1_021
_RUN = b"x" * 15
_LETTERS = bytes(
    ord("x") if byte < 128 and (chr(byte).isalnum() or chr(byte) in "_-") else ord(" ") for byte in range(256)
)
_ESCAPE = pattern(r"\\(?:[bfnrt]|u[0-9a-f]{4})$")
"""A JSON escape of a character that is not part of a word."""
_CONTROL = pattern("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (including ESC and C1), overrides and isolates of the writing direction, surrogates."""
_declared_names: set[str] = set()
_agent_secrets: set[tuple[str, str]] = set()


def is_secret_name(name: str) -> bool:
    """Check whether the name of an environment variable marks its value as a secret."""
    return _SECRET_NAME.search(name) is not None and _HARMLESS_NAME.fullmatch(name) is None


def keep_secret(name: str) -> None:
    """From now on, mask the value of the environment variable `name`, because a person's settings say that it is a key."""
    if name not in _declared_names:
        _declared_names.add(name)
        _values.cache_clear()


def keep_secrets(environ: Mapping[str, str]) -> None:
    """From now on, mask the secrets in another environment, which an agent's file sets for the agent's commands."""
    secrets = {(name, value) for name, value in environ.items() if is_secret_name(name)}
    if not secrets <= _agent_secrets:
        _agent_secrets.update(secrets)
        _values.cache_clear()


def secret_names() -> list[str]:
    """Return the names of this process's environment variables with secrets."""
    return [name for name, value in os.environ.items() if value and (is_secret_name(name) or name in _declared_names)]


def mask(text: str, *, words: bool = True) -> str:
    """Replace every secret in a text by `[masked]`. With `words=False`, secrets that are a plain word or a number stay."""
    return _mask_part(text, words=words, inside=False)[0]


def strip_controls(text: str) -> str:
    r"""Return the text with `�` for control characters and direction overrides, and `\n` for CRLF.

    Mail, files and tasks are not trusted: an escape sequence in a subject must not control a person's terminal.
    """
    return text if text.isprintable() else _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def escape_controls(text: str) -> str:
    """Return a JSON (or TOML) text with control characters and direction overrides in its strings escaped. Its meaning is
    unchanged.
    """
    return text if text.isprintable() else _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class Masker:
    """Masks a text that arrives in parts. The joined outputs equal the output of `mask` for the whole text.

    Incomplete lines and incomplete multi-line secrets are buffered, up to 64 KiB plus one part.
    """

    def __init__(self) -> None:
        self._buffer = ""
        self._in_key = False

    def feed(self, text: str) -> str:
        """Add a part of the text. Return the masked text that is complete by now."""
        self._buffer += text
        end = self._complete_lines_end()
        return self._release(self._end_inside_line() if len(self._buffer) - end > _MAX_BUFFER else end)

    def close(self) -> str:
        """Return the masked rest of the text."""
        return self._release(len(self._buffer))

    def _release(self, end: int) -> str:
        text, self._in_key = _mask_part(self._buffer[:end], words=True, inside=self._in_key)
        self._buffer = self._buffer[end:]
        return text

    def _complete_lines_end(self) -> int:
        """Return the last line end in the buffer that is not inside a multi-line secret, complete or not."""
        end = self._buffer.rfind("\n") + 1
        multiline_values = [value for value in _values()[0] if "\n" in value]
        while (
            value_start := next((at for value in multiline_values if (at := self._value_start(end, value)) >= 0), -1)
        ) >= 0:
            end = self._buffer.rfind("\n", 0, value_start) + 1
        return end

    def _value_start(self, end: int, value: str) -> int:
        """Return the start of the secret `value` in the buffer if the position `end` is inside it, -1 if not.

        The buffer may end before the secret does.
        """
        at = self._buffer.find(value[0], max(0, end - len(value) + 1), end)
        while at >= 0 and not value.startswith(self._buffer[at : at + len(value)]):
            at = self._buffer.find(value[0], at + 1, end)
        return at

    def _end_inside_line(self) -> int:
        """Return a position where the buffer can be split without changing the masked text."""
        text, last = self._buffer, len(self._buffer) - max([_MIN_BUFFER, *(len(value) for value in _values()[0])])
        masked_text = _mask_part(text, words=True, inside=self._in_key)[0]
        for end in range(last, 0, -_STEP):
            first_part, inside = _mask_part(text[:end], words=True, inside=self._in_key)
            if masked_text == first_part + _mask_part(text[end:], words=True, inside=inside)[0]:
                return end
        return max(last, 0)


def mask_values(value: _T) -> _T:
    """Mask every text in a JSON value. A value without secrets, the usual case, is returned unchanged."""
    if isinstance(value, str):
        return mask(value)  # type: ignore[return-value]
    text = _ENCODER.encode(value)
    return value if mask(text) == text else _mask_nested(value, words=True)


_ENCODER = JSONEncoder(
    ensure_ascii=False, default=lambda mapping: dict(mapping) if isinstance(mapping, Mapping) else str(mapping)
)


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
    """Return a part of a text, masked, and True if the part ends inside a private key. `inside`: the part starts inside one.

    `words` is as for `mask`.
    """
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
        text = _IN_ADDRESS.sub(_mask_in_address, text)
    return text, inside


def _without_private_keys(text: str, inside: bool) -> tuple[str, bool]:
    """Return a text with its private keys masked, and True if it ends inside a key. `inside`: the text starts inside one."""
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
    """Yield the patterns of those key formats whose first characters occur in the text, in a run that is long enough
    for a key.
    """
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


def _mask_in_address(match: re.Match[str]) -> str:
    """Mask the password of an address, unless it is too short for a secret, a placeholder or the user's name."""
    user, password = match["user"], match["password"]
    is_example = len(password) < _MIN_LENGTH or password == user or password.lower() in _HARMLESS_VALUES
    return match[0] if is_example or _PLACEHOLDER.fullmatch(password) else _mask_in_word(match)


def _replacement(secret: str) -> str:
    return MASK + "\n" * secret.count("\n")


_Plain = tuple[str, re.Pattern[str]]


@cache
def _values() -> tuple[tuple[str, ...], tuple[_Plain, ...]]:
    """Return the secrets in the environment of this process and of agents' files, as (values, plain words).

    The values are masked anywhere; they are sorted longest first and include their JSON forms. The plain words are masked only
    as separate words.
    """
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
            value = dumps(value)[1:-1]  # the form of one more level of JSON
    return tuple(sorted(values, key=lambda value: (-len(value), value))), tuple(
        (word, _word_pattern(word)) for word in sorted(plain)
    )


def _word_pattern(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?:(?<![\w./-])|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{{4}})){re.escape(word)}(?![\w-]|[./]\w)")


def _is_file(value: str) -> bool:
    """Check whether an environment variable's value is the path of an existing file, so not a key itself but the name of a key's
    file.

    The path must exist, because a key may begin with a slash, too.
    """
    return value.startswith(("/", "~")) and os.path.exists(os.path.expanduser(value))
