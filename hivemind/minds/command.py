"""Any program as a mind: JSON context on its standard input, JSON actions on its standard output (spec 7)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hivemind.minds.mind import Context, MindError, MindUnavailable, Thought, ToolSchema
from hivemind.minds.scripted import thought_from

__all__ = ["CommandMind"]


class CommandMind:
    """Runs `program` once per thought, in `folder`.

    Its input is `{"context": […], "tools": […]}` or `{"prompt": …, "schema": …}`; its answer
    `{"text": …, "actions": [{"tool": …, "arguments": {…}}]}`, or the completion as it stands.
    """

    def __init__(self, program: Sequence[str], *, folder: Path | None = None, timeout_s: float = 600) -> None:
        self.program = list(program)
        self._folder = folder
        self._timeout_s = timeout_s

    def think(self, context: Context, tools: Sequence[ToolSchema]) -> Thought:
        printed = self._ask({"context": list(context), "tools": list(tools)})
        try:
            answer = json.loads(printed)
        except (ValueError, RecursionError) as error:
            raise MindError(f"{self.program[0]} printed no JSON ({error}): {printed[:200]!r}") from None
        if not isinstance(answer, Mapping):
            raise MindError(f"{self.program[0]} printed no JSON object: {printed[:200]!r}")
        return thought_from(answer)

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        return self._ask({"prompt": text, "schema": schema})

    def _ask(self, question: Mapping[str, Any]) -> str:
        try:
            done = subprocess.run(
                self.program,
                input=json.dumps(question),
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                cwd=self._folder,
                timeout=self._timeout_s,
                check=False,
            )
        except OSError as error:
            raise MindUnavailable(f"{self.program[0]} can't be started ({error.strerror})") from None
        except subprocess.TimeoutExpired:
            raise MindUnavailable(f"{self.program[0]} gave no answer in {self._timeout_s:g} s") from None
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:] or [""]
            raise MindUnavailable(f"{self.program[0]} ended with status {done.returncode}: {last[0][:200]}")
        return done.stdout
