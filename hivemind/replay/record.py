"""What a task's log says of its turns, and the mind that thinks them again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from hivemind.minds import Context, Mind, MindError, Thought, ToolSchema
from hivemind.minds.scripted import thought_from

__all__ = ["Course", "RecordedMind", "script_lines", "turns_of", "wishes_of", "written_in"]

Record = Mapping[str, Any]


def turns_of(records: Iterable[Record]) -> list[Record]:
    """The turns in which something was thought. Those that only waited (for a provider, a lease, a budget) come about by
    what was around them, and are left out."""
    return [
        record
        for record in records
        if record.get("kind") == "cycle" and (record.get("thought") or record.get("actions") or record.get("problem"))
    ]


def wishes_of(turn: Record) -> list[dict[str, Any]]:
    """All actions that were thought of in a turn, those that were not come to among them."""
    wishes = [*turn.get("actions", ()), *turn.get("unused", ())]
    return [{"tool": one["tool"], "arguments": one.get("arguments", {})} for one in wishes]


def written_in(turns: Iterable[Record]) -> set[str]:
    """The files that a task wrote, those of its own folder by their names in it."""
    done = [
        one for turn in turns for one in turn.get("actions", ()) if one["tool"] == "write_file" and "error" not in one
    ]
    names = {PurePosixPath(str(one.get("arguments", {}).get("path", ""))) for one in done}
    return {str(name) for name in names if name.name and not name.is_absolute() and ".." not in name.parts}


def script_lines(records: Iterable[Record]) -> Iterator[str]:
    """A script for a scripted mind: the thoughts of a log, and the completions that its memory asked for."""
    kept = list(records)
    for turn in turns_of(kept):
        if _was_no_thought(turn):
            yield json.dumps({"error": str(turn["problem"])}, ensure_ascii=False)
        else:
            yield json.dumps({"text": turn.get("thought", ""), "actions": wishes_of(turn)}, ensure_ascii=False)
    for record in kept:
        if record.get("kind") == "exchange" and record.get("purpose") == "complete" and "answer" in record:
            yield json.dumps({"complete": record["answer"].get("text", "")}, ensure_ascii=False)


def _was_no_thought(turn: Record) -> bool:
    """A turn whose mind failed: its thought is the reason, in brackets."""
    return not wishes_of(turn) and "problem" in turn


class Course:
    """The turns of a log in their order, whoever took them; `at` is the one that is being taken, from 0."""

    def __init__(self, turns: Sequence[Record]) -> None:
        self.turns = turns
        self.at = -1

    @property
    def turn(self) -> Record:
        """The record of the turn that is being taken. Raises MindError after the last."""
        if self.at >= len(self.turns):
            raise MindError("the log has no more turns")
        return self.turns[self.at]


class RecordedMind:
    """Thinks what stands in the log, turn by turn, for one of the agents that share a course.

    A mind that works by rule (`rule`) thinks for itself instead: its thoughts are a part of what a change of code changes.
    """

    def __init__(self, course: Course, rule: Mind | None) -> None:
        self._course, self._rule = course, rule
        self.by_rule = (
            True  # a model's folds are looked at one by one (`conversation.py`); here the memory does without
        )

    def think(self, context: Context, tools: Sequence[ToolSchema]) -> Thought:
        """The thought of the next turn. Raises MindError where that failed, and after the last."""
        self._course.at += 1
        turn = self._course.turn
        if self._rule is not None:
            return self._rule.think(context, tools)
        if _was_no_thought(turn):
            raise MindError(str(turn["problem"]))
        return thought_from({"text": turn.get("thought", ""), "actions": wishes_of(turn)})

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        """A rule's own completion. Raises MindError where there is none: a replay asks nothing."""
        if self._rule is not None:
            return self._rule.complete(text, schema)
        raise MindError("a replay asks nothing")
