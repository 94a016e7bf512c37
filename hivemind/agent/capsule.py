"""The capsule as an entry of a context: never dropped, never cut (spec 3, *Capsule*)."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["capsule_entry"]


def capsule_entry(capsule: dict[str, Any]) -> dict[str, Any]:
    """The capsule that a view gave, as a critical context entry."""
    return {
        "id": "capsule",
        "content": json.dumps(capsule, ensure_ascii=False),
        "confidence": 1.0,
        "priority": "critical",
        "metadata": {"type": "status", "origin": "hive"},
    }
