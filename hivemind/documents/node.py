"""A node: one piece of a document, with the seed's fields, its hash, and the rules of its context (seed 003)."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import re
from dataclasses import fields
from typing import Any, NamedTuple

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.masking import mask
from hivemind.words import shown


class DocmemError(UserError):
    """Root of the errors of this room."""


class DamagedError(DocmemError):
    """The database is damaged; `hivemind doctor --fix` restores it."""


class UnwritableError(DocmemError):
    """Files have changed, and what they say now cannot be written where the documents are: what was read in last is there."""


class MissingLibraryError(DocmemError):
    """The file needs a library of the extra `docs` that is not installed (yet)."""


class NodeNotFoundError(DocmemError):
    """No node has this id."""

    def __init__(self, node_id: object) -> None:
        what = (
            f"there is no node {node_id!r}" if isinstance(node_id, str) else "an id is text, and so names no node here"
        )
        super().__init__(what, mend="`find` and `roots` show what there is")
        self.node_id = node_id


class OptimisticLockError(DocmemError):
    """The node is not in the state that the caller expected; nothing was changed. `reason` is "changed" or "gone"."""

    node_id: object
    reason = "changed"

    def __init__(self, node_id: str, expected: str, actual: str | None) -> None:
        what = "has changed since" if actual is not None else "is gone"
        mend = "read it again, then decide anew"
        DocmemError.__init__(self, f"node {node_id!r} {what}; nothing was written", mend=mend)  # see NodeGoneError
        self.node_id = node_id
        self.expected = expected
        self.actual = actual


class NodeGoneError(OptimisticLockError, NodeNotFoundError):
    """The node that the caller expected in a certain state was deleted meanwhile."""

    reason = "gone"

    def __init__(self, node_id: str, expected: str) -> None:
        OptimisticLockError.__init__(self, node_id, expected, None)


class ReadonlyError(DocmemError):
    """A readonly node refuses changes of its text and its context (seed 003, *Readonly Metadata*)."""

    def __init__(self, node_id: str) -> None:
        super().__init__(f"node {node_id!r} is readonly", mend="put a note after it")
        self.node_id = node_id


class CycleError(DocmemError):
    """A node cannot become a part of itself (seed 003, *Move*)."""

    def __init__(self, node_id: str, target_id: str) -> None:
        super().__init__(f"node {node_id!r} cannot move to {target_id!r}, which is itself or a part of it")
        self.node_id = node_id
        self.target_id = target_id


def is_utf8(name: str) -> bool:
    """Whether a name, as the operating system gives it, is text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def uncitable(name: str) -> DocmemError:
    """Why the file of such a name is no document."""
    try:
        raw = os.fsencode(name)
    except UnicodeEncodeError:  # half a character: no operating system gave this name
        raw = name.encode("utf-8", "backslashreplace")
    shown = raw.decode("utf-8", "backslashreplace")
    return DocmemError("has a name that is no UTF-8: it cannot be cited", where=shown, mend="rename it")


def check_whole(value: int, what: str, least: int | None = None) -> int:
    """`value`, if it is a whole number, and no less than `least`. Raises DocmemError."""
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        bound = "" if least is None else f" from {least} on"
        raise DocmemError(f"{what} is a whole number{bound}, not {shown(value)}")
    return value


def check_share(value: float, what: str) -> float:
    """`value`, if it is a number from 0 to 1. Raises DocmemError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise DocmemError(f"{what} is 0 to 1, not {shown(value)}")
    return float(value)


def check_flag(value: int, what: str) -> int:
    """`value` as 0 or 1, which it must be. Raises DocmemError."""
    if not isinstance(value, int) or value not in (0, 1):
        raise DocmemError(f"{what} is 0 or 1, not {shown(value)}")
    return int(value)


def check_path(path: str | os.PathLike[str]) -> str:
    """The file's name in full, if it can be cited. Raises DocmemError."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(name, str) or "\0" in name:
        raise DocmemError(f"a file is named by its path, not by {shown(name)}")
    if not is_utf8(name):
        raise uncitable(name)
    return os.path.realpath(name)


# Not after a word character, so that ann@hive is an address and no tag.
_TAG = re.compile(r"(?<![\w@./])@([^\W\d_][\w-]{0,62}\w|[^\W\d_])")


def tags_in(text: str) -> set[str]:
    """The tags of a text, lower-cased, without the `@`: `see @Billing, not a@b.c` gives {"billing"}."""
    return {found.casefold() for found in _TAG.findall(text)} if "@" in text else set()


def without_tags(text: str) -> str:
    """The text without its tags."""
    return _TAG.sub(" ", text)


_LENGTHS = (("context_type", 24), ("context_name", 64), ("context_value", 256))
_MAX_ID = 128


@frozen
class Node:
    """One node as it stood when it was read. Timestamps are ISO 8601 in UTC; `readonly` and `sticky` are 0 or 1.

    `importance` (0 to 1) and `sticky` go beyond the seed's twelve fields (spec 5) and are no part of the hash.
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
    def context(self) -> Context:
        return Context(self.context_type, self.context_name, self.context_value)

    def outline(self) -> dict[str, Any]:
        """The seed's ten keys of *Structure*: no text, no hash."""
        return {
            "id": self.id, "parentId": self.parent_id, "order": self.order_value, "tokenCount": self.token_count,
            "createdAt": self.created_at, "updatedAt": self.updated_at, "contextType": self.context_type,
            "contextName": self.context_name, "contextValue": self.context_value, "readonly": self.readonly,
        }  # fmt: skip


COLUMNS = tuple(field.name for field in fields(Node))


class Context(NamedTuple):
    """The three words that say what a node is for."""

    type: str
    name: str
    value: str


def check_context(context_type: str, context_name: str, context_value: str) -> Context:
    """The three, trimmed, secrets masked. Raises DocmemError unless they have 1–24, 1–64 and 1–256 characters (spec 5)."""
    found = []
    for (field, longest), text in zip(_LENGTHS, (context_type, context_name, context_value), strict=True):
        masked = mask(check_text(text, field).strip())
        if not 1 <= len(masked) <= longest:
            raise DocmemError(f"{field} {shown(masked)} has not 1 to {longest} characters")
        found.append(masked)
    return Context(*found)


def check_text(text: str, what: str = "text") -> str:
    """`text`, if it is text that UTF-8 can hold. Raises DocmemError."""
    if not isinstance(text, str):
        raise DocmemError(f"{what} is {type(text).__name__}, not str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DocmemError(f"{what} has half a character (surrogate) at {error.start}; UTF-8 cannot hold it") from None
    return text


def check_id(node_id: str) -> str:
    """`node_id`, if it may name a node: 1 to 128 printable characters. Raises DocmemError."""
    if not isinstance(node_id, str) or not 1 <= len(node_id) <= _MAX_ID or not node_id.isprintable():
        raise DocmemError(f"{shown(node_id)} is no node id", mend=f"1 to {_MAX_ID} printable characters")
    if mask(node_id, words=False) != node_id:
        raise DocmemError("an id that holds a secret would be shown everywhere", mend="choose another id, or none")
    return check_text(node_id, "id")


def js_number(value: float) -> str:
    """`value` as JavaScript prints it: `1`, `1.2`, `0.00001`, `1e-7`, `1e+21` (ECMAScript, Number::toString)."""
    if not math.isfinite(value):
        raise DocmemError(f"an order is a finite number, not {value}")
    if abs(value) < 2**53 and value == int(value):
        return str(int(value))
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    # n: where the point stands, counted from the first digit that is not 0
    n = int(exponent or 0) + (len(whole) if whole != "0" else len(fraction.lstrip("0")) - len(fraction))
    digits = digits.rstrip("0") or "0"
    if -6 < n <= 0:
        return f"{sign}0.{'0' * -n}{digits}"
    if 0 < n <= 21:
        return f"{sign}{digits[:n].ljust(n, '0')}" + (f".{digits[n:]}" if len(digits) > n else "")
    point = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{point}e{'+' if n > 0 else '-'}{abs(n - 1)}"


def node_hash(parent_id: str | None, context: tuple[str, str, str], text: str, order: float) -> str:
    """Base64 of SHA-512 over `parent_id|type|name|value|text|order` (seed 003, *Optimistic Locking*)."""
    joined = "|".join((parent_id or "", *context, text, js_number(order)))
    return base64.b64encode(hashlib.sha512(joined.encode()).digest()).decode()
