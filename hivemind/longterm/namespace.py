"""Namespaces: whose memory it is. A tuple of at least two strings, compared exactly (seed 001, *Memory Namespace*)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from hivemind.longterm.errors import NamespaceInvalid, row_of
from hivemind.masking import mask

Namespace = tuple[str, ...]


def check_namespace(namespace: Sequence[str]) -> Namespace:
    """The namespace as a tuple. Raises NamespaceInvalid unless it is two or more strings, none of them blank."""
    parts = check_prefix(namespace)
    if len(parts) < 2:
        raise NamespaceInvalid(
            f"{parts!r} is no namespace", mend='at least two parts: a kind and whose, as ("memories", "researcher-1")'
        )
    return parts


def check_prefix(namespace: Sequence[str]) -> Namespace:
    """The beginning of a namespace as a tuple: any number of parts, each a string that is not blank."""
    if isinstance(namespace, str | bytes) or not isinstance(namespace, Sequence):
        raise NamespaceInvalid(f"{namespace!r} is no namespace", mend="a namespace is a tuple of strings")
    for part in namespace:
        if not isinstance(part, str) or not part.strip():
            raise NamespaceInvalid(f"{part!r} is no part of a namespace", mend="parts are strings that are not blank")
        if (problem := text_problem(part)) is not None:
            raise NamespaceInvalid(f"{part!r} is no part of a namespace", mend=f"it has {problem}")
        if mask(part, words=False) != part:
            raise NamespaceInvalid(
                "a part of a namespace holds a secret", mend="choose another: it is shown everywhere"
            )
    return tuple(namespace)


def text_problem(text: str) -> str | None:
    """What a text has in it that not every database can keep: half a character (a lone surrogate), which UTF-8 cannot say, or
    NUL, which PostgreSQL cannot; None if nothing."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"half a character in it (at {error.start})"
    return f"a NUL character in it (at {text.index(chr(0))})" if "\0" in text else None


def encoded(namespace: Namespace) -> str:
    """How a namespace is kept: a JSON array, so that two namespaces never share a text, whatever stands in them."""
    return json.dumps(namespace, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=1_024)
def decoded(text: str) -> Namespace:
    """The namespace that `encoded` wrote. Raises StoreDamaged."""
    with row_of("a namespace"):
        found = json.loads(text)
        if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
            raise TypeError("no array of texts")
        return tuple(found)


def shown(namespace: Namespace) -> str:
    """A namespace in words, for messages and locations: `memories/researcher-1`; a slash in a part is escaped."""
    return "/".join(part.replace("\\", "\\\\").replace("/", "\\/") for part in namespace)


def named(text: str) -> Namespace:
    """The parts of a namespace as `shown` wrote it, or a person."""
    parts, escaped = [""], False
    for char in text:
        if escaped or char not in "\\/":
            parts[-1] += char
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            parts.append("")
    return tuple(parts)
