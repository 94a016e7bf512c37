"""A mind that answers from a file, in order: for tests and replays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.errors import UserError
from hivemind.json_text import fault_of
from hivemind.minds.mind import Action, MindError, MindUnavailable, Thought, ToolSchema, Turn, Usage

_KEYS = (frozenset({"text", "calls", "usage"}), {"complete"}, {"error", "unavailable"}, {"then"})


class ScriptedMind:
    """Returns the thoughts of a script one after the other, and completions likewise.

    A script is JSON lines: `{"text": …, "calls": [{"tool": …, "arguments": {…}}], "usage": {…}}` for a thought,
    `{"complete": "…"}` for a completion, `{"error": "…"}` for a thought that fails (with `"unavailable": true`: because what
    the mind needs is down). After its end it raises MindError, or with `then="idle"` thinks nothing.
    """

    name = "scripted"

    def __init__(self, answers: Iterable[Mapping[str, Any]], *, then: str = "error") -> None:
        answers = list(answers)
        self._thoughts = iter([answer for answer in answers if "complete" not in answer])
        self._completions = iter([str(answer["complete"]) for answer in answers if "complete" in answer])
        self._then = then

    @classmethod
    def load(cls, path: Path) -> ScriptedMind:
        """A script from a file; a first line `{"then": "idle"}` says what comes after its end. Raises UserError naming the
        line of what is no part of a script."""
        answers: list[Mapping[str, Any]] = []
        then = "error"
        for number, line in enumerate(_lines(path), 1):
            if not line.strip():
                continue
            answer = _answer(line, f"{path}:{number}")
            if "then" in answer and not answers:
                then = str(answer["then"])
            else:
                answers.append(answer)
        return cls(answers, then=then)

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:  # noqa: ARG002 - the script knows
        answer = next(self._thoughts, None)
        if answer is None:
            if self._then == "idle":
                return Thought()
            raise MindError("the script has come to its end")
        if "error" in answer:
            raise (MindUnavailable if answer.get("unavailable") else MindError)(str(answer["error"]))
        return thought_from(answer)

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:  # noqa: ARG002 - as above
        answer = next(self._completions, None)
        if answer is None:
            raise MindError("the script has no completion left")
        return answer


def _answer(line: str, where: str) -> Mapping[str, Any]:
    """One line of a script. Raises UserError."""
    with boundary("line of a script", where):
        answer = json.loads(line)
    if not isinstance(answer, dict):
        raise UserError(f"is no JSON object, but {line[:50]!r}", where=where)
    for keys in _KEYS:
        if set(answer) <= keys:
            return answer
    raise UserError(
        f"is no line of a script: it has {', '.join(sorted(answer))}",
        where=where,
        mend="a line has text, calls, usage; or complete; or error, unavailable",
    )


def _lines(path: Path) -> list[str]:
    try:
        return read_input(path).decode("utf-8").splitlines()
    except (Unreadable, OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read ({error})", where=path, mend="name a script that exists in mind:") from None


def thought_from(answer: Mapping[str, Any]) -> Thought:
    """A Thought from its JSON form. Raises MindError for what is none."""
    if fault := fault_of(answer):
        raise MindError(f"the answer can't be used: {fault}")
    wishes = answer.get("calls", [])
    if not isinstance(wishes, list):
        raise MindError("'calls' is not a list")
    actions = []
    for wish in wishes:
        if not isinstance(wish, Mapping) or not isinstance(wish.get("tool"), str):
            raise MindError(f"a call without a tool: {json.dumps(wish)[:200]}")
        arguments = wish.get("arguments") or {}
        if not isinstance(arguments, Mapping):
            raise MindError(f"the arguments of {wish['tool']} are no object")
        actions.append(Action(wish["tool"], dict(arguments)))
    usage = answer.get("usage") or {}
    if not isinstance(usage, Mapping):
        raise MindError("'usage' is no object")
    counted = Usage(usage.get("tokens_in", 0), usage.get("tokens_out", 0), usage.get("money", 0.0))
    return Thought(str(answer.get("text", "")), tuple(actions), counted)
