"""Whether two path patterns could both match one path (spec 7, *Files*): decided exactly, whatever files there are.

`*` and `?` stand for characters other than `/`, `[a-z]` and `[!a-z]` for one of them, `**` as a whole part for any
number of folders (none included); a trailing `/` means everything below. `{a,b}` is refused: it is two
patterns. Paths are compared part by part and parts character by character, with the same search.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from hivemind.coordination.errors import CoordinationError

__all__ = ["check_pattern", "escape", "overlap"]

_MAX_LENGTH = 1024
_LAST = 0x10FFFF
_Ranges = tuple[tuple[int, int], ...]
_ANY: _Ranges = ((0, _LAST),)
_STAR: _Ranges = ((-1, -1),)
"""Stands for `*` among the characters of a part."""
_CLASS = re.compile(r"\[!?[^/][^\]/]*\]")
_T = TypeVar("_T")


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
    one, two = _parts(first), _parts(second)
    if first == second:
        return True
    if any(() in _characters(part) for part in (*one, *two)):  # such as [z-a]: no path has that
        return False
    return _meet(one, two, "**", _names_meet)


def _parts(pattern: str) -> list[str]:
    parts = pattern.split("/")
    return [*parts[:-1], "*", "**"] if parts[-1] == "**" else parts  # everything below: a name at least


def _names_meet(first: str, second: str) -> bool:
    return first == second or _meet(_characters(first), _characters(second), _STAR, _ranges_meet)


def _ranges_meet(left: _Ranges, right: _Ranges) -> bool:
    """Whether a character, which is never `/`, is in both."""
    both = ((max(low, bottom), min(high, top)) for low, high in left for bottom, top in right)
    return any(low <= high and (low, high) != (47, 47) for low, high in both)


def _meet(one: Sequence[_T], two: Sequence[_T], star: _T, same: Callable[[_T, _T], bool]) -> bool:
    """Whether something matches both sequences, in which `star` stands for any number of things."""
    todo, seen = [(0, 0)], set()
    while todo:
        a, b = place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        left, right = one[a : a + 1], two[b : b + 1]
        if not left and not right:
            return True
        if star in (*left, *right):  # it ends, or takes what is beside it
            todo += [(a + 1, b)] if left else []
            todo += [(a, b + 1)] if right else []
        elif left and right and same(left[0], right[0]):
            todo.append((a + 1, b + 1))
    return False


@lru_cache(maxsize=1024)
def _characters(part: str) -> list[_Ranges]:
    found, at = [], 0
    while at < len(part):
        char = part[at]
        end = part.find("]", at + 3 if part[at + 1 : at + 2] == "!" else at + 2) if char == "[" else -1
        if end > 0:
            found.append(_class(part[at + 1 : end]))
            at = end
        else:
            found.append({"*": _STAR, "?": _ANY}.get(char, ((ord(char), ord(char)),)))
        at += 1
    return found


def _class(body: str) -> _Ranges:
    """The characters of `[body]`."""
    ranges = [(ord(found[0]), ord(found[-1])) for found in re.findall(r".-.|.", body.removeprefix("!"), re.DOTALL)]
    ranges = sorted((low, high) for low, high in ranges if low <= high)
    if not body.startswith("!"):
        return tuple(ranges)
    found, low = [], 0
    for start, end in ranges:
        found.append((low, start - 1))
        low = max(low, end + 1)
    return tuple(one for one in (*found, (low, _LAST)) if one[0] <= one[1])
