"""The mind that is a coding agent: a program that works on a whole task on its own (`agent.program`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import MappingProxyType
from typing import IO, Any, Literal

from hivemind import fs
from hivemind.fs.sockets import make_socket_folder, socket_paths
from hivemind.guarded import GuardedCommand
from hivemind.minds.agents import relay
from hivemind.minds.agents.profile import AgentProgram, Profile
from hivemind.minds.meter import Prices
from hivemind.minds.mind import MindError, MindUnavailable, Thought, ToolSchema, Turn
from hivemind.sandbox import BoxSettings, Hosts, ProgramBox, loopback_urls

_VERSION_S = 60
_LAST_BYTES = 1 << 14


class AgentMind:
    """The coding agent that an agent of the hive runs for a whole task."""

    def __init__(self, config: AgentProgram, *, root: Path | None = None, box: BoxSettings | None = None) -> None:
        """Load the profile. Raises UserError if the profile, the program or its key is missing."""
        self._root = None if root is None else root / ".hive"
        self.prices: Prices | None = None
        self.profile = Profile.load(config.agent, root)
        self.box = box or BoxSettings()
        if self.box.is_boxed and config.mode is None:
            config = config.model_copy(update={"mode": self.profile.boxed_mode})
        self.config = config
        self._running_box: ProgramBox | None = None
        self.path = self.profile.find(root)
        self.profile.check_access(config)

    @property
    def name(self) -> str:
        """The name in logs: `codex`, `codex:gpt-5`."""
        return self.config.agent if self.config.model is None else f"{self.config.agent}:{self.config.model}"

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
        with (
            TemporaryDirectory(prefix="prompt-", dir=self._root) as folder,
            TemporaryFile() as output,
            TemporaryFile() as errors,
        ):
            work = Path(folder, "work")
            work.mkdir()
            with self.start(text, Path(folder), work, {"instructions": "", "tools": []}, errors, output) as program:
                status = program.wait(self.config.timeout_s)
            output.seek(0)
            lines = [output_line for raw in output for output_line in self.profile.read(raw.decode("utf-8", "replace"))]
            last = last_line(errors)
        if status != 0:
            failure = (
                f"gave no answer in {self.config.timeout_s:g} s" if status is None else f"ended with status {status}"
            )
            problem = next((output_line.problem for output_line in reversed(lines) if output_line.problem), last)
            raise MindUnavailable(f"{self.name} {failure}: {problem[:200]}")
        answers = [output_line.text for output_line in lines if output_line.text]
        return answers[-1] if answers else "".join(output_line.piece for output_line in lines if output_line.piece)

    def start(
        self,
        prompt: str,
        files: Path,
        folder: Path,
        relay_config: Mapping[str, Any],
        errors: IO[bytes],
        stdout: IO[bytes] | None = None,
        session: str | None = None,
        folders: Mapping[Path, bool | None] = MappingProxyType({}),
    ) -> GuardedCommand:
        """Start the program in `folder` with its own files in `files`. With a `session`, that session is resumed.

        `relay_config` configures the server of the hive's tools (`relay`). The program's output goes to `stdout`, by default a
        pipe. A box shows `folder`, and of the `folders` those with True writable. Raises MindUnavailable if it cannot be
        started.
        """
        config_path = files / "attached.json"
        fs.write(config_path, json.dumps(relay_config), durable=False)
        relay_command = [sys.executable, "-I", "-S", relay.__file__, os.fspath(config_path)]
        program_arguments = self.profile.arguments(self.config, relay_command, files, session)
        environment = self.profile.prepare(self.config, relay_command, files, is_boxed=self.box.is_boxed)
        command = [self.path, *program_arguments]
        with TemporaryFile() as stdin_file, ExitStack() as stack:
            stdin_file.write(prompt.encode("utf-8", "replace"))
            stdin_file.seek(0)
            try:
                if self.box.is_boxed:
                    own_arguments = self.profile.arguments(self.config, relay_command, files, None)
                    self._running_box = ProgramBox(
                        command, environment, folder=folder, home=files / "home",
                        folders={**folders, files: False, **_sockets(relay_config)},
                        files=[relay.__file__, *own_arguments],
                        login=self.profile.login_files(files) if self.config.login else {},
                        network=self.network, socket=_socket_path(files),
                    )  # fmt: skip
                    stack.callback(self._running_box.close)
                    command, environment = self._running_box.command, self._running_box.environment
                program = GuardedCommand(
                    command, folder=folder, environment=environment, stdin=stdin_file, stdout=stdout, stderr=errors
                )
            except OSError as error:
                raise MindUnavailable(f"{self.path} can't be started ({error.strerror})") from None
            program.call_at_end(stack.pop_all().close)
            return program

    def refusals(self) -> list[str]:
        """Return what the box of the last run has refused since the last call."""
        return [] if self._running_box is None else self._running_box.refusals()

    @property
    def loopback(self) -> list[str]:
        """The hosts and ports on loopback that URLs in the program's variables and arguments name."""
        return loopback_urls([*self.config.args, *(os.environ.get(name, "") for name in self.config.env)])

    @property
    def network(self) -> Literal["open"] | Hosts:
        """The hosts that the program may reach in a box: its provider's, those of the agent's file, and `loopback`."""
        if self.box.network == "open":
            return "open"
        return Hosts.parse([*self.profile.hosts, *self.box.network, *self.loopback])


def _socket_path(files: Path) -> str:
    path = socket_paths(os.fspath(files), "network")[0]
    make_socket_folder(os.path.dirname(path), private=os.path.dirname(path) != os.fspath(files))
    return path


def _sockets(relay_config: Mapping[str, Any]) -> dict[Path, bool | None]:
    return {Path(relay_config["socket"]): False} if "socket" in relay_config else {}


def last_line(file: IO[bytes]) -> str:
    """Return the last line of a program's output."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
    return (file.read().decode("utf-8", "replace").strip().splitlines() or [""])[-1]
