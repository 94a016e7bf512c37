"""A mind that answers from a file, in order: for tests and replays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.minds.mind import Action, Context, MindError, Thought, ToolSchema, Usage

__all__ = ["ScriptedMind", "thought_from"]


class ScriptedMind:
    """Gives the thoughts of a script one after the other, and completions likewise.

    A script is JSON lines: `{"text": …, "actions": [{"tool": …, "arguments": {…}}]}` for a thought,
    `{"complete": "…"}` for a completion. After its end it raises MindError, or with `then="idle"` thinks nothing.
    """

    def __init__(self, answers: Iterable[Mapping[str, Any]], *, then: str = "error") -> None:
        answers = list(answers)
        self._thoughts = iter([answer for answer in answers if "complete" not in answer])
        self._completions = iter([str(answer["complete"]) for answer in answers if "complete" in answer])
        self._then = then

    @classmethod
    def load(cls, path: Path) -> ScriptedMind:
        """A script from a file; a first line `{"then": "idle"}` says what comes after its end."""
        answers = []
        for number, line in enumerate(_lines(path), 1):
            if line.strip():
                try:
                    answers.append(dict(json.loads(line)))
                except (ValueError, TypeError) as error:
                    raise UserError(f"is no JSON object ({error})", where=f"{path}:{number}") from None
        then = answers.pop(0)["then"] if answers and set(answers[0]) == {"then"} else "error"
        return cls(answers, then=str(then))

    def think(self, context: Context, tools: Sequence[ToolSchema]) -> Thought:  # noqa: ARG002 - the script knows
        answer = next(self._thoughts, None)
        if answer is None:
            if self._then == "idle":
                return Thought()
            raise MindError("the script has come to its end")
        return thought_from(answer)

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:  # noqa: ARG002 - as above
        answer = next(self._completions, None)
        if answer is None:
            raise MindError("the script has no completion left")
        return answer


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read ({error})", where=path, mend="name a script that exists in mind:") from None


def thought_from(answer: Mapping[str, Any]) -> Thought:
    """A Thought from its JSON form. Raises MindError for what is none."""
    wishes = answer.get("actions", [])
    if not isinstance(wishes, list):
        raise MindError("'actions' is no list")
    actions = []
    for wish in wishes:
        if not isinstance(wish, Mapping) or not isinstance(wish.get("tool"), str):
            raise MindError(f"an action without a tool: {json.dumps(wish)[:200]}")
        arguments = wish.get("arguments") or {}
        if not isinstance(arguments, Mapping):
            raise MindError(f"the arguments of {wish['tool']} are no object")
        actions.append(Action(wish["tool"], dict(arguments)))
    usage = answer.get("usage") or {}
    if not isinstance(usage, Mapping):
        raise MindError("'usage' is no object")
    counted = Usage(usage.get("tokens_in", 0), usage.get("tokens_out", 0), usage.get("money", 0.0))
    return Thought(str(answer.get("text", "")), tuple(actions), counted)
