"""A mind that reads its answers from a file, for tests and replays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.errors import UserError
from hivemind.json_text import fault_of
from hivemind.minds.mind import MindError, MindUnavailable, Thought, ToolCall, ToolSchema, Turn, Usage

_USAGE_KEYS = tuple(field.name for field in fields(Usage))
_THOUGHT_KEYS = frozenset({"text", "calls", "usage"})
_KEYS = (_THOUGHT_KEYS, {"complete"}, {"error", "unavailable"}, {"then"})


class ScriptedMind:
    """A mind that returns the thoughts of a script in order, and its completions in order.

    A script is JSON lines: `{"text": …, "calls": [{"tool": …, "arguments": {…}}], "usage": {…}}` is a thought,
    `{"complete": "…"}` a completion, and `{"error": "…"}` raises MindError, or MindUnavailable with
    `"unavailable": true`. At the end of the script, `think` raises MindError, or returns an empty thought with
    `when_exhausted="idle"`.
    """

    name = "scripted"

    def __init__(self, answers: Iterable[Mapping[str, Any]], *, when_exhausted: str = "error") -> None:
        answers = list(answers)
        self._thoughts = iter([answer for answer in answers if "complete" not in answer])
        self._completions = iter([str(answer["complete"]) for answer in answers if "complete" in answer])
        self._when_exhausted = when_exhausted

    @classmethod
    def load(cls, path: Path) -> ScriptedMind:
        """Return a mind with the script in a file. The first line may be `{"then": "idle"}`.

        Raises UserError naming the line that is invalid.
        """
        answers: list[Mapping[str, Any]] = []
        when_exhausted = "error"
        for number, line in enumerate(_read_lines(path), 1):
            if not line.strip():
                continue
            answer = _parse_line(line, f"{path}:{number}")
            if "then" in answer and not answers:
                when_exhausted = str(answer["then"])
            else:
                answers.append(answer)
        return cls(answers, when_exhausted=when_exhausted)

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:  # noqa: ARG002 - the answers are fixed
        answer = next(self._thoughts, None)
        if answer is None:
            if self._when_exhausted == "idle":
                return Thought()
            raise MindError("the script has no thought left")
        if "error" in answer:
            raise (MindUnavailable if answer.get("unavailable") else MindError)(str(answer["error"]))
        return parse_thought(answer)

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:  # noqa: ARG002 - as above
        answer = next(self._completions, None)
        if answer is None:
            raise MindError("the script has no completion left")
        return answer


def _parse_line(line: str, location: str) -> Mapping[str, Any]:
    """Return the answer on one line of a script. Raises UserError, which names `location`."""
    with boundary("line of a script", location):
        answer = json.loads(line)
    if not isinstance(answer, dict):
        raise UserError(f"is not a JSON object, but {line[:50]!r}", location=location)
    for keys in _KEYS:
        if set(answer) <= keys:
            return answer
    raise UserError(
        f"is not a line of a script: its keys are {', '.join(sorted(answer))}",
        location=location,
        remedy="a line has text, calls, usage; or complete; or error, unavailable",
    )


def _read_lines(path: Path) -> list[str]:
    try:
        return read_input(path).decode("utf-8").splitlines()
    except (Unreadable, OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot be read ({error})", location=path, remedy="in `mind:`, name a file that exists"
        ) from None


def parse_thought(answer: Mapping[str, Any]) -> Thought:
    """Return the Thought in a JSON form. Raises MindError if it is invalid."""
    if fault := fault_of(answer):
        raise MindError(f"the answer cannot be used: {fault}")
    _check_keys("the answer", answer, *sorted(_THOUGHT_KEYS))
    requested_calls = answer.get("calls", [])
    if not isinstance(requested_calls, list):
        raise MindError("'calls' is not a list")
    actions = []
    for call in requested_calls:
        if not isinstance(call, Mapping) or not isinstance(call.get("tool"), str):
            raise MindError(f"a call without a tool: {json.dumps(call)[:200]}")
        if "arguments" not in call:  # a model may add keys
            _check_keys(f"a call of {call['tool']} without 'arguments'", call, "tool", "id")
        arguments = call.get("arguments") or {}
        if not isinstance(arguments, Mapping):
            raise MindError(f"the arguments of {call['tool']} are not an object")
        actions.append(ToolCall(call["tool"], dict(arguments)))
    usage = answer.get("usage") or {}
    if not isinstance(usage, Mapping):
        raise MindError("'usage' is not an object")
    _check_keys("'usage'", usage, *_USAGE_KEYS)
    return Thought(str(answer.get("text", "")), tuple(actions), Usage(**usage))


def _check_keys(label: str, mapping: Mapping[str, Any], *keys: str) -> None:
    if unknown_keys := sorted(set(map(str, mapping)) - {*keys}):
        raise MindError(f"{label} has the unknown key {unknown_keys[0]!r:.50}; its keys are {', '.join(keys)}")
