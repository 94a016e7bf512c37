"""What a search is narrowed down to: metadata, category, importance, time. Conditions are parameters, never SQL text."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from hivemind.boundary import boundary
from hivemind.frozen import frozen
from hivemind.longterm.entry import as_micros
from hivemind.longterm.errors import EntryInvalid, row_of
from hivemind.longterm.validation import check_between, check_category, check_json, check_time

Condition = tuple[str, list[Any]]
"""A condition on the table `entries e`, with its parameters."""


@frozen
class Filter:
    """Which entries may be found; None does not narrow.

    `metadata`: name → value that it must equal, or name → {operator: value} with `$eq $ne $gt $gte $lt $lte $in $nin
    $exists`; names are those of the outermost object, taken as they are. `since` and `until` bound `created_at` (the
    first included, the second not). Raises EntryInvalid for what is no such thing.
    """

    metadata: Mapping[str, Any] | None = None
    category: str | None = None
    min_importance: float | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        check_category(self.category)
        if self.min_importance is not None:
            check_between(self.min_importance, "min_importance", 0, 1)
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None:
                check_time(moment, name)
        if self.metadata is not None:
            self._wanted()

    def condition(self, fits: Callable[[str], Condition]) -> Condition:
        """The same as a condition; the empty text where all are meant. `fits` makes that of metadata (JSON)."""
        parts: list[str] = []
        given: list[Any] = []
        for column, value in (
            ("e.category = ?", self.category),
            ("coalesce(e.importance, 0.5) >= ?", self.min_importance),
            ("e.created_at >= ?", None if self.since is None else as_micros(self.since)),
            ("e.created_at < ?", None if self.until is None else as_micros(self.until)),
        ):
            if value is not None:
                parts.append(column)
                given.append(value)
        if self.metadata:
            part, operands = fits(self._wanted())
            parts.append(part)
            given += operands
        return " AND ".join(parts), given

    def _wanted(self) -> str:
        text = check_json(self.metadata, "a filter of metadata")
        _tests(text)
        return text


Test = tuple[str, Callable[[Any, bool], bool]]


def metadata_fits(metadata: str, wanted: str) -> bool:
    """Whether metadata (JSON) has all that a filter (JSON) asks for. The database calls it."""
    with row_of("metadata"):
        found = json.loads(metadata)
        return all(test(found.get(name), name in found) for name, test in _tests(wanted))


@lru_cache(maxsize=64)
def _tests(wanted: str) -> tuple[Test, ...]:
    return tuple((name, _test(*test)) for name, *test in asked_in(wanted))


def asked_in(wanted: str) -> Iterator[tuple[str, str, Any]]:
    """What a filter (JSON) asks for: name, operator, operand."""
    with boundary("filter"):
        told = json.loads(wanted).items()
    for name, value in told:
        is_test = isinstance(value, dict) and any(key.startswith("$") for key in value)
        yield from ((name, *test) for test in (value.items() if is_test else [("$eq", value)]))


def _test(sign: str, operand: Any) -> Callable[[Any, bool], bool]:
    if sign in ORDERED:
        compare = ORDERED[sign]
        return lambda value, there: there and _comparable(value, operand) and compare(value, operand)
    if sign in ("$in", "$nin"):
        if not isinstance(operand, list):
            raise EntryInvalid(f"{sign} needs a list")
        among = sign == "$in"
        return lambda value, there: (there and any(_same(value, one) for one in operand)) is among
    if sign == "$eq":
        return lambda value, there: there and _same(value, operand)
    if sign == "$ne":
        return lambda value, there: not (there and _same(value, operand))
    if sign == "$exists":
        return lambda _, there: there is bool(operand)
    raise EntryInvalid(f"{sign!r} is no operator of a filter", mend="$eq $ne $gt $gte $lt $lte $in $nin $exists")


ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _same(one: Any, two: Any) -> bool:
    return isinstance(one, bool) is isinstance(two, bool) and bool(one == two)


def _comparable(one: Any, two: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, two))
    return numbers or (isinstance(one, str) and isinstance(two, str))
