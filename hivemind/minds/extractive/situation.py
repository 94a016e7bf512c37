"""What a context says about where we are: the target, the step in focus, what was found, what was just done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.minds.mind import Context

__all__ = ["Situation"]

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Situation:
    """A context, read: the capsule says what is in focus, the other entries are sorted by their type."""

    target: Mapping[str, Any]
    next_call: Mapping[str, Any]
    focus: Entry | None
    passages: tuple[Entry, ...]
    done: tuple[Entry, ...]

    @classmethod
    def read(cls, context: Context) -> Situation:
        capsule = next((_object(entry["content"]) for entry in context if entry.get("id") == "capsule"), {})
        target = _object(_object(capsule.get("where")).get("target"))
        wanted = f"{target.get('kind')}:{target.get('id')}"
        return cls(
            target=target,
            next_call=_object(_object(capsule.get("next")).get("primary")),
            focus=next((entry for entry in context if entry.get("id") == wanted), None),
            passages=tuple(_of_type(context, "knowledge")),
            done=tuple(entry for entry in context if "outcome" in entry.get("metadata", {})),
        )

    @property
    def step(self) -> Mapping[str, Any]:
        """The step in focus: id, kind, argument, title, once; empty if there is none."""
        return _object(self.focus["metadata"].get("step")) if self.focus else {}

    def last_result(self, tool: str) -> Mapping[str, Any] | None:
        """What the newest use of `tool` on this target gave, or None if it was not used on it."""
        told = [entry["metadata"] for entry in self.done]
        mine = [one for one in told if one.get("tool") == tool and one.get("target") == self.target.get("id")]
        newest = max(mine, key=lambda one: str(one.get("timestamp")), default=None)
        return None if newest is None else _object(newest.get("outcome"))

    def found_for(self, question: str) -> list[Entry]:
        """The passages that were recalled for one question, best first."""
        return [entry for entry in self._about(question) if "remembered" not in entry["metadata"]]

    def remembered_for(self, question: str) -> list[Entry]:
        """The long-term memories that answer one question, best first: what somebody said, not what a file says."""
        return [entry for entry in self._about(question) if "remembered" in entry["metadata"]]

    def _about(self, question: str) -> list[Entry]:
        mine = [entry for entry in self.passages if question in entry["metadata"].get("questions", ())]
        return sorted(mine, key=lambda entry: (-entry["metadata"].get("relevance", 0), str(entry["id"])))


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        with suppress(Unreadable), boundary("JSON object"):
            value = json.loads(value)
    return value if isinstance(value, Mapping) else {}


def _of_type(context: Context, kind: str) -> Iterable[Entry]:
    return (entry for entry in context if entry.get("metadata", {}).get("type") == kind)
