"""The mind that is a coding agent: a program that works on a whole task on its own (`agent.program`)."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import MappingProxyType
from typing import IO, Any, Literal

from hivemind import fs
from hivemind.fs.sockets import make_socket_folder, socket_paths, wait_for_input
from hivemind.minds.agents import events, relay
from hivemind.minds.agents.acp import AcpSession
from hivemind.minds.agents.lines import LineSession
from hivemind.minds.agents.permissions import command_of
from hivemind.minds.agents.profile import REFUSALS, AgentProgram, Profile, server_command
from hivemind.minds.agents.session import EXIT_S, ProgramSession
from hivemind.minds.meter import Prices
from hivemind.minds.mind import MindError, MindUnavailable, Thought, ToolSchema, Turn, Usage
from hivemind.reaped_command import ReapedCommand
from hivemind.sandbox import BoxSettings, Hosts, ProgramBox, check_sandbox, loopback_urls

PERMISSION_TOOL = "permission"
_VERSION_S, _LOOK_S = 60, 1.0  # the latter bounds the delay until a line on a program's standard error is reported
_LAST_BYTES, _DETAIL_CHARS = 1 << 14, 500


class LoginNeeded(MindUnavailable):
    """A program's key or login is missing or was refused. A person has to act before it can work."""


class AgentMind:
    """The coding agent that an agent of the hive runs for a whole task."""

    def __init__(self, config: AgentProgram, *, root: Path | None = None, box: BoxSettings | None = None) -> None:
        """Load the program's profile; `root` is the hive's folder. `box` has the settings of the program's box, by default none.
        Raises UserError if the profile, the program or its key is missing, or if `sandbox: bwrap` is set and bubblewrap is
        missing."""
        self._root = None if root is None else root / ".hive"
        self.prices: Prices | None = None
        self.profile = Profile.of(config, root)
        self.box = box or BoxSettings()
        if self.box.sandbox == "bwrap":
            check_sandbox()
        if self.box.is_boxed and config.mode is None:
            config = config.model_copy(update={"mode": self.profile.boxed_mode})
        self.config = config
        self._running_box: ProgramBox | None = None
        self.path = self.profile.find(root)
        self.profile.check_access(config)
        self.profile.own_servers(config)

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
        """Return the program's last text for a prompt; the `schema` is not sent. Raises MindUnavailable as `try_prompt` does."""
        return self.try_prompt(text).text

    def try_prompt(
        self, text: str, timeout_s: float = math.inf, report: Callable[[str], object] = lambda _: None
    ) -> ProgramOutput:
        """Run the program for one prompt, in an empty folder without the hive's tools, for at most `timeout_s` seconds. Call
        `report` with each error that it prints meanwhile.

        Raises MindUnavailable if it fails or exceeds the time limit.
        """
        with TemporaryDirectory(prefix="prompt-", dir=self._root) as folder:
            work = Path(folder, "work")
            work.mkdir()
            return self.answer(text, Path(folder), work, timeout_s=timeout_s, report=report)

    def answer(
        self, text: str, files: Path, folder: Path, session: str | None = None, *, is_read_only: bool = False,
        timeout_s: float = math.inf, report: Callable[[str], object] = lambda _: None,
    ) -> ProgramOutput:  # fmt: skip
        """Return the program's answer to a prompt, without the hive's tools. The program starts in `folder` and has its own files
        in `files`. With a `session`, it continues that session. With `is_read_only`, its box does not let it write in `folder`.
        `report` is called with each error that it prints. Raises MindUnavailable if it fails or exceeds the time limit."""
        answer, last_report = ProgramOutput(), ""
        until = time.monotonic() + (timeout_s := min(timeout_s, self.config.timeout_s))
        relay_config = {"instructions": "", "tools": []}
        with TemporaryFile() as errors:
            with self.start(text, files, folder, relay_config, errors, session, is_read_only=is_read_only) as program:
                while not answer.is_over and (now := time.monotonic()) < until:
                    wait_s = max(0.0, min(until, program.due, now + _LOOK_S) - now)
                    wait_for_input(program.descriptors, wait_s, program.outputs)
                    answer.take_events(program)
                    problem = answer.problem or last_line(errors)
                    if problem != last_report and not answer.is_over:
                        report(last_report := problem)
            problem = answer.problem or last_line(errors) or "; ".join(self.refusals())
        if answer.failure is not None or not answer.is_over:
            raise self.error_of(answer.failure or events.Failure(f"gave no answer in {timeout_s:g} s"), problem)
        answer.announcement = program.announcement
        return answer

    def start(
        self,
        prompt: str,
        files: Path,
        folder: Path,
        relay_config: Mapping[str, Any],
        errors: IO[bytes],
        session: str | None = None,
        folders: Mapping[Path, bool | None] = MappingProxyType({}),
        traceparent: str | None = None,
        *,
        is_read_only: bool = False,
    ) -> ProgramSession:
        """Start the program in `folder`, with its own files in `files`, its error output in `errors`, and a `prompt`. With a
        `session`, it continues that session.

        `relay_config` configures the server of the hive's tools (`relay`). A box shows `folder` and the `folders`, of which those
        with True are writable. `traceparent` names the task's span. Raises MindUnavailable if the program cannot be started.
        """
        if self.profile.permission_kinds:
            schema = {"name": PERMISSION_TOOL, "description": "Not for you.", "inputSchema": {"type": "object"}}
            relay_config = {**relay_config, "tools": [*relay_config["tools"], schema]}
        config_path = files / "attached.json"
        fs.write(config_path, json.dumps(relay_config), durable=False)
        relay_command = [sys.executable, "-I", "-S", relay.__file__, os.fspath(config_path)]
        exit_s = min(EXIT_S, self.config.quiet_s)

        def launch(stdin: IO[bytes]) -> ReapedCommand:
            """Start the command line, in a box if there is one."""
            environment = self.profile.prepare(self.config, relay_command, files, is_boxed=self.box.is_boxed)
            environment |= {} if traceparent is None else {"TRACEPARENT": traceparent}
            command = [self.path, *self.profile.arguments(self.config, relay_command, files, session)]
            with ExitStack() as stack:
                if self.box.is_boxed:
                    relay_folders = {Path(relay_config["socket"]): False} if "socket" in relay_config else {}
                    own_arguments = self.profile.arguments(self.config, relay_command, files, None)  # no session's id
                    box = self._running_box = ProgramBox(
                        command, environment, folder=folder, home=files / "home",
                        folders={**folders, files: False, **relay_folders}, files=[relay.__file__, *own_arguments],
                        commands=map(server_command, self.profile.own_servers(self.config).values()),
                        login=self.profile.login_files(files) if self.config.login else {}, network=self.network,
                        socket=_socket_path(files), is_read_only=is_read_only,
                    )  # fmt: skip
                    stack.callback(box.close)
                    command, environment = box.command, box.environment
                program = ReapedCommand(command, folder=folder, environment=environment, stdin=stdin, stderr=errors)
                program.call_at_end(stack.pop_all().close)
            return program

        try:
            if self.profile.protocol == "acp":
                return AcpSession(
                    launch, self.config, self.profile, folder=folder, relay_command=relay_command, prompt=prompt,
                    session=session, exit_s=exit_s,
                )  # fmt: skip
            with TemporaryFile() as stdin_file:
                stdin_file.write(prompt.encode("utf-8", "replace"))
                stdin_file.seek(0)
                return LineSession(launch(stdin_file), self.profile, exit_s=exit_s)
        except OSError as error:
            raise MindUnavailable(f"{self.path} can't be started ({error.strerror})") from None

    def error_of(self, failure: events.Failure, problem: str = "") -> MindUnavailable:
        """Return the error for a failure and the program's last words about it. A LoginNeeded says what a person has to do."""
        is_login, reason = failure.kind == "login", failure.reason
        reason = reason if is_login else f"{reason}: {problem[:_DETAIL_CHARS]}".rstrip(": ")
        if is_login or any(words in reason.lower() for words in REFUSALS):
            reason = f"has no valid key or login ({reason}): {self.profile.access_hint(self.config)}"
            return LoginNeeded(f"{self.name} {reason}")
        if self.box.is_boxed and failure.reason == "ended with status 127":
            reason += "; a box does not show what a wrapper looks up: name the real program by program: in mind:"
        return MindUnavailable(f"{self.name} {reason}")

    def refusals(self) -> list[str]:
        """Return the hosts that the box of the last run has refused and that were not returned before."""
        return [] if self._running_box is None else self._running_box.refusals()

    @property
    def loopback_in_box(self) -> list[str]:
        """The hosts and ports on loopback that a box lets the program reach: those in URLs in the program's variables and
        arguments."""
        if not self.box.is_boxed or self.box.network == "open":
            return []
        return loopback_urls([*self.config.args, *(os.environ.get(name, "") for name in self.config.env)])

    @property
    def box_summary(self) -> str:
        """A sentence about the program's box."""
        if not self.box.is_boxed:
            reason = "sandbox: none" if self.box.sandbox == "none" else "bubblewrap does not run here"
            return f"none ({reason}): it has all your rights"
        hosts = ", ".join([*self.profile.hosts, *self.box.network, *self.loopback_in_box]) or "no host"
        return f"yes; it reaches {'your network' if self.box.network == 'open' else hosts}"

    @property
    def network(self) -> Literal["open"] | Hosts:
        """The hosts that the program may reach in a box: its provider's, those of the agent's file, and `loopback_in_box`."""
        if self.box.network == "open":
            return "open"
        return Hosts.parse([*self.profile.hosts, *self.box.network, *self.loopback_in_box])


class ProgramOutput:
    """The output of a program for one prompt: its last text, its usage reports, the calls that were refused, what the program
    announced about itself, its last problem, and its failure if it failed."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reports: list[events.UsageReport] = []
        self.refused_calls: list[str] = []
        self.announcement = self.problem = ""
        self.failure: events.Failure | None = None
        self.is_over = False
        self._follows_chunk = False

    @property
    def text(self) -> str:
        """The last text; "" if there is none."""
        return self.texts[-1] if self.texts else ""

    @property
    def usage(self) -> Usage:
        """The usage that was reported: the last total, or the sum of the parts."""
        parts = {report.part: report.usage for report in self.reports}
        return parts.get(None) or sum(parts.values(), Usage())

    def take_events(self, program: ProgramSession) -> None:
        """Read the program's new events. Refuse each permission that it asks for."""
        for event in program.read():
            match event:
                case events.AgentText(is_thought=False):
                    joins = event.is_chunk and self._follows_chunk
                    self.texts[-1:] = [self.texts[-1] + event.text] if joins else [*self.texts[-1:], event.text]
                case events.UsageReport():
                    self.reports.append(event)
                    continue
                case events.PermissionRequest():
                    program.answer(event, is_allowed=False)
                    self.refused_calls.append(command_of(event.call) or event.call.title or event.call.tool)
                case events.Problem():
                    self.problem = event.reason
                case events.TurnEnd():
                    self.is_over = True
                case events.Failure() if not self.is_over:
                    self.failure, self.is_over = event, True
            self._follows_chunk = isinstance(event, events.AgentText) and event.is_chunk


def _socket_path(files: Path) -> str:
    path = socket_paths(os.fspath(files), "network")[0]
    make_socket_folder(os.path.dirname(path), private=os.path.dirname(path) != os.fspath(files))
    return path


def last_line(file: IO[bytes]) -> str:
    """Return the last line of a program's output that has a letter or digit."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
    lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return next((line for line in reversed(lines) if any(map(str.isalnum, line))), "")
