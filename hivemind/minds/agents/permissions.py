"""The policy for calls that a coding agent asks to be allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hivemind.minds.agents.events import ProgramCall

_CLASSES = {
    "read": "read",
    "search": "read",
    "think": "read",
    "edit": "edit",
    "delete": "edit",
    "move": "edit",
    "execute": "execute",
}
_DEFAULTS = {"read": "allow", "edit": "allow", "execute": "allow"}


def decide(call: ProgramCall, permissions: Mapping[Any, str]) -> Literal["allow", "deny"]:
    """Decide on a call by its kind. The hive's own tools are always allowed."""
    permission_class = _CLASSES.get(call.kind, call.kind if call.kind == "fetch" else "other")
    policy = permissions.get(permission_class, _DEFAULTS.get(permission_class, "deny"))
    return "allow" if call.is_hive_tool or policy == "allow" else "deny"
