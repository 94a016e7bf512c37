"""Minds that answer from a list, for tests that set each answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

Answer = str | Exception | Callable[[str], str]


class Scripted:
    """Returns its answers in order, then repeats the last one; records the prompts."""

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
    """Return a patch that adds one evidence node per thought below a node."""
    nodes = [
        {"tmp_id": f"tmp{index}", "kind": "evidence", "thought": [{"role": "assistant", "content": thought}]}
        for index, thought in enumerate(thoughts)
    ]
    edges = [{"src": below, "dst": f"tmp{index}", "rationale": "support"} for index in range(len(thoughts))]
    return json.dumps({"add_nodes": nodes, "add_edges": edges})


def turns(number: int, words: int = 30) -> list[dict[str, str]]:
    """Return one episode: an assistant turn and its answer."""
    return [
        {"role": "assistant", "content": f"I look at file {number}. " + "word " * words},
        {"role": "user", "content": f"File {number} says {number * 7}. " + "stuff " * words},
    ]
