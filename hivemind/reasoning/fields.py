"""Fields of a node on their way in, and on their way into a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.node import ReasoningNode, as_lane, as_tags, as_turns, check_meta, node_to_dict
from hivemind.reasoning.notes import Notes, as_thought

__all__ = ["as_op", "checked", "plain", "plain_value", "typed"]

_CHANGEABLE = frozenset({"thought", "related_turn_ids", "title", "status", "tags", "lane", "step", "pinned", "meta"})


def checked(node: ReasoningNode, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Whole new values for fields that someone set, meta merged. Raises GraphError for an unknown field or value."""
    values = dict(fields)
    for name, value in fields.items():
        if name not in _CHANGEABLE:
            raise GraphError(f"{name!r} is no field to set", mend=f"fields: {', '.join(sorted(_CHANGEABLE))}")
        if name == "meta":
            merged = {**node.meta, **check_meta(value)}
            values[name] = {key: item for key, item in merged.items() if item is not None}
        elif name == "lane":
            values[name] = as_lane(value)
        elif name == "related_turn_ids":
            values[name] = as_turns(value)
    if "pinned" not in values and "pinned" in values.get("tags", ()):
        values["pinned"] = True
    return values


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values from JSON, or from a caller, as a node holds them. Raises GraphError."""
    found = dict(values)
    if "thought" in found:
        found["thought"] = as_thought(found["thought"])
    if "tags" in found:
        found["tags"] = as_tags(found["tags"])
    return found


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
