"""Asking a mind for JSON, and what to do when it does not give it: say why, and ask again (spec 4, *memorize*)."""

from __future__ import annotations

import json
import queue
import re
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.patch import parse

__all__ = ["TRIES", "CompletingMind", "NoAnswer", "ask", "find_json"]

TRIES = 3
_FENCED = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)
_SHOWN = 2_000
_STARTS = 8  # braces in the prose before the object
_M = TypeVar("_M", bound=BaseModel)
_T = TypeVar("_T")


class CompletingMind(Protocol):
    """What the memory needs of a mind; every mind of `hivemind.minds` has it."""

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        """An answer to a prompt, JSON if a schema is given."""
        ...


class NoAnswer(GraphError):
    """The mind gave no answer that could be used; `reasons` say why, one for each try."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(f"the mind gave no answer that could be used ({reasons[-1]})")
        self.reasons = reasons


def ask(
    mind: CompletingMind,
    prompt: str,
    model: type[_M],
    apply: Callable[[_M], _T],
    *,
    timeout: float | None = None,
) -> _T:
    """What `apply` makes of the mind's answer. A bad one is shown to the mind with the reason, TRIES times in all.

    `apply` refuses with GraphError. `timeout` is in seconds for each try; an answer that comes later is not used.
    Raises NoAnswer.
    """
    schema = _schema(model)
    reasons: list[str] = []
    text = prompt
    for _ in range(TRIES):
        answer = ""
        try:
            answer = _complete(mind, text, schema, timeout)
            return apply(parse(model, find_json(answer)))
        except UserError as error:
            reasons.append(error.what if not error.mend else f"{error.what}; {error.mend}")
        text = (
            f"{prompt}\n\nYour last answer:\n{str(answer)[:_SHOWN]}\n\nIt can't be used: {reasons[-1]}\nAnswer again."
        )
    raise NoAnswer(reasons)


@lru_cache(maxsize=8)
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def find_json(answer: object) -> object:
    """The JSON object in an answer, also in a fence or between prose. Raises GraphError."""
    if not isinstance(answer, str) or not answer.strip():
        raise GraphError("the answer is empty")
    fenced = _FENCED.search(answer)
    text = fenced.group(1) if fenced else answer
    start, problem = text.find("{"), "there is no JSON object in the answer"
    for _ in range(_STARTS):
        if start < 0:
            break
        try:
            with boundary("JSON object"):
                return json.JSONDecoder().raw_decode(text, start)[0]
        except Unreadable as error:
            problem = f"the answer {error.what}"
        start = text.find("{", start + 1)
    raise GraphError(problem)


def _complete(mind: CompletingMind, text: str, schema: Mapping[str, Any], timeout: float | None) -> str:
    if timeout is None:
        outcome = _outcome(mind, text, schema)
    else:
        answers: queue.SimpleQueue[str | GraphError] = queue.SimpleQueue()
        worker = threading.Thread(
            target=lambda: answers.put(_outcome(mind, text, schema)), name="reasoning-ask", daemon=True
        )
        worker.start()
        try:
            outcome = answers.get(timeout=timeout)
        except queue.Empty:
            raise GraphError(f"no answer within {timeout:g} s") from None
    if isinstance(outcome, GraphError):
        raise outcome
    return outcome


def _outcome(mind: CompletingMind, text: str, schema: Mapping[str, Any]) -> str | GraphError:
    try:
        return mind.complete(text, schema)
    except Exception as error:  # a mind is someone else's program: whatever it raises is a reason, not our end
        return GraphError(f"the mind failed: {type(error).__name__}: {error}")
