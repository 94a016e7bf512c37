"""What LangGraph's filters and namespace conditions mean."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp

__all__ = ["check_labels", "fits", "matches"]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def check_labels(op: Op) -> None:
    """Raise InvalidNamespaceError for an operation on a namespace that LangGraph does not allow.

    Its methods look at that before they make operations; `batch` is given operations as they are.
    """
    named: list[tuple[str, ...]] = []
    if isinstance(op, GetOp | PutOp):
        named = [op.namespace]
    elif isinstance(op, SearchOp):
        named = [op.namespace_prefix]
    elif isinstance(op, ListNamespacesOp):
        named = [tuple(condition.path) for condition in op.match_conditions or ()]
    for namespace in named:
        for label in namespace:
            if not isinstance(label, str) or not label.strip() or "." in label or "\0" in label:
                raise InvalidNamespaceError(
                    f"{label!r} is no label of a namespace (in {namespace!r}): a text without periods"
                )


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether an item's value has what a filter asks for: names as they are, else as paths with dots.

    A mapping asks for what is in it, or compares by operators. Raises ValueError for an operator that is not known.
    """
    return all(_has(_at(value, name), asked) for name, asked in (wanted or {}).items())


def _at(value: Mapping[str, Any], name: str) -> Any:
    if name in value or "." not in name:
        return value.get(name)
    first, _, rest = name.partition(".")
    below = value.get(first)
    return _at(below, rest) if isinstance(below, Mapping) else None


def _has(found: Any, asked: Any) -> bool:
    if isinstance(asked, Mapping):
        if any(name.startswith("$") for name in asked):
            return all(_compares(found, name, operand) for name, operand in asked.items())
        return isinstance(found, Mapping) and all(_has(found.get(name), part) for name, part in asked.items())
    if isinstance(asked, list | tuple):
        same = isinstance(found, list | tuple) and len(found) == len(asked)
        return same and all(_has(one, part) for one, part in zip(found, asked, strict=True))
    return bool(found == asked)


def _compares(found: Any, name: str, operand: Any) -> bool:
    if name not in _OPERATORS:
        raise ValueError(f"Unsupported operator: {name}")
    if name in ("$eq", "$ne"):
        return _OPERATORS[name](found, operand)
    try:
        return _OPERATORS[name](float(found), float(operand))
    except (TypeError, ValueError):  # no numbers: texts have an order, too
        return isinstance(found, str) and isinstance(operand, str) and _OPERATORS[name](found, operand)
    except OverflowError:  # beyond what a float can be; whole numbers know no bound
        return isinstance(found, int) and _OPERATORS[name](found, operand)


def matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Whether a namespace begins or ends as a condition says; `*` stands for any part. Raises ValueError."""
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"Unsupported match type: {condition.match_type}")
    part = (
        namespace[: len(path)] if condition.match_type == "prefix" else namespace[max(0, len(namespace) - len(path)) :]
    )
    return len(part) == len(path) and all(asked in ("*", found) for found, asked in zip(part, path, strict=True))
