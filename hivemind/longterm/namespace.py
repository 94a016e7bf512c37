"""Namespaces: tuples of at least two strings that separate the memories of agents, users and teams."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from hivemind.longterm.errors import NamespaceInvalid, row_boundary
from hivemind.masking import mask

Namespace = tuple[str, ...]


def check_namespace(namespace: Sequence[str]) -> Namespace:
    """Return the namespace as a tuple. Raises NamespaceInvalid for fewer than two parts or an invalid part."""
    parts = check_prefix(namespace)
    if len(parts) < 2:
        raise NamespaceInvalid(
            f"{parts!r} is not a namespace", remedy='use at least two parts, as ("memories", "researcher-1")'
        )
    return parts


def check_prefix(namespace: Sequence[str]) -> Namespace:
    """Return the beginning of a namespace as a tuple. Raises NamespaceInvalid for a part that is blank, not a string,
    or a secret."""
    if isinstance(namespace, str | bytes) or not isinstance(namespace, Sequence):
        raise NamespaceInvalid(f"{namespace!r} is not a namespace", remedy="use a tuple of strings")
    for part in namespace:
        if not isinstance(part, str) or not part.strip():
            raise NamespaceInvalid(f"{part!r} cannot be part of a namespace", remedy="use a non-blank string")
        if (problem := text_problem(part)) is not None:
            raise NamespaceInvalid(f"{part!r} cannot be part of a namespace", remedy=f"remove {problem}")
        if mask(part, words=False) != part:
            raise NamespaceInvalid(
                "a part of a namespace contains a secret", remedy="choose another: namespaces are displayed everywhere"
            )
    return tuple(namespace)


def text_problem(text: str) -> str | None:
    """Describe the first character that not every database can store; return None if there is none.

    UTF-8 cannot encode a lone surrogate (half a character); PostgreSQL cannot store NUL.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"half a character (at {error.start})"
    return f"a NUL character (at {text.index(chr(0))})" if "\0" in text else None


def encode_namespace(namespace: Namespace) -> str:
    """Encode a namespace for the database as a JSON array. Different namespaces have different encodings."""
    return json.dumps(namespace, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=1_024)
def decode_namespace(text: str) -> Namespace:
    """Decode a namespace from the database. Raises StoreDamaged if it is invalid."""
    with row_boundary("a namespace"):
        parts = json.loads(text)
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise TypeError("not an array of strings")
        return tuple(parts)


def format_namespace(namespace: Namespace) -> str:
    """Format a namespace for people, as in `memories/researcher-1`. A slash within a part is escaped."""
    return "/".join(part.replace("\\", "\\\\").replace("/", "\\/") for part in namespace)


def parse_namespace(text: str) -> Namespace:
    """Parse a namespace from the text that `format_namespace` returns."""
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
