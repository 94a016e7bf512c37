"""Any program as a mind: a JSON request on its standard input, a JSON answer on its standard output (spec 8)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.guarded import Guarded
from hivemind.minds.mind import MindError, MindUnavailable, Thought, ToolSchema, Turn
from hivemind.minds.scripted import thought_from

_LOOK_S = 0.1
_VERSION = 2  # of the request
_NOT_STARTED = (126, 127)  # as a shell says that there is no such program, or that it is none


class CommandMind:
    """Runs `program` once per thought, in `folder`; it ends, with all that it started, when the asking process does.

    Its input is `{"version": 2, "turn": {…}, "messages": […], "tools": […]}`, the messages as they stand in messages.jsonl, or
    `{"version": 2, "prompt": …, "schema": …}`; its answer `{"text": …, "calls": [{"tool": …, "arguments": {…}}], "usage": {…}}`,
    or the completion as it stands.
    """

    def __init__(
        self,
        program: Sequence[str],
        *,
        folder: Path | None = None,
        timeout_s: float = 600,
        waiting: Callable[[], object] = lambda: None,
    ) -> None:
        """`waiting` is called ten times a second while the program thinks; what it raises ends the program."""
        self.program = list(program)
        self._waiting = waiting
        self._folder = folder
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """`command:PROGRAM`, as conversations have it."""
        return f"command:{self.program[0]}"

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:
        messages = [message.as_record() for message in turn.messages]
        printed = self._ask({"version": _VERSION, "turn": turn.as_record(), "messages": messages, "tools": list(tools)})
        try:
            with boundary("JSON answer"):
                answer = json.loads(printed)
        except Unreadable as error:
            raise MindError(f"{self.program[0]} printed no JSON ({error.__cause__}): {printed[:200]!r}") from None
        if not isinstance(answer, Mapping):
            raise MindError(f"{self.program[0]} printed no JSON object: {printed[:200]!r}")
        return thought_from(answer)

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        return self._ask({"version": _VERSION, "prompt": text, "schema": schema})

    def _ask(self, question: Mapping[str, Any]) -> str:
        with TemporaryFile() as asked, TemporaryFile() as printed, TemporaryFile() as said:
            asked.write(json.dumps(question).encode())
            asked.seek(0)
            try:
                guarded = Guarded(self.program, folder=self._folder, stdin=asked, stdout=printed, stderr=said)
            except OSError as error:
                raise MindUnavailable(f"{self.program[0]} can't be started ({error.strerror})") from None
            with guarded as process:
                status = self._status_of(process)
            printed.seek(0)
            said.seek(0)
            if status != 0:
                last = said.read().decode("utf-8", "replace").strip().splitlines()[-1:] or [""]
                lost = status not in _NOT_STARTED
                what = f"ended with status {status}" if lost else "can't be started"
                raise MindUnavailable(f"{self.program[0]} {what}: {last[0][:200]}", lost=lost)
            return printed.read().decode("utf-8", "replace")

    def _status_of(self, process: Guarded) -> int:
        """How the program ends. Raises MindUnavailable, and what `waiting` raises."""
        deadline = time.monotonic() + self._timeout_s
        while (left := deadline - time.monotonic()) > 0:
            status = process.wait(min(left, _LOOK_S))
            if status is not None:
                return status
            self._waiting()
        raise MindUnavailable(f"{self.program[0]} gave no answer in {self._timeout_s:g} s", lost=True)
