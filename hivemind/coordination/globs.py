"""Whether two path patterns could both match one path (spec 7, *Files*): decided exactly, whatever files there are.

`*` and `?` stand for characters other than `/`, `[a-z]` and `[!a-z]` for one of them, `**` as a whole part for any
number of folders (none included); a trailing `/` means everything below. `{a,b}` is refused: it is two
patterns. Each pattern becomes a small automaton, and the pair is searched for a path that both accept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from hivemind.coordination.errors import CoordinationError

__all__ = ["check_pattern", "escape", "overlap"]

_MAX_LENGTH = 1024
_LAST = 0x10FFFF
_Ranges = tuple[tuple[int, int], ...]
_NO_SLASH: _Ranges = ((0, 46), (48, _LAST))
_ANY: _Ranges = ((0, _LAST),)
_SLASH: _Ranges = ((47, 47),)
_CLASS = re.compile(r"\[!?[^/][^\]/]*\]")


@dataclass(frozen=True, slots=True)
class _Item:
    """One part of a pattern: the characters it takes, and whether it takes one of them, any number of them, or folders.

    `**/` is two items: `folders` may be skipped with the next, or begins a name; `inside` goes on to a `/`.
    """

    takes: _Ranges
    kind: Literal["one", "many", "folders", "inside"] = "one"

    @property
    def skips(self) -> int:
        """How many items may be passed over here without taking a character."""
        return {"one": 0, "many": 1, "folders": 2, "inside": 0}[self.kind]


def check_pattern(pattern: object) -> str:
    """The pattern in its one form: no `./`, no doubled `/`. Raises CoordinationError (`INVALID_PATTERN`)."""
    text = pattern if isinstance(pattern, str) else ""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or len(text) > _MAX_LENGTH or text.startswith("/") or ".." in parts or "\0" in text:
        raise CoordinationError(
            f"{pattern!r} is no path pattern within the hive",
            code="INVALID_PATTERN",
            mend="a path from the hive's root, such as knowledge/notes.md or knowledge/**",
        )
    if "{" in _CLASS.sub("", text):
        raise CoordinationError(
            f"{pattern!r} has braces, which stand for nothing here",
            code="INVALID_PATTERN",
            mend="one pattern for each of the names, such as src/a.py and src/b.py; [{] is a brace itself",
        )
    return "/".join(parts) + ("/**" if text.endswith("/") else "")


def escape(path: str) -> str:
    """The pattern that matches this path and no other."""
    return re.sub(r"[*?\[{]", r"[\g<0>]", path)


def overlap(first: str, second: str) -> bool:
    """True if there could be a path that both patterns match, whichever is named first."""
    if first == second:
        return True
    one, two = _items(first), _items(second)
    seen = {(0, 0)}
    todo = [(0, 0)]
    while todo:
        a, b = todo.pop()
        if a == len(one) and b == len(two):
            return True
        for pair in _next(one, two, a, b):
            if pair not in seen:
                seen.add(pair)
                todo.append(pair)
    return False


def _next(one: tuple[_Item, ...], two: tuple[_Item, ...], a: int, b: int) -> list[tuple[int, int]]:
    """Where the pair can be after nothing (a repeated part ends) or after one character that both take."""
    found = []
    if a < len(one) and one[a].skips:
        found.append((a + one[a].skips, b))
    if b < len(two) and two[b].skips:
        found.append((a, b + two[b].skips))
    if a < len(one) and b < len(two):
        for left, left_to in _moves(one, a):
            for right, right_to in _moves(two, b):
                if _meet(left, right):
                    found.append((left_to, right_to))
    return found


def _moves(items: tuple[_Item, ...], at: int) -> list[tuple[_Ranges, int]]:
    item = items[at]
    if item.kind == "inside":
        return [(_ANY, at), (_SLASH, at + 1)]
    return [(item.takes, at if item.kind == "many" else at + 1)]


def _meet(left: _Ranges, right: _Ranges) -> bool:
    return any(low <= top and bottom <= high for low, high in left for bottom, top in right)


@lru_cache(maxsize=1024)
def _items(pattern: str) -> tuple[_Item, ...]:
    found: list[_Item] = []
    parts = pattern.split("/")
    for at, part in enumerate(parts):
        last = at + 1 == len(parts)
        if part == "**":
            found += [_Item(_ANY, "many")] if last else [_Item(_NO_SLASH, "folders"), _Item(_ANY, "inside")]
        else:
            found += _part(part)
            if not last:
                found.append(_Item(_SLASH))
    return tuple(found)


def _part(part: str) -> list[_Item]:
    found, at = [], 0
    while at < len(part):
        char = part[at]
        end = part.find("]", at + 3 if part[at + 1 : at + 2] == "!" else at + 2) if char == "[" else -1
        if char == "*":
            found.append(_Item(_NO_SLASH, "many"))
        elif char == "?":
            found.append(_Item(_NO_SLASH))
        elif end > 0:
            found.append(_Item(_class(part[at + 1 : end])))
            at = end
        else:
            found.append(_Item(((ord(char), ord(char)),)))
        at += 1
    return found


def _class(body: str) -> _Ranges:
    """The characters of `[body]`, never `/`."""
    negated, body = body.startswith("!"), body.removeprefix("!")
    ranges, at = [], 0
    while at < len(body):
        if at + 2 < len(body) and body[at + 1] == "-":
            ranges.append((ord(body[at]), ord(body[at + 2])))
            at += 3
        else:
            ranges.append((ord(body[at]), ord(body[at])))
            at += 1
    return _without([(47, 47), *ranges]) if negated else _only(ranges)


def _without(ranges: list[tuple[int, int]]) -> _Ranges:
    found, low = [], 0
    for start, end in sorted(ranges):
        if start > end:
            continue
        if low < start:
            found.append((low, start - 1))
        low = max(low, end + 1)
    return (*found, (low, _LAST)) if low <= _LAST else tuple(found)


def _only(ranges: list[tuple[int, int]]) -> _Ranges:
    kept = [(low, high) for low, high in ranges if low <= high]
    parts = [(max(low, bottom), min(high, top)) for low, high in kept for bottom, top in _NO_SLASH]
    return tuple((low, high) for low, high in parts if low <= high)
