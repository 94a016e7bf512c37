"""What a turn says about where we are: the target, the step in focus, what was found, what was just done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hivemind.minds.turn import Focus, Turn

__all__ = ["Situation"]

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Situation:
    """A turn, read: what is in focus, the passages that were found, the results of the turn before."""

    turn: Turn

    @property
    def focus(self) -> Focus:
        focus: Focus = self.turn.focus
        return focus

    @property
    def step(self) -> Mapping[str, Any]:
        """The step in focus: id, kind, argument, title, once; empty if there is none."""
        return self.focus.todo

    def last_result(self, tool: str) -> Mapping[str, Any] | None:
        """What the newest use of `tool` in the turn before gave, or None if it was not used."""
        return next((one.value for one in reversed(self.turn.before) if one.call.tool == tool), None)

    def found_for(self, question: str) -> list[Entry]:
        """What was recalled for one question, of files and of memory, best first."""
        mine = [entry for entry in self.turn.found if question in entry["metadata"].get("answers", {})]
        return sorted(mine, key=lambda entry: (-entry["metadata"].get("relevance", 0), str(entry["id"])))
