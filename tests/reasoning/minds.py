"""Minds that answer from a list, so that a test says exactly what a mind does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

Answer = str | Exception | Callable[[str], str]


class Scripted:
    """Gives its answers in order and then the last one again; keeps the prompts it was asked with."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.prompts: list[str] = []

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        self.prompts.append(text)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(text) if callable(answer) else answer


def patch(*thoughts: str, below: str = "1") -> str:
    """A patch that hangs one evidence node per thought below a node."""
    nodes = [
        {"tmp_id": f"tmp{at}", "kind": "evidence", "thought": [{"role": "assistant", "content": thought}]}
        for at, thought in enumerate(thoughts)
    ]
    edges = [{"src": below, "dst": f"tmp{at}", "rationale": "support"} for at in range(len(thoughts))]
    return json.dumps({"add_nodes": nodes, "add_edges": edges})


def turns(number: int, words: int = 30) -> list[dict[str, str]]:
    """One episode: an assistant turn and its answer."""
    return [
        {"role": "assistant", "content": f"I look at file {number}. " + "word " * words},
        {"role": "user", "content": f"File {number} says {number * 7}. " + "stuff " * words},
    ]
