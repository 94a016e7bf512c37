"""A coding agent at work: its program runs for a task, and its calls of the hive's tools are made here.

The run takes the place of `think` and `act`: the program works in the task's worktree until it ends its turn. Its
output is recorded in the task's conversation. News are added to the results of its calls, or begin its next run.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from hivemind.agent.act import ask_operator, make_calls
from hivemind.agent.lease import FocusLease
from hivemind.agent.metering import MeteredMind, RunAccount
from hivemind.agent.news import News
from hivemind.agent.reporter import StatusReporter
from hivemind.agent.stop_signal import StopSignal
from hivemind.agent.window import ContextWindow
from hivemind.boundary import Unreadable, boundary
from hivemind.errors import HivemindError
from hivemind.fs import make_folder
from hivemind.fs.sockets import make_socket_folder, socket_paths, wait_for_input
from hivemind.guarded import GuardedCommand
from hivemind.landing.early_warning import note_branches
from hivemind.minds import ChatMessage, MindError, MindUnavailable, Thought, ToolCall, ToolResult, Turn, Usage
from hivemind.minds.agents import AgentMind, OutputLine, last_line
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.focus import focus_on
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import Parking, ProgramAtWork
from hivemind.tasks import TaskMoved
from hivemind.tools import Session
from hivemind.tools.excerpt import MAX_RESULT_CHARS, shortened
from hivemind.tools.tool import for_mind

_GRACE_S = 30.0  # for a program to exit after its turn
_LOOK_S = 1.0  # bounds the delay until a cancelled task is noticed
_CALL_S = 10.0  # for the rest of a call to arrive
_MAX_FAILED_STARTS = 3  # in a row
_CHUNK = 1 << 16
_MAX_LINE_BYTES, _MAX_OUTPUT_BYTES = 8 << 20, 256 << 20
_UNFINISHED = """You have ended your turn, and the task is not over. Call finish_task with the answer, or fail_task with the \
reason; if something is missing, say what, with ask_human."""
_GO_ON = "You were interrupted. Go on."
_OVER = "The task is over; result.md (or error.md) is written when you have ended your turn. End it now."
_RESTS = "The task rests: {reason}. End your turn now; you will be called again when there is news."


class SessionLost(MindUnavailable):
    """The program does not know its session. The conversation has to begin again."""


@dataclass(slots=True)
class ProgramRunner:
    """Runs the coding agent that is an agent's mind. `hear` takes in the news of a task.

    `failed_starts` counts the runs in a row that ended with an error before the program did anything.
    """

    mind: MeteredMind
    lease: FocusLease
    stop_signal: StopSignal
    reporter: StatusReporter
    news: News
    hear: Callable[[TaskRun], object]
    failed_starts: int = 0

    def run(self, turn: Turn, session: Session, window: ContextWindow) -> Thought | None:
        """Run the program until it ends its turn. Fill in the turn's results and its parking.

        Return the call that ends the task, if the program made it. Raises Parking, SessionLost, MindUnavailable if the
        program ends with an error, MindError if it had to be ended.
        """
        turn.results = []
        self.lease.take(session.focus)
        run = _ProgramRun(self, turn, session, window)
        try:
            run.run()
        except MindUnavailable as error:
            if run.heard or run.session is None or self.stop_signal.is_set():
                raise
            raise SessionLost(f"the session {run.session} is not known: {error}") from error
        return turn.thought


class _ProgramRun:
    """One run of the program, which continues `session`. `heard` is True after its first output or call."""

    def __init__(self, runner: ProgramRunner, turn: Turn, session: Session, window: ContextWindow) -> None:
        assert runner.mind.program is not None
        self._runner, self._mind = runner, runner.mind.program
        self._turn, self._tool_session, self._window, self._talk = turn, session, window, window.talk
        self._work, self._step = session.focus.work, session.focus.step
        self._results: list[ToolResult] = turn.results  # type: ignore[assignment]
        self._folder = session.hive.layout.agent_state(session.agent) / "program"
        self._token = secrets.token_hex(16)
        self.session = _session_of(self._talk, self._mind)
        self.heard = False
        self._open_calls: dict[str, OutputLine] = {}
        self._pieces: list[str] = []
        self._problem = ""
        self._parking: Parking | None = None
        self._ends_at: float | None = None
        self._active_at = turn.began_at  # the end of the work that is recorded so far
        self._end_reason: str | None = None

    def run(self) -> None:
        """See `ProgramRunner.run`."""
        config = self._mind.config
        unheard_messages = _unheard_messages(self._talk)
        prompt = "\n\n".join(map(self._text_of, unheard_messages)) or _GO_ON
        was_reminded = any((message.news or {}).get("cause") == "unfinished" for message in unheard_messages)
        make_folder(self._folder, durable=False)
        self._account = RunAccount(self._runner.mind, self._mind, self._work, self._talk, prompt, self.session)
        with ExitStack() as stack:
            stack.callback(lambda: self._account.close(was_heard=self.heard))
            self._account.begin()
            stack.enter_context(self._tool_session.pulse.busy(config.timeout_s + 2 * _GRACE_S))
            if self._work is not None:
                self._work.program_at_work = True
                stack.callback(setattr, self._work, "program_at_work", False)
            listener, server_config = self._listen(stack)
            errors = stack.enter_context(TemporaryFile())
            program = self._mind.start(
                prompt, self._folder, self._place(), server_config, errors, session=self.session,
                folders=self._visible_folders(),
            )  # fmt: skip
            status = self._watch(stack.enter_context(program), listener)
            error = last_line(errors)
        self._say_pieces()
        if self._work is not None and not self._work.is_ended:
            self._work.commit()
            note_branches(self._tool_session.hive, self._work)
        self._conclude(status, error[:200], was_reminded=was_reminded)

    # the program

    def _place(self) -> Path:
        """Create the folder to work in: the task's worktree or its folder, or one for letters."""
        if self._work is None:
            place = self._folder / "mail"
        else:
            trees = self._work.worktrees.catch_up()
            place = trees[0].path if trees else self._work.task.files
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _visible_folders(self) -> dict[Path, bool | None]:
        """Return the folders that a box shows: roots that are no repositories, the task's folder and its worktrees."""
        hive, work = self._tool_session.hive, self._work
        repositories = hive.config.worktree_roots(hive.layout)
        roots = hive.config.sandbox_folders(hive.layout)
        folders = {path: is_writable for path, is_writable in roots.items() if path not in repositories}
        return folders if work is None else {**folders, work.task.files: True, **work.worktrees.sandbox_folders()}

    def _watch(self, program: GuardedCommand, listener: socket.socket) -> int:
        """Read the output and make the calls until the program has ended. Return its exit status."""
        stop_signal, config = self._runner.stop_signal, self._mind.config
        output, partial_line, size = program.output.fileno(), b"", 0
        until, quiet = time.monotonic() + config.timeout_s, time.monotonic() + config.quiet_s
        descriptors = [output, listener, *stop_signal.descriptors]
        while True:
            now = time.monotonic()
            wait_s = min(until, quiet, now + _LOOK_S, self._ends_at or until) - now
            ready = wait_for_input(descriptors, max(0.0, wait_s))
            if stop_signal.is_set():
                raise MindUnavailable("the agent was stopped")
            if self._work is not None and self._work.was_moved:
                raise TaskMoved("its task was taken away", location=self._work.task.id)
            if ready:
                quiet = time.monotonic() + config.quiet_s
            while output in ready:
                chunk = os.read(output, _CHUNK)
                if not chunk:
                    if (status := program.wait(min(_GRACE_S, config.quiet_s))) is None:
                        self._end("it closed its output and did not end", 0.0)
                    return 0 if status is None or self._ends_at is not None else status
                size += len(chunk)
                *lines, partial_line = (partial_line + chunk).split(b"\n")
                for line in lines:
                    self._hear(line)
                if len(partial_line) > _MAX_LINE_BYTES or size > _MAX_OUTPUT_BYTES:
                    self._end(f"it printed more than {min(size, _MAX_OUTPUT_BYTES):,} bytes", 0.0)
                    break
                if listener not in ready:
                    break
                ready = [*wait_for_input([output], 0), listener]  # output before the call is recorded before it
            if listener in ready:
                self._serve(listener)
            self._record_refusals()
            now = time.monotonic()
            if now >= until:
                self._end(f"it worked for more than {config.timeout_s:g} s", 0.0)
            elif now >= quiet:
                self._end(f"it printed nothing for {config.quiet_s:g} s", 0.0)
            if self._ends_at is not None and time.monotonic() >= self._ends_at:
                return 0  # leaving the block ends it, with all that it started

    def _end(self, reason: str | None, grace_s: float = _GRACE_S) -> None:
        """Give the program `grace_s` seconds to exit. After that it is ended."""
        ends_at = time.monotonic() + grace_s
        if self._ends_at is None or ends_at < self._ends_at:
            self._ends_at, self._end_reason = ends_at, reason

    def _conclude(self, status: int, error: str, *, was_reminded: bool) -> None:
        """Set the outcome of the turn."""
        runner, name, work = self._runner, self._mind.name, self._work
        if isinstance(self._parking, ProgramAtWork):  # after its usage is counted
            self._turn.thought, self._turn.taken_up = Thought(actions=tuple(self._talk.pending_calls)), True
        elif self._parking is not None:
            self._turn.parking = self._parking
        elif self._end_reason is not None:
            raise MindError(f"{name} was ended: {self._end_reason}")
        elif self._is_over:
            return
        elif status != 0:
            reason = f"{name} ended with status {status}: {self._problem or error}"
            runner.failed_starts = 0 if self.heard else runner.failed_starts + 1
            if runner.failed_starts < _MAX_FAILED_STARTS or work is None:
                raise MindUnavailable(reason)
            self._ask_operator(f"{reason}. It has ended {runner.failed_starts} times before it did anything.")
        elif work is not None and not was_reminded:
            self._talk.add_news(_UNFINISHED, cause="unfinished")
        elif work is not None:
            answers = [message.text for message in self._talk.messages if message.role == "assistant" and message.text]
            last_answer = answers[-1] if answers else "nothing"
            if work.task.finish == "implicit":
                self._make(ToolCall("finish_task", {"result": last_answer}))
                self._turn.parking = self._parking
            else:
                self._ask_operator(
                    f"unfinished: look at it. {name} ended without finish_task, and wrote: {last_answer}"
                )

    def _ask_operator(self, reason: str) -> None:
        ask_operator(self._turn, self._tool_session, self._talk, reason)

    def _text_of(self, message: ChatMessage) -> str:
        """Return a message as the program reads it. A result names its tool: the session may have ended before it."""
        if message.role != "tool":
            return message.text
        calls = (call for answer in self._talk.messages for call in answer.calls)
        tool = next((call.tool for call in calls if call.id == message.call_id), "a call")
        return f"Result of {tool}:\n\n{message.text}"

    # output

    def _hear(self, raw: bytes) -> None:
        for line in self._mind.profile.read(raw.decode("utf-8", "replace")):
            self._take(line)

    def _take(self, line: OutputLine) -> None:
        if line.session is not None:
            self.session, self._runner.failed_starts = line.session, 0
        if line.piece is not None:
            self.heard = True
            self._pieces.append(line.piece)
            return
        if line.text is not None or line.tool is not None or line.usage is not None:
            self._say_pieces()
        if line.text:
            self._say(line.text)
        if line.tool is not None:
            self._open_calls[line.id or ""] = line
        if line.result is not None and (call_line := self._open_calls.pop(line.id or "", None)) is not None:
            self._record_call(call_line, line)
        if line.usage is not None:
            self._report(line.usage, line.part)
        if line.approval is not None:
            reason = (
                f"it waits for an approval ({line.approval[:200]}), but no person can give it: see sandbox in its file"
            )
            self._end(reason, 0.0)
        if line.problem is not None:
            self._problem = line.problem[:500]

    def _say_pieces(self) -> None:
        pieces, self._pieces = "".join(self._pieces), []
        if pieces.strip():
            self._say(pieces)

    def _say(self, text: str) -> None:
        self.heard = True
        if self._is_over:
            return
        self._talk.answer(self._thought(shortened(text, 10 * MAX_RESULT_CHARS)), step=self._step_id, durable=False)
        self._count_turn()

    def _record_call(self, call_line: OutputLine, result_line: OutputLine) -> None:
        """Record a call of one of the program's own tools."""
        self.heard = True
        if self._is_over:
            return
        call = ToolCall(str(call_line.tool), call_line.arguments or {}, call_line.id or "")
        answer = self._talk.answer(self._thought("", call), step=self._step_id, durable=False)
        text = shortened(result_line.result or "", MAX_RESULT_CHARS)
        result = ToolResult(answer.calls[0], text, problem=text[:200] or "it failed" if result_line.failed else None)
        self._talk.result(result, durable=False)
        self._results.append(result)
        self._runner.reporter.called(call.tool)
        self._count_turn()

    def _record_refusals(self) -> None:
        """Record what the proxy of the program's box has refused, as failed calls of `network`."""
        for number, reason in enumerate(self._mind.refusals()):
            host = reason.split(" ", 1)[0]
            call = OutputLine(tool="network", id=f"network-{number}", arguments={"host": host})
            self._record_call(call, OutputLine(result=f"refused: {reason}", failed=True))

    def _thought(self, text: str, *calls: ToolCall) -> Thought:
        """Return a thought that names the session, for the next run to continue it."""
        previous_active_at, self._active_at = self._active_at, time.monotonic()
        provider_fields = {"agent": self._mind.config.agent, "session": self.session}
        return Thought(text, calls, provider=provider_fields, seconds=self._active_at - previous_active_at)

    @property
    def _is_over(self) -> bool:
        """True if the task has ended, is about to, or was handed over. Later output is not recorded."""
        work = self._work
        return work is not None and (
            work.is_ended or work.handed_to is not None or isinstance(self._parking, ProgramAtWork)
        )

    @property
    def _step_id(self) -> str | None:
        return None if self._step is None else self._step.id

    def _count_turn(self) -> None:
        if self._talk.turns >= self._runner.mind.max_turns(self._tool_session.config):
            self._end(None, 0.0)  # tidy asks the operator, as for any mind

    def _report(self, usage: Usage, part: str | None) -> None:
        try:
            self._account.report(usage, part, self.session)
        except Parking as parking:
            if self._parking is None:
                self._parking = parking
            self._end(None)
        self._runner.reporter.progress(self._turn)

    # calls of the hive's tools

    def _listen(self, stack: ExitStack) -> tuple[socket.socket, dict[str, Any]]:
        """Open the socket for calls. Return it with the configuration of the program's MCP server."""
        name = self._tool_session.agent
        folder = os.fspath(self._folder.parent)
        path = socket_paths(folder, "program")[0]
        make_socket_folder(os.path.dirname(path), private=os.path.dirname(path) != folder)
        Path(path).unlink(missing_ok=True)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        stack.callback(Path(path).unlink, missing_ok=True)
        listener.listen()
        tools = [tool.mcp_entry() for tool in self._tool_session.tools.values()]
        instructions = f"The tools of the hive in which you are the agent {name}."
        return listener, {"socket": path, "token": self._token, "tools": tools, "instructions": instructions}

    def _serve(self, listener: socket.socket) -> None:
        """Answer one call. A request is trusted only with the right token."""
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.settimeout(_CALL_S)
            raw = connection.makefile("rb").readline(_MAX_LINE_BYTES)
            try:
                with boundary("call"):
                    request = json.loads(raw)
                    tool, arguments, token = str(request["tool"]), dict(request["arguments"]), str(request["token"])
            except Unreadable as error:
                response: Mapping[str, Any] = {"text": f"failed: {error}", "failed": True}
            else:
                right = secrets.compare_digest(token, self._token)
                refusal = {"text": "failed: not your agent", "failed": True}
                response = self._answer(tool, arguments) if right else refusal
            connection.sendall(json.dumps(response).encode() + b"\n")

    def _answer(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Make a call. Return its result and the news."""
        if self._parking is not None or self._is_over:
            self._end(None)
            return {"text": self._farewell(), "failed": False}
        result = self._make(ToolCall(tool, arguments))
        if self._parking is not None or self._is_over:
            self._end(None)
            return {"text": self._farewell(result), "failed": False}
        self._count_turn()
        return {
            "text": "\n\n".join(["" if result is None else result.text, *self._news()]),
            "failed": not (result and result.ok),
        }

    def _farewell(self, result: ToolResult | None = None) -> str:
        text = _OVER if self._is_over or self._parking is None else _RESTS.format(reason=self._parking.reason)
        return text if result is None else f"{result.text}\n\n{text}"

    def _make(self, call: ToolCall) -> ToolResult | None:
        """Make one call under the lease of the step in focus. Return None if the call parks the task."""
        results = list[ToolResult]()
        self.heard = True
        focus = self._turn.focus if self._work is None else focus_on(self._work, reads=True)
        self._step = focus.step
        answer = self._talk.answer(self._thought("", call), step=self._step_id)

        def record(result: ToolResult) -> None:
            results.append(result)
            self._talk.result(result)
            self._active_at = time.monotonic()

        try:
            self._runner.lease.take(focus)
            session = replace(self._tool_session, focus=focus)
            self._parking = make_calls(session, Thought(actions=answer.calls), MAX_RESULT_CHARS, record)
        except HivemindError as error:
            if isinstance(error, Parking):
                self._parking = error
            record(ToolResult.failure(answer.calls[0], str(for_mind(error, self._tool_session.tools))))
        self._results += results
        self._runner.reporter.called(call.tool)
        return results[0] if results else None

    def _news(self) -> list[str]:
        """Append the news to the conversation, and return them."""
        if self._work is None:
            return []
        message_count = len(self._talk.messages)
        self._work.take_additions()
        self._runner.hear(self._work)
        self._runner.news.tell(self._tool_session, self._window)
        return [message.text for message in self._talk.messages[message_count:] if message.role == "user"]


def _session_of(talk: Conversation, mind: AgentMind) -> str | None:
    """Return the program's session in which the conversation is held."""
    for message in reversed(talk.messages):
        provider_fields = message.provider or {}
        if provider_fields.get("agent") == mind.config.agent and provider_fields.get("session"):
            return str(provider_fields["session"])
    return None


def _unheard_messages(talk: Conversation) -> list[ChatMessage]:
    """Return the messages since the program's last answer: it may not have received them."""
    last = max((at for at, message in enumerate(talk.messages) if message.role == "assistant"), default=-1)
    return talk.messages[last + 1 :]
