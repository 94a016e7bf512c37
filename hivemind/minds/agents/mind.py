"""The mind that is a coding agent: a program that works on a whole task on its own (`agent.program`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from hivemind import fs
from hivemind.fs.sockets import wait_for_input
from hivemind.guarded import GuardedCommand
from hivemind.minds.agents import relay
from hivemind.minds.agents.acp import start_acp
from hivemind.minds.agents.events import (
    AgentText,
    Failure,
    PermissionRequest,
    Problem,
    ProgramExit,
    TooMuchOutput,
    TurnEnd,
)
from hivemind.minds.agents.lines import LineSession
from hivemind.minds.agents.profile import AgentProgram, Profile
from hivemind.minds.agents.session import EXIT_S, ProgramSession
from hivemind.minds.meter import Prices
from hivemind.minds.mind import MindError, MindUnavailable, Thought, ToolSchema, Turn

_VERSION_S = 60
_LAST_BYTES = 1 << 14


class AgentMind:
    """The coding agent that an agent of the hive runs for a whole task."""

    def __init__(self, config: AgentProgram, *, root: Path | None = None) -> None:
        """Load the profile. Raises UserError if the profile, the program or its key is missing."""
        self.config, self._root = config, None if root is None else root / ".hive"
        self.prices: Prices | None = None
        self.profile = Profile.of(config, root)
        self.path = self.profile.find(root)
        self.profile.check_access(config)

    @property
    def name(self) -> str:
        """The name in logs: `codex`, `codex:gpt-5`."""
        return self.config.name if self.config.model is None else f"{self.config.name}:{self.config.model}"

    @property
    def session_kind(self) -> str:
        """The program and protocol to which a session's id belongs."""
        return f"{self.config.name} by ACP" if self.profile.protocol == "acp" else self.config.name

    @property
    def counts_session(self) -> bool:
        """True if the program reports the tokens of a whole session, also of runs that were killed."""
        return self.profile.protocol == "lines" and self.profile.usage_of == "session"

    def version(self) -> str:
        """Return the program's version line. Raises MindUnavailable if it cannot be run."""
        try:
            process = subprocess.run(
                [self.path, *self.profile.version], capture_output=True, text=True, timeout=_VERSION_S, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MindUnavailable(f"{self.path} --version: {error}") from None
        return next(iter((process.stdout or process.stderr).strip().splitlines()), "no version")

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:  # noqa: ARG002 - as the protocol says
        raise MindError("a coding agent works on whole tasks, not on single turns")

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:  # noqa: ARG002 - as the protocol says
        """Return the program's last text for a prompt, run in an empty folder without the hive's tools.

        Raises MindUnavailable if it fails or exceeds the time limit.
        """
        answer = _Completion()
        until = time.monotonic() + self.config.timeout_s
        with TemporaryDirectory(prefix="prompt-", dir=self._root) as folder, TemporaryFile() as errors:
            work = Path(folder, "work")
            work.mkdir()
            with self.start(text, Path(folder), work, {"instructions": "", "tools": []}, errors) as program:
                while not answer.is_over and (now := time.monotonic()) < until:
                    wait_for_input(program.descriptors, min(until, program.due) - now, program.outputs)
                    answer.take_events(program)
            last = last_line(errors)
        if answer.failure is not None or not answer.is_over:
            failure = answer.failure or f"gave no answer in {self.config.timeout_s:g} s"
            raise MindUnavailable(f"{self.name} {failure}: {(answer.problem or last)[:200]}")
        return answer.texts[-1] if answer.texts else ""

    def start(
        self,
        prompt: str,
        files: Path,
        folder: Path,
        relay_config: Mapping[str, Any],
        errors: IO[bytes],
        session: str | None = None,
    ) -> ProgramSession:
        """Start the program in `folder` with its own files in `files`, and with a `prompt`. A `session` is continued.

        `relay_config` configures the server of the hive's tools (`relay`). Raises MindUnavailable if it cannot be started.
        """
        config_path = files / "attached.json"
        fs.write(config_path, json.dumps(relay_config), durable=False)
        relay_command = [sys.executable, "-I", "-S", relay.__file__, os.fspath(config_path)]
        program_arguments = self.profile.arguments(self.config, relay_command, files, session)
        environment = self.profile.prepare(self.config, relay_command, files)
        exit_s = min(EXIT_S, self.config.quiet_s)

        def launch(stdin: IO[bytes]) -> GuardedCommand:
            """Start the command line: the one place where it is put into a sandbox."""
            command = [self.path, *program_arguments]
            return GuardedCommand(command, folder=folder, environment=environment, stdin=stdin, stderr=errors)

        try:
            if self.profile.protocol == "acp":
                return start_acp(
                    launch, self.config, self.profile, folder=folder, relay_command=relay_command, prompt=prompt,
                    session=session, exit_s=exit_s,
                )  # fmt: skip
            with TemporaryFile() as stdin_file:
                stdin_file.write(prompt.encode("utf-8", "replace"))
                stdin_file.seek(0)
                return LineSession(launch(stdin_file), self.profile, exit_s=exit_s)
        except OSError as error:
            raise MindUnavailable(f"{self.path} can't be started ({error.strerror})") from None


class _Completion:
    """The answer to one prompt: its texts, and the reason why it failed."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.failure: str | None = None
        self.problem = ""
        self.is_over = False
        self._follows_chunk = False

    def take_events(self, program: ProgramSession) -> None:
        """Read the events that have come. Permissions are refused."""
        for event in program.read():
            match event:
                case AgentText(is_thought=False):
                    joins = event.is_chunk and self._follows_chunk
                    self.texts[-1:] = [self.texts[-1] + event.text] if joins else [*self.texts[-1:], event.text]
                case PermissionRequest():
                    program.answer(event, is_allowed=False)
                case Problem():
                    self.problem = event.reason
                case Failure():
                    self.failure, self.is_over = event.reason, True
                case TurnEnd():
                    self.is_over = True
                case TooMuchOutput():
                    self.failure, self.is_over = f"printed more than {event.limit:,} bytes", True
                case ProgramExit() if not self.is_over:
                    self.failure, self.is_over = f"ended with status {event.status}", True
            self._follows_chunk = isinstance(event, AgentText) and event.is_chunk


def last_line(file: IO[bytes]) -> str:
    """Return the last line of a program's output."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
    return (file.read().decode("utf-8", "replace").strip().splitlines() or [""])[-1]
