"""Filters of a search: metadata, category, importance, time. Their values are bound parameters, never part of the SQL."""

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
from hivemind.longterm.errors import EntryInvalid, row_boundary
from hivemind.longterm.validation import check_between, check_category, check_json, check_time

Condition = tuple[str, list[Any]]
"""An SQL condition on the table `entries e`, with its parameters."""


@frozen
class Filter:
    """A restriction on the entries that a search returns. A field that is None has no effect.

    `metadata` maps a name of an entry's metadata to the required value, or to {operator: operand} with `$eq $ne $gt $gte
    $lt $lte $in $nin $exists`. `created_at` must be ≥ `since` and < `until`. The constructor raises EntryInvalid.
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
            self._metadata_json()

    def condition(self, metadata_condition: Callable[[str], Condition]) -> Condition:
        """Return the filter as an SQL condition and its parameters. The condition is "" if the filter has no restriction.

        `metadata_condition` is called with `metadata` as JSON, and returns its condition.
        """
        parts: list[str] = []
        parameters: list[Any] = []
        for column, value in (
            ("e.category = ?", self.category),
            ("coalesce(e.importance, 0.5) >= ?", self.min_importance),
            ("e.created_at >= ?", None if self.since is None else as_micros(self.since)),
            ("e.created_at < ?", None if self.until is None else as_micros(self.until)),
        ):
            if value is not None:
                parts.append(column)
                parameters.append(value)
        if self.metadata:
            metadata_sql, operands = metadata_condition(self._metadata_json())
            parts.append(metadata_sql)
            parameters += operands
        return " AND ".join(parts), parameters

    def _metadata_json(self) -> str:
        text = check_json(self.metadata, "the metadata filter")
        _tests(text)
        return text


Test = tuple[str, Callable[[Any, bool], bool]]


def metadata_fits(metadata: str, filter_json: str) -> bool:
    """Return True if an entry's metadata (JSON) satisfies a metadata filter (JSON). SQLite calls this as an SQL function."""
    with row_boundary("metadata"):
        fields = json.loads(metadata)
        return all(test(fields.get(name), name in fields) for name, test in _tests(filter_json))


@lru_cache(maxsize=64)
def _tests(filter_json: str) -> tuple[Test, ...]:
    return tuple((name, _test(*test)) for name, *test in parse_filter(filter_json))


def parse_filter(filter_json: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the tests of a metadata filter (JSON) as (name, operator, operand)."""
    with boundary("filter"):
        conditions = json.loads(filter_json).items()
    for name, value in conditions:
        is_test = isinstance(value, dict) and any(key.startswith("$") for key in value)
        yield from ((name, *test) for test in (value.items() if is_test else [("$eq", value)]))


def _test(operator_name: str, operand: Any) -> Callable[[Any, bool], bool]:
    if operator_name in COMPARISONS:
        compare = COMPARISONS[operator_name]
        return lambda value, is_present: is_present and _comparable(value, operand) and compare(value, operand)
    if operator_name in ("$in", "$nin"):
        if not isinstance(operand, list):
            raise EntryInvalid(f"{operator_name} needs a list")
        is_in = operator_name == "$in"
        return lambda value, is_present: (is_present and any(_same(value, option) for option in operand)) is is_in
    if operator_name == "$eq":
        return lambda value, is_present: is_present and _same(value, operand)
    if operator_name == "$ne":
        return lambda value, is_present: not (is_present and _same(value, operand))
    if operator_name == "$exists":
        return lambda _, is_present: is_present is bool(operand)
    raise EntryInvalid(f"{operator_name!r} is not an operator", remedy="use $eq $ne $gt $gte $lt $lte $in $nin $exists")


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _same(first: Any, second: Any) -> bool:
    return isinstance(first, bool) is isinstance(second, bool) and bool(first == second)


def _comparable(first: Any, second: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (first, second))
    return numbers or (isinstance(first, str) and isinstance(second, str))
