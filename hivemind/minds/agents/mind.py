"""The mind that is a coding agent: a program that thinks and works by itself, run for a task as a whole (`agent.program`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from hivemind import fs
from hivemind.guarded import GuardedCommand
from hivemind.minds.agents import relay
from hivemind.minds.agents.profile import AgentProgram, Profile
from hivemind.minds.meter import Prices
from hivemind.minds.mind import MindError, MindUnavailable, Thought, ToolSchema, Turn

__all__ = ["AgentMind", "last_line"]

_VERSION_S = 60
_LAST_BYTES = 1 << 14


class AgentMind:
    """What is known of the program of an agent. An agent runs it for a task as a whole."""

    def __init__(self, config: AgentProgram, *, root: Path | None = None) -> None:
        """Raises UserError if there is no such profile, or no such program, or no key for it."""
        self.config, self._root = config, None if root is None else root / ".hive"
        self.prices: Prices | None = None
        self.profile = Profile.load(config.agent, root)
        self.path = self.profile.find(root)
        self.profile.check_access(config)

    @property
    def name(self) -> str:
        """As it is named in logs: `codex`, `codex:gpt-5`."""
        return self.config.agent if self.config.model is None else f"{self.config.agent}:{self.config.model}"

    def version(self) -> str:
        """What the program says of its version. Raises MindUnavailable if it cannot be run."""
        try:
            done = subprocess.run(
                [self.path, *self.profile.version], capture_output=True, text=True, timeout=_VERSION_S, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MindUnavailable(f"{self.path} --version: {error}") from None
        return next(iter((done.stdout or done.stderr).strip().splitlines()), "no version")

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:  # noqa: ARG002 - as the protocol says
        raise MindError("a coding agent works on whole tasks: the agent runs it")

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:  # noqa: ARG002 - as the protocol says
        """What the program says last of a prompt, in an empty folder and without the hive's tools. Raises MindUnavailable if it
        ends with an error or not in time."""
        with (
            TemporaryDirectory(prefix="prompt-", dir=self._root) as folder,
            TemporaryFile() as printed,
            TemporaryFile() as errors,
        ):
            work = Path(folder, "work")
            work.mkdir()
            with self.start(text, Path(folder), work, {"instructions": "", "tools": []}, errors, printed) as program:
                status = program.wait(self.config.timeout_s)
            printed.seek(0)
            lines = [one for raw in printed for one in self.profile.read(raw.decode("utf-8", "replace"))]
            last = last_line(errors)
        if status != 0:
            how = f"gave no answer in {self.config.timeout_s:g} s" if status is None else f"ended with status {status}"
            problem = next((one.problem for one in reversed(lines) if one.problem), last)
            raise MindUnavailable(f"{self.name} {how}: {problem[:200]}")
        said = [one.text for one in lines if one.text]
        return said[-1] if said else "".join(one.piece for one in lines if one.piece)

    def start(
        self,
        prompt: str,
        files: Path,
        folder: Path,
        attached: Mapping[str, Any],
        errors: IO[bytes],
        printed: IO[bytes] | None = None,
        session: str | None = None,
    ) -> GuardedCommand:
        """Run the program in `folder` with its own files in `files`; with a `session` that one is gone on with.

        `attached` is what the server of the hive's tools is told (`relay`). What the program prints goes to `printed`, or into a
        pipe. Raises MindUnavailable if it cannot be started.
        """
        told = files / "attached.json"
        fs.write(told, json.dumps(attached), durable=False)
        line = [sys.executable, "-I", "-S", relay.__file__, os.fspath(told)]
        words = self.profile.arguments(self.config, line, files, session)
        environment = self.profile.prepare(self.config, line, files)
        with TemporaryFile() as asked:
            asked.write(prompt.encode("utf-8", "replace"))
            asked.seek(0)
            try:
                return GuardedCommand(
                    [self.path, *words],
                    folder=folder,
                    environment=environment,
                    stdin=asked,
                    stdout=printed,
                    stderr=errors,
                )
            except OSError as error:
                raise MindUnavailable(f"{self.path} can't be started ({error.strerror})") from None


def last_line(file: IO[bytes]) -> str:
    """The last line of what a program has printed."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
    return (file.read().decode("utf-8", "replace").strip().splitlines() or [""])[-1]
