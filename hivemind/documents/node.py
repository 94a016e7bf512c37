"""A node of a document: its fields, its hash, the checks of its context, and this package's errors."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import re
from dataclasses import fields
from decimal import Decimal
from typing import Any, NamedTuple

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.masking import mask
from hivemind.words import short_repr


class DocmemError(UserError):
    """Base class of this package's errors."""


class DamagedError(DocmemError):
    """The database is damaged; `hivemind doctor --fix` restores it."""


class UnwritableError(DocmemError):
    """Files have changed, but the document database cannot be written; it still has the files' previous content."""


class MissingLibraryError(DocmemError):
    """Reading the file needs a library of the extra `docs` that is not installed."""


class NodeNotFoundError(DocmemError):
    """No node has this id."""

    def __init__(self, node_id: object) -> None:
        message = f"there is no node {node_id!r}" if isinstance(node_id, str) else "a node id must be text"
        super().__init__(message, remedy="`roots` lists the documents, `find` their nodes")
        self.node_id = node_id


class OptimisticLockError(DocmemError):
    """The node's hash is not the one that the caller expected. Nothing was written. `reason` is "changed" or "gone" (deleted)."""

    reason = "changed"

    def __init__(self, node_id: str, expected_hash: str, actual_hash: str | None) -> None:
        state = "has changed since it was read" if actual_hash is not None else "is gone"
        mend = "read it again before you change it"
        DocmemError.__init__(self, f"node {node_id!r} {state}; nothing was written", remedy=mend)  # see NodeGoneError
        self.node_id: object
        self.node_id, self.expected_hash, self.actual_hash = node_id, expected_hash, actual_hash


class NodeGoneError(OptimisticLockError, NodeNotFoundError):
    """The node was deleted after the caller read it."""

    reason = "gone"


class ReadonlyError(DocmemError):
    """The caller tried to change the text or context of a readonly node."""

    def __init__(self, node_id: str) -> None:
        super().__init__(f"node {node_id!r} is readonly", remedy="put a note after it")
        self.node_id = node_id


class CycleError(DocmemError):
    """The caller tried to move a node into the node's own subtree."""

    def __init__(self, node_id: str, target_id: str) -> None:
        super().__init__(f"node {node_id!r} cannot move to {target_id!r}, which is itself or a part of it")
        self.node_id = node_id
        self.target_id = target_id


_SURROGATE = re.compile("[\ud800-\udfff]")


def is_utf8(name: str) -> bool:
    return _SURROGATE.search(name) is None


def uncitable_error(name: str) -> DocmemError:
    try:
        raw = os.fsencode(name)
    except UnicodeEncodeError:  # a lone surrogate: the name did not come from the operating system
        raw = name.encode("utf-8", "backslashreplace")
    visible_name = raw.decode("utf-8", "backslashreplace")
    return DocmemError("cannot be cited: its name is not UTF-8", location=visible_name, remedy="rename it")


def check_integer(number: int, name: str, minimum: int | None = None) -> int:
    """Return `number`. Raises DocmemError unless it is an integer, and at least `minimum` if that is not None. `name`
    is for the message."""
    if not isinstance(number, int) or isinstance(number, bool) or (minimum is not None and number < minimum):
        bound = "" if minimum is None else f" from {minimum} on"
        raise DocmemError(f"{name} must be a whole number{bound}, not {short_repr(number)}")
    return number


def check_fraction(number: float, name: str) -> float:
    """Return `number` as a float. Raises DocmemError unless it is between 0 and 1. `name` is for the message."""
    if not isinstance(number, int | float) or isinstance(number, bool) or not 0 <= number <= 1:
        raise DocmemError(f"{name} must be 0 to 1, not {short_repr(number)}")
    return float(number)


def check_flag(flag: int, name: str) -> int:
    """Return `flag` as 0 or 1. Raises DocmemError, with `name` in its message, for any other value."""
    if not isinstance(flag, int) or flag not in (0, 1):
        raise DocmemError(f"{name} must be 0 or 1, not {short_repr(flag)}")
    return int(flag)


def check_path(path: str | os.PathLike[str]) -> str:
    """Return the file's absolute path. Raises DocmemError unless it is UTF-8."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(name, str) or "\0" in name:
        raise DocmemError(f"a file must be named by its path, not by {short_repr(name)}")
    if not is_utf8(name):
        raise uncitable_error(name)
    return os.path.realpath(name)


# Not after a word character: ann@hive is an address, not a tag.
_TAG = re.compile(r"(?<![\w@./])@([^\W\d_][\w-]{0,62}\w|[^\W\d_])")


def tags_in(text: str) -> set[str]:
    """Return the tags of a text in lower case, without `@`: `see @Billing, not a@b.c` → {"billing"}."""
    return {tag.casefold() for tag in _TAG.findall(text)} if "@" in text else set()


def without_tags(text: str) -> str:
    return _TAG.sub(" ", text)


_LENGTHS = (("context_type", 24), ("context_name", 64), ("context_value", 256))
_MAX_ID = 128


@frozen
class Node:
    """A node as it was when it was read. Times are ISO 8601 in UTC; `readonly` and `sticky` are 0 or 1.

    `importance` is 0 to 1. The hash does not depend on `importance` and `sticky`.
    """

    id: str
    parent_id: str | None
    text: str
    order_value: float
    token_count: int
    created_at: str
    updated_at: str
    context_type: str
    context_name: str
    context_value: str
    readonly: int
    hash: str
    importance: float = 0.5
    sticky: int = 0

    @property
    def context(self) -> NodeContext:
        return NodeContext(self.context_type, self.context_name, self.context_value)

    def outline(self) -> dict[str, Any]:
        """Return the node's fields for JSON, with camel-case keys and without text and hash."""
        return {
            "id": self.id, "parentId": self.parent_id, "order": self.order_value, "tokenCount": self.token_count,
            "createdAt": self.created_at, "updatedAt": self.updated_at, "contextType": self.context_type,
            "contextName": self.context_name, "contextValue": self.context_value, "readonly": self.readonly,
        }  # fmt: skip


COLUMNS = tuple(field.name for field in fields(Node))


class NodeContext(NamedTuple):
    """A type, a name and a value that say what a node is for."""

    type: str
    name: str
    value: str


def check_context(context_type: str, context_name: str, context_value: str) -> NodeContext:
    """Return the context, trimmed and with secrets masked.

    Raises DocmemError unless type, name and value have 1–24, 1–64 and 1–256 characters.
    """
    masked_texts = []
    for (field, max_length), text in zip(_LENGTHS, (context_type, context_name, context_value), strict=True):
        masked = mask(check_text(text, field).strip())
        if not 1 <= len(masked) <= max_length:
            raise DocmemError(f"{field} {short_repr(masked)} must have 1 to {max_length} characters")
        masked_texts.append(masked)
    return NodeContext(*masked_texts)


def check_text(text: str, name: str = "text") -> str:
    """Return `text`. Raises DocmemError, with `name` in its message, unless it is a string that UTF-8 can encode."""
    if not isinstance(text, str):
        raise DocmemError(f"{name} must be str, not {type(text).__name__}")
    if surrogate := _SURROGATE.search(text):
        raise DocmemError(f"{name} has a lone surrogate at {surrogate.start()}, which UTF-8 cannot encode")
    return text


def check_id(node_id: str) -> str:
    """Return `node_id`. Raises DocmemError unless it has 1 to 128 printable characters and contains no secret."""
    if not isinstance(node_id, str) or not 1 <= len(node_id) <= _MAX_ID or not node_id.isprintable():
        raise DocmemError(
            f"{short_repr(node_id)} is not a valid node id", remedy=f"use 1 to {_MAX_ID} printable characters"
        )
    if mask(node_id, words=False) != node_id:
        raise DocmemError("a node id must not contain a secret", remedy="choose another id, or leave it out")
    return check_text(node_id, "id")


def js_number(number: float) -> str:
    """Format a number as JavaScript does: `1`, `1.2`, `0.00001`, `1e-7`, `1e+21` (ECMAScript, Number::toString)."""
    if not math.isfinite(number):
        raise DocmemError(f"an order must be a finite number, not {number}")
    digits = repr(number + 0.0)  # the shortest exact digits; -0.0 becomes 0.0
    if number and not 1e-6 <= abs(number) < 1e21:
        return digits.replace("e-0", "e-")
    return format(Decimal(digits), "f").removesuffix(".0")


def node_hash(parent_id: str | None, context: tuple[str, str, str], text: str, order: float) -> str:
    """Return the base64 of the SHA-512 of `parent_id|type|name|value|text|order`."""
    hashed_text = "|".join((parent_id or "", *context, text, js_number(order)))
    return base64.b64encode(hashlib.sha512(hashed_text.encode()).digest()).decode()
