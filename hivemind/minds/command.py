"""Use any program as a mind: a JSON request on its standard input, a JSON answer on its standard output."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from hivemind.boundary import Unreadable, boundary
from hivemind.minds.mind import MindError, MindUnavailable, Thought, ToolSchema, Turn
from hivemind.minds.scripted import parse_thought
from hivemind.reaped_command import ReapedCommand

_POLL_S = 0.1
_VERSION = 2  # of the request
_NOT_STARTED = (126, 127)  # a shell's exit statuses for a program that is not executable or does not exist
_TAIL_BYTES, _TAIL_LINES = 4000, 12
_MAX_ANSWER_BYTES = 8 << 20
_log = logging.getLogger(__name__)


class CommandMind:
    """A mind that runs `program` once for each thought, in `folder` (None: the current folder). The program and its children end
    with the calling process.

    For a thought, the program's input is `{"version": 2, "turn": {…}, "messages": […], "tools": […]}` with the messages as in
    messages.jsonl, and its output `{"text": …, "calls": [{"tool": …, "arguments": {…}}], "usage": {…}}`. For a completion, its
    input is `{"version": 2, "prompt": …, "schema": …}`, and its output the completion itself.

    A program that fails, takes longer than `timeout_s` seconds or prints more than 8 MiB raises MindError with the end of its
    standard error. With status 75 (EX_TEMPFAIL) it asks to be tried again later: MindUnavailable.
    """

    def __init__(
        self,
        program: Sequence[str],
        *,
        folder: Path | None = None,
        timeout_s: float = 600,
        on_wait: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare the mind. It calls `on_wait` ten times a second while the program runs; an exception in `on_wait` ends the
        program."""
        self.program = list(program)
        self._on_wait = on_wait
        self._folder = folder
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """Return `command:PROGRAM`, as recorded in conversations."""
        return f"command:{self.program[0]}"

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:
        messages = [message.as_record() for message in turn.messages]
        output = self._run({"version": _VERSION, "turn": turn.as_record(), "messages": messages, "tools": list(tools)})
        try:
            with boundary("JSON answer"):
                answer, problem = json.loads(output), ""
        except Unreadable as error:
            answer, problem = None, f" ({error.__cause__})"
        if not isinstance(answer, Mapping):
            raise MindError(
                f"{self.program[0]} did not print JSON but {output[:40]!r}{problem}: standard output is for one "
                "object, standard error for all else"
            )
        return parse_thought(answer)

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        return self._run({"version": _VERSION, "prompt": text, "schema": schema})

    def _run(self, question: Mapping[str, Any]) -> str:
        with TemporaryFile() as request_file, TemporaryFile() as output_file, TemporaryFile() as error_file:
            request_file.write(json.dumps(question).encode())
            request_file.seek(0)
            try:
                command = ReapedCommand(
                    self.program, folder=self._folder, stdin=request_file, stdout=output_file, stderr=error_file
                )
            except OSError as error:
                raise MindUnavailable(f"{self.program[0]} cannot be started ({error.strerror})") from None
            with command as process:
                exit_status = self._wait_for_exit(process, output_file)
            output_file.seek(0)
            output = output_file.read(_MAX_ANSWER_BYTES + 1)
            if len(output) > _MAX_ANSWER_BYTES:
                raise MindError(f"{self.program[0]} printed more than {_MAX_ANSWER_BYTES >> 20} MiB")
            if error_lines := _last_lines(error_file):
                _log.info("%s: standard error:\n%s", self.program[0], "\n".join(error_lines))
            if exit_status == 0:
                return output.decode("utf-8", "replace")
        last_line = f": {error_lines[-1][:200]}" if error_lines else ""
        if exit_status in _NOT_STARTED:
            raise MindUnavailable(f"{self.program[0]} cannot be started{last_line}")
        slow, ended = f"did not answer within {self._timeout_s:g} s", f"ended with status {exit_status}"
        problem = f"{self.program[0]} {slow if exit_status is None else ended}{last_line}"
        if exit_status == os.EX_TEMPFAIL:
            raise MindUnavailable(problem, lost=True)
        raise MindError("\n    ".join([f"{problem}\n", *error_lines] if len(error_lines) > 1 else [problem]))

    def _wait_for_exit(self, process: ReapedCommand, output: IO[bytes]) -> int | None:
        """Wait for the program. Return its exit status, or None after the time limit or for too much output. Raises the
        exceptions of `on_wait`."""
        deadline = time.monotonic() + self._timeout_s
        while (remaining_s := deadline - time.monotonic()) > 0:
            exit_status = process.wait(min(remaining_s, _POLL_S))
            if exit_status is not None or os.fstat(output.fileno()).st_size > _MAX_ANSWER_BYTES:
                return exit_status
            self._on_wait()
        return None


def _last_lines(file: IO[bytes]) -> list[str]:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
    return file.read().decode("utf-8", "replace").strip().splitlines()[-_TAIL_LINES:]
