"""Digests of what a context says about its matter, for the log: the same whenever the same turn is taken again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from hivemind.boundary import Unreadable, boundary

__all__ = ["entry_digests"]

_ALWAYS = ("rom", "file")
_CHARS = 12


def entry_digests(context: Iterable[Mapping[str, Any]], matter: str) -> dict[str, str]:
    """The beginning of the SHA-256 of each entry's content, by its id: rules, files, what was recalled, and what the context
    says of the task `matter` itself. Left out is what is another each time: counts, times, other tasks, what was remembered.

    Of the capsule it is what comes next.
    """
    found = {}
    for entry in context:
        content = str(entry["content"])
        if entry["id"] == "capsule":
            content = json.dumps(_next(content), sort_keys=True)
        elif not _is_of_it(entry, matter):
            continue
        found[str(entry["id"])] = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:_CHARS]
    return found


def _is_of_it(entry: Mapping[str, Any], matter: str) -> bool:
    name, told = str(entry["id"]), entry.get("metadata", {})
    kind = told.get("type")
    mine = name in (f"task:{matter}", f"context:conversation:{matter}", f"context:steps:{matter}")
    return mine or kind in _ALWAYS or (kind == "knowledge" and name.startswith("knowledge:"))


def _next(capsule: str) -> Any:
    with suppress(Unreadable), boundary("capsule"):
        return json.loads(capsule).get("next", {}).get("primary")
    return None
