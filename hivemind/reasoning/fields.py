"""Fields of a node on their way in, and on their way into a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hivemind.reasoning.arguments import a_text, a_text_or_none
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.node import (
    ReasoningNode,
    as_flag,
    as_lane,
    as_tags,
    as_turns,
    check_meta,
    node_to_dict,
)
from hivemind.reasoning.notes import Notes, as_thought

__all__ = ["as_op", "merged", "plain", "plain_value", "typed"]

_CHECKS: dict[str, Callable[[Any], Any]] = {
    "title": lambda title: a_text(title, "it"),
    "status": lambda status: a_text(status, "it"),
    "tags": as_tags,
    "lane": as_lane,
    "step": lambda step: a_text_or_none(step, "it"),
    "pinned": as_flag,
    "meta": check_meta,
    "thought": as_thought,
    "related_turn_ids": as_turns,
}
"""The fields of a node that can be set, and what makes values of them."""


def typed(values: object) -> dict[str, Any]:
    """Values from JSON, or from a caller, as a node holds them. Raises GraphError naming a field that there is not, or one
    that cannot be so."""
    found: dict[str, Any] = {}
    if not isinstance(values, Mapping):
        raise GraphError(f"the fields of a node are a mapping, not {values!r}")
    for name, value in values.items():
        check = _CHECKS.get(name)
        if check is None:
            raise GraphError(f"{name!r} is no field to set", mend=f"fields: {', '.join(sorted(_CHECKS))}")
        try:
            found[name] = check(value)
        except GraphError as error:
            raise GraphError(f"{name}: {error.what}", mend=error.mend) from None
    if "pinned" in found.get("tags", ()):
        found.setdefault("pinned", True)
    return found


def merged(node: ReasoningNode, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Whole new values for fields that someone set, meta merged. Raises GraphError for an unknown field or value."""
    values = typed(fields)
    if "meta" in values:
        meta = {**node.meta, **values["meta"]}
        values["meta"] = {key: item for key, item in meta.items() if item is not None}
    return values


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON has them."""
    return {name: plain_value(value) for name, value in values.items()}


def plain_value(value: Any) -> Any:
    """A value of a field as JSON has it."""
    if isinstance(value, tuple | list):
        return [item.as_dict() if isinstance(item, Notes) else item for item in value]
    return value


def as_op(node: ReasoningNode) -> dict[str, Any]:
    """The making of a node as a log has it."""
    record = node_to_dict(node)
    record.get("meta", {}).pop("created_at", None)
    del record["active"]
    return {"op": "node", "id": record.pop("node_id"), **record}
