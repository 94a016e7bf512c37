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
from hivemind.agent.permission_desk import Grant, PermissionDesk, describe_call
from hivemind.agent.status_writer import StatusReporter
from hivemind.agent.stop_request import StopRequest
from hivemind.agent.window import ContextWindow
from hivemind.boundary import Unreadable, boundary
from hivemind.errors import HivemindError
from hivemind.fs import make_folder
from hivemind.fs.sockets import make_socket_folder, socket_paths, wait_for_input
from hivemind.landing.early_warning import note_branches
from hivemind.minds import ChatMessage, MindError, MindUnavailable, Thought, ToolCall, ToolResult, Turn
from hivemind.minds.agents import events
from hivemind.minds.agents.lines import permission_request
from hivemind.minds.agents.mind import PERMISSION_TOOL, AgentMind, LoginNeeded, last_line
from hivemind.minds.agents.permissions import decide
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.focus import focus_on
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import Parking, ProgramAtWork
from hivemind.tasks import TaskMoved
from hivemind.tools import ToolContext
from hivemind.tools.excerpt import MAX_RESULT_CHARS, shortened
from hivemind.tools.tool import for_mind

_GRACE_S = 30.0  # for a program to exit after its turn
_LOOK_S = 1.0  # bounds the delay until a cancelled task is noticed
_CALL_S = 10.0  # for the rest of a call to arrive
_CANCEL_S = 10.0  # for a program to report its usage after its turn was cancelled
_MAX_FAILED_STARTS, _MAX_SILENT_RUNS = 3, 10  # in a row
_MAX_REQUEST_BYTES = 8 << 20
_MAX_UPDATES, _UPDATE_CHARS = 200, 2000
_UNFINISHED = """You have ended your turn, and the task is not over. Call finish_task with the answer, or fail_task with the \
reason; if something is missing, say what, with ask_human."""
_GO_ON = "You were interrupted. Go on."
_OVER = "The task is over; result.md (or error.md) is written when you have ended your turn. End it now."
_RESTS = "The task rests: {reason}. End your turn now; you will be called again when there is news."


class SessionLost(MindUnavailable):
    """The program does not know its session. The conversation has to begin again."""


@dataclass(slots=True)
class ProgramRunner:
    """Runs the coding agent that is an agent's mind. `hear` is called to take in a task's new mail."""

    mind: MeteredMind
    lease: FocusLease
    stop_request: StopRequest
    reporter: StatusReporter
    news: News
    hear: Callable[[TaskRun], object]

    def run(self, turn: Turn, context: ToolContext, window: ContextWindow) -> Thought | None:
        """Run the program until it ends its turn. Set the turn's results and, if a call must wait, its `parking`.

        Return the turn's thought, with only the calls that end the task; None without a thought. Raises Parking if
        another agent holds the step or a budget is used up, SessionLost, MindUnavailable if the program ends with an error,
        MindError if the runtime ended it (timeout, silence).
        """
        turn.results = []
        self.lease.take(context.focus)
        run = _ProgramRun(self, turn, context, window)
        try:
            run.run()
        except MindUnavailable as error:
            is_known = run.heard or run.has_session or run.session is None
            if is_known or self.stop_request.is_set() or isinstance(error, LoginNeeded):
                raise
            raise SessionLost(f"the session {run.session} is not known: {error}") from error
        return turn.thought

    def ask(self, question: str, context: ToolContext, window: ContextWindow) -> str:
        """Ask the program in the session of a task that has ended, and return its answer. It runs in a box in which it cannot
        change files.

        Raises MindUnavailable without a box, or without a session to continue.
        """
        work, mind, talk = context.focus.work, self.mind.program, window.talk
        assert work is not None
        assert mind is not None
        program_session = _session_of(talk, mind)
        folder = next((worktree.path for worktree in work.worktrees.recorded), None)
        if program_session is None or not mind.box.is_boxed or folder is None or not folder.is_dir():
            raise MindUnavailable("its program cannot be asked in a box about a worktree")
        account = RunAccount(self.mind, mind, None, talk, question, program_session, "lesson")
        account.begin()
        files = context.hive.layout.agent_state(context.agent) / "program"
        answer = None
        try:
            answer = mind.answer(question, files, folder, program_session, is_read_only=True)
            for report in answer.reports:
                account.report(report.usage, report.part, program_session if report.is_cumulative else None)
        finally:
            account.close(was_heard=answer is not None)
        return answer.text


class _ProgramRun:
    """One run of the program. `has_session` is True once the program has opened its `session`, `heard` once it has sent a text or
    a call."""

    def __init__(self, runner: ProgramRunner, turn: Turn, context: ToolContext, window: ContextWindow) -> None:
        assert runner.mind.program is not None
        self._runner, self._mind = runner, runner.mind.program
        self._turn, self._context, self._window, self._talk = turn, context, window, window.talk
        self._work, self._step = context.focus.work, context.focus.step
        self._results: list[ToolResult] = turn.results  # type: ignore[assignment]
        self._folder = context.hive.layout.agent_state(context.agent) / "program"
        self._token = secrets.token_hex(16)
        self.session = _session_of(self._talk, self._mind)
        self.heard = self.has_session = False
        self._open_calls: dict[str, events.ProgramCall] = {}
        self._unpermitted: set[str] = set()  # calls that asked for permission and do not have it
        self._chunks: list[events.AgentText] = []
        self._plan: events.AgentPlan | None = None
        self._update_count = 0
        self._problem = ""
        self._desk = None if self._work is None else PermissionDesk(context, self._work)
        # with the end of the program's wait
        self._question: tuple[events.PermissionRequest, Grant, float] | None = None
        self._verdicts: list[str] = []  # for the next result or prompt
        self._failure: events.Failure | None = None  # why the program could not go on
        self._parking: Parking | None = None
        self._interruption: HivemindError | None = None  # raised when the program was ended for it
        self._is_done = self._was_cancelled = False
        self._ends_at: float | None = None
        self._active_at = turn.began_at  # the end of the work that is recorded so far
        self._end_reason: str | None = None

    def run(self) -> None:
        """See `ProgramRunner.run`."""
        config = self._mind.config
        for grant in self._desk.take_answers() if self._desk is not None else ():
            if self._desk is not None and not grant.answer:
                raise self._desk.parking(grant)
            verdict = "allows" if grant.answer == "allow" else "does not allow"
            text = f"The operator {verdict} what you asked for: {grant.description}\n{grant.reason}".strip()
            self._talk.add_news(f"{text}\nGo on.", cause="permission")
        unheard_messages = _unheard_messages(self._talk)
        prompt = "\n\n".join(map(self._text_of, unheard_messages)) or _GO_ON
        self._was_reminded = any((message.news or {}).get("cause") == "unfinished" for message in unheard_messages)
        make_folder(self._folder, durable=False)
        self._account = RunAccount(self._runner.mind, self._mind, self._work, self._talk, prompt, self.session)
        with ExitStack() as stack:
            stack.callback(lambda: self._account.close(was_heard=self.heard))
            self._account.begin()
            stack.enter_context(self._context.pulse.busy(config.timeout_s + 2 * _GRACE_S))
            if self._work is not None:
                self._work.program_at_work = True
                stack.callback(setattr, self._work, "program_at_work", False)
            listener, server_config = self._listen(stack)
            errors = stack.enter_context(TemporaryFile())
            self._program = self._mind.start(
                prompt, self._folder, self._place(), server_config, errors, session=self.session,
                folders=self._visible_folders(), traceparent=self._context.traceparent,
            )  # fmt: skip
            stack.enter_context(self._program)
            if self.session is None and self._mind.loopback_in_box:
                hosts = ", ".join(self._mind.loopback_in_box)
                self._note("network", f"Its box reaches {hosts}: its env or args name it.")
            self._watch(listener)
            error = last_line(errors)
        self._close_turn()
        if self._interruption is not None:
            raise self._interruption
        self._conclude(error)

    # the program

    def _place(self) -> Path:
        """Create and return the program's working directory: the first worktree or the folder of the task, or a folder for
        letters."""
        place = self._folder / "mail"
        if self._work is not None:
            trees = self._work.worktrees.catch_up()
            place = trees[0].path if trees else self._work.task.files
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _visible_folders(self) -> dict[Path, bool | None]:
        """Return the folders that the program sees in its box: True for writable, False for read-only, None for hidden ones. A
        repository is seen only through its worktree."""
        hive, work = self._context.hive, self._work
        repositories = hive.config.worktree_roots(hive.layout)
        roots = hive.config.sandbox_folders(hive.layout)
        folders = {path: is_writable for path, is_writable in roots.items() if path not in repositories}
        return folders if work is None else {**folders, work.task.files: True, **work.worktrees.sandbox_folders()}

    def _watch(self, listener: socket.socket) -> None:
        """Read the program's events, and make the calls that it sends to `listener`, until its work is over. End a program that
        works too long, is silent too long, or is interrupted."""
        program, stop_request, config = self._program, self._runner.stop_request, self._mind.config
        until, quiet = time.monotonic() + config.timeout_s, time.monotonic() + config.quiet_s
        while not self._is_done:
            sources = [*program.descriptors, listener, *(() if self._interruption else stop_request.descriptors)]
            now = time.monotonic()
            wait_s = min(until, quiet, program.due, now + _LOOK_S, self._ends_at or until) - now
            ready = wait_for_input(sources, max(0.0, wait_s), program.outputs)
            if stop_request.is_set():
                self._interrupt(MindUnavailable("the agent was stopped"))
            elif self._work is not None and self._work.was_moved:
                self._interrupt(TaskMoved("its task was taken away", location=self._work.task.id))
            self._record_refusals()
            for event in program.read():  # output before the call is recorded before it
                self._take(event)
                if self._is_done:
                    return
            if listener in ready:
                self._serve(listener)
            self._look_for_permission()
            now = time.monotonic()
            quiet = now + config.quiet_s if ready else quiet
            if now >= until:
                self._end(f"it worked for more than {config.timeout_s:g} s", 0.0)
            elif now >= quiet:
                self._end(f"it printed nothing for {config.quiet_s:g} s", 0.0)
            if self._ends_at is not None and time.monotonic() >= self._ends_at:
                if not program.cancel():
                    return  # leaving the block ends it, with all that it started
                self._ends_at, self._was_cancelled = time.monotonic() + _CANCEL_S, True

    def _interrupt(self, error: HivemindError) -> None:
        """Have the program end its turn now. Once it has exited, `run` raises the error (the first, if there are several)."""
        if self._interruption is None:
            self._interruption = error
            self._end(None, 0.0)

    def _end(self, reason: str | None, grace_s: float = _GRACE_S) -> None:
        """Make the program end `grace_s` seconds from now, if it has not exited before. A `reason` makes the turn fail with it;
        None does not. A cancelled program gets more time to report its usage."""
        ends_at = time.monotonic() + grace_s
        may_shorten = self._end_reason is None and not self._was_cancelled
        if self._ends_at is None or (may_shorten and ends_at < self._ends_at):
            self._ends_at, self._end_reason = ends_at, reason

    def _close_turn(self) -> None:
        """At the end of the program's turn, record texts and calls that are not recorded yet, and commit the program's work."""
        self._record_refusals()
        self._flush_chunks()
        for call in [*self._open_calls.values()]:
            is_failed = call.id in self._unpermitted
            self._record_call(call, events.ProgramCallResult(call.id, "(no result was reported)", is_failed=is_failed))
        if self._work is not None and not self._work.is_ended and not isinstance(self._interruption, TaskMoved):
            self._work.commit()
            note_branches(self._context.hive, self._work)

    def _end_turn(self, reason: str) -> None:
        """Note an unusual `reason` for the end of the program's turn. Send the news as the next prompt; without news, remind the
        program once that its task is not over."""
        if reason != "end_turn" and self._ends_at is None:
            self._note("turn", f"The program ended its turn: {reason}")
        self._is_done = True
        if self._work is None or self._is_resting or self._ends_at is not None or not self._program.takes_prompts:
            return
        self._close_turn()
        texts = self._news()
        if not texts:
            if self._was_reminded:
                return
            self._talk.add_news(_UNFINISHED, cause="unfinished")
            texts = [_UNFINISHED]
        self._was_reminded = texts == [_UNFINISHED]
        self._is_done = False
        self._account.add_prompt(prompt := "\n\n".join(texts))
        self._program.prompt(prompt)

    def _conclude(self, error: str) -> None:
        """Set the turn's outcome after the program has exited. `error` is the last line of its error output."""
        name, work = self._mind.name, self._work
        if isinstance(self._parking, ProgramAtWork):  # after its usage is counted
            self._turn.thought, self._turn.taken_up = Thought(actions=tuple(self._talk.pending_calls)), True
        elif self._parking is not None:
            self._turn.parking = self._parking
        elif self._end_reason is not None:
            raise MindError(f"{name} was ended: {self._end_reason}")
        elif self._is_over:
            return
        elif self._failure is not None and self._failure.kind == "settings":
            self._ask_operator(f"{name} {self._failure.reason}.")
        elif self._failure is not None:
            problem = self._mind.error_of(self._failure, self._problem or error)
            limit = _MAX_SILENT_RUNS if self.has_session else _MAX_FAILED_STARTS
            if work is None:
                raise problem
            work.failed_starts = 0 if self.heard or isinstance(problem, LoginNeeded) else work.failed_starts + 1
            if work.failed_starts < limit:
                raise problem
            self._ask_operator(f"{problem}. It has ended {work.failed_starts} times before it did anything.")
        elif self._verdicts:
            self._tell_verdicts()
        elif work is not None and not self._was_reminded:
            self._talk.add_news(_UNFINISHED, cause="unfinished")
        elif work is not None:
            last_answer = self._talk.last_words
            if work.task.finish == "implicit":
                self._make(ToolCall("finish_task", {"result": last_answer}))
                self._turn.parking = self._parking
            else:
                words = f"{name} ended without finish_task, and wrote: {last_answer}"
                self._ask_operator(f"unfinished: look at it. {words}")

    def _ask_operator(self, reason: str) -> None:
        ask_operator(self._turn, self._context, self._talk, reason)

    def _text_of(self, message: ChatMessage) -> str:
        """Return a message as text for the program. Name the tool of a result, because a new session has not seen the call."""
        if message.role != "tool":
            return message.text
        calls = (call for answer in self._talk.messages for call in answer.calls)
        tool = next((call.tool for call in calls if call.id == message.call_id), "a call")
        return f"Result of {tool}:\n\n{message.text}"

    # output

    def _take(self, event: events.Event) -> None:
        if not isinstance(event, events.AgentText | events.UsageReport | events.OtherUpdate):
            self._flush_chunks()
        match event:
            case events.SessionOpened():
                self.session, self.has_session = event.session, True
            case events.AgentText():
                self._add_text(event)
            case events.AgentPlan():
                if event != self._plan:
                    self._plan = event
                    self._note("plan", "\n".join(f"* [{status}] {step}" for step, status in event.steps))
            case events.ProgramCall():
                self._open_calls[event.id] = event
            case events.ProgramCallResult():
                if (call := self._open_calls.get(event.id)) is not None:
                    self._record_call(call, event)
            case events.UsageReport():
                self._report(event)
            case events.PermissionRequest():
                self._decide(event)
            case events.OtherUpdate():
                self._update_count += 1
                if self._update_count <= _MAX_UPDATES:
                    self._note("update", f"{event.kind}: {event.text}"[:_UPDATE_CHARS])
            case events.Problem():
                self._problem = event.reason
            case events.TurnEnd():
                self._end_turn(event.reason)
            case events.Failure(kind="login"):
                raise self._mind.error_of(event)
            case events.Failure(kind="overrun"):
                self._end(f"it {event.reason}", 0.0)
                self._is_done = True
            case events.Failure():
                self._is_done = True
                if event.kind != "exit" or self._ends_at is None:
                    self._failure = event

    def _add_text(self, event: events.AgentText) -> None:
        """Collect the chunks of a message. Write out the chunks so far when another message begins; write a whole message at
        once."""
        last = self._chunks[-1] if self._chunks else event
        if not event.is_chunk or (event.is_thought, event.message) != (last.is_thought, last.message):
            self._flush_chunks()
        self._chunks.append(event)
        self.heard = True
        if not event.is_chunk:
            self._flush_chunks()

    def _flush_chunks(self) -> None:
        chunks, self._chunks = self._chunks, []
        text = "".join(chunk.text for chunk in chunks)
        if not text.strip():
            return
        if chunks[0].is_thought:
            self._note("thought", shortened(text, MAX_RESULT_CHARS))
        elif not self._is_over:
            text = shortened(text, 10 * MAX_RESULT_CHARS)
            self._talk.answer(self._thought(text), step=self._step_id, sync_now=False)
            self._count_turn()

    def _note(self, event: str, text: str) -> None:
        """Record a plan, a thought or an update of an unknown kind."""
        if not self._is_over:
            self._talk.note({"event": event, "text": text}, sync_now=False)

    def _decide(self, request: events.PermissionRequest) -> None:
        """Answer a request for permission by the agent's policy or by the operator's earlier answer. If neither decides, ask the
        operator."""
        call, desk = request.call, self._desk
        self._open_calls.setdefault(call.id, call)
        self._unpermitted.add(call.id)
        is_boxed = self._mind.box.is_boxed
        policy = decide(call, self._mind.config.permissions, self._context.config.commands, is_boxed=is_boxed)
        if policy != "ask":
            self._answer_permission(request, policy == "allow", "this agent may not do that")
        elif desk is None or request.source is None:
            self._answer_permission(request, False, "nobody can be asked about it")
        elif (grant := desk.look_up(call)) is not None:
            self._answer_permission(request, grant.answer == "allow", grant.reason)
        elif self._question is not None:
            self._answer_permission(request, False, "another question to the operator is open; ask for it after that")
        else:
            self._question = request, desk.ask(call), time.monotonic() + self._mind.config.ask_s

    def _answer_permission(self, request: events.PermissionRequest, is_allowed: bool, denial: str) -> None:
        """Answer a request. A denial is recorded, and the next result or prompt repeats its reason."""
        if not is_allowed:
            description = describe_call(request.call)[:_UPDATE_CHARS]
            self._note("denied", f"{description}: {denial}")
            self._verdicts.append(f"Not allowed: {description}. {denial[:1].upper()}{denial[1:]}")
        else:
            self._unpermitted.discard(request.call.id)
        if not self._program.answer(request, is_allowed=is_allowed, reason=denial):
            action = (request.call.title or request.call.tool)[:200]
            self._end(f"it waits for an approval ({action}), but no person can give it: see mode in its file", 0.0)

    def _look_for_permission(self) -> None:
        """Pass on the operator's answer to an open question. If none has come in time, end the program's turn and park the task
        until it comes."""
        if self._question is None or self._desk is None or self._work is None or self._parking is not None:
            return
        request, grant, until = self._question
        self._runner.hear(self._work)
        if any(answer.key == grant.key and answer.answer for answer in self._desk.take_answers()):
            self._question = None
            self._decide(request)
        elif time.monotonic() >= until:
            self._parking, self._question = self._desk.parking(grant), None
            self._end(None, 0.0)

    def _record_call(self, call: events.ProgramCall, result: events.ProgramCallResult) -> None:
        """Record a call of one of the program's own tools."""
        self.heard = True
        del self._open_calls[call.id]
        if self._is_over:
            return
        action = ToolCall(call.tool, call.arguments, call.id)
        answer = self._talk.answer(self._thought("", action), step=self._step_id, sync_now=False)
        text = shortened(result.text, MAX_RESULT_CHARS)
        details = {"title": call.title, "kind": call.kind, "paths": [*call.paths]}
        problem = text[:200] or "it failed" if result.is_failed else None
        value = {name: detail for name, detail in details.items() if detail}
        recorded = ToolResult(answer.calls[0], text, value, problem)
        self._talk.result(recorded, sync_now=False)
        self._results.append(recorded)
        self._runner.reporter.called(call.tool)
        self._count_turn()

    def _record_refusals(self) -> None:
        """Record what the proxy of the program's box has refused, as failed calls of `network`."""
        for number, reason in enumerate(self._mind.refusals()):
            call_id = f"network-{number}"
            self._take(events.ProgramCall(call_id, "network", {"host": reason.split(" ", 1)[0]}, kind="fetch"))
            self._take(events.ProgramCallResult(call_id, f"refused: {reason}", is_failed=True))

    def _thought(self, text: str, *calls: ToolCall) -> Thought:
        """Return a thought that names the session, for the next run to continue it."""
        previous_active_at, self._active_at = self._active_at, time.monotonic()
        provider_fields = {"agent": self._mind.session_kind, "session": self.session}
        return Thought(text, calls, provider=provider_fields, seconds=self._active_at - previous_active_at)

    @property
    def _is_over(self) -> bool:
        """True if the task has ended, will end with this turn, or was handed over. Later output is not recorded."""
        if (work := self._work) is None:
            return False
        is_leaving = isinstance(self._parking, ProgramAtWork) or isinstance(self._interruption, TaskMoved)
        return is_leaving or work.is_ended or work.handed_to is not None

    @property
    def _step_id(self) -> str | None:
        return None if self._step is None else self._step.id

    def _count_turn(self) -> None:
        if self._talk.turns >= self._runner.mind.max_turns(self._context.config):
            self._end(None, 0.0)  # tidy asks the operator, as for any mind

    def _report(self, report: events.UsageReport) -> None:
        try:
            self._account.report(report.usage, report.part, self.session if report.is_cumulative else None)
        except Parking as parking:
            self._parking = self._parking or parking
            # what cannot be asked may be about to end
            self._end(None, 0.0 if self._program.takes_prompts else _GRACE_S)
        self._runner.reporter.progress(self._turn)

    # calls of the hive's tools

    def _listen(self, stack: ExitStack) -> tuple[socket.socket, dict[str, Any]]:
        """Open the socket for calls. Return it with the configuration of the program's MCP server."""
        name = self._context.agent
        folder = os.fspath(self._folder.parent)
        path = socket_paths(folder, "program")[0]
        make_socket_folder(os.path.dirname(path), private=os.path.dirname(path) != folder)
        Path(path).unlink(missing_ok=True)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        stack.callback(Path(path).unlink, missing_ok=True)
        listener.listen()
        tools = [tool.mcp_entry() for tool in self._context.tools.values()]
        instructions = f"The tools of the hive in which you are the agent {name}."
        return listener, {"socket": path, "token": self._token, "tools": tools, "instructions": instructions}

    def _serve(self, listener: socket.socket) -> None:
        """Answer one call. A request is trusted only with the right token."""
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.settimeout(_CALL_S)
            raw = connection.makefile("rb").readline(_MAX_REQUEST_BYTES)
            try:
                with boundary("call"):
                    request = json.loads(raw)
                    call = ToolCall(
                        str(request["tool"]), dict(request["arguments"]), traceparent=request.get("traceparent")
                    )
                    token = str(request["token"])
            except Unreadable as error:
                response: Mapping[str, Any] = {"text": f"failed: {error}", "failed": True}
            else:
                self._flush_chunks()
                if not secrets.compare_digest(token, self._token):
                    response = {"text": "failed: not your agent", "failed": True}
                elif call.tool == PERMISSION_TOOL and self._mind.profile.permission_kinds:
                    self._decide(permission_request(self._mind.profile, call.arguments, connection.dup()))
                    return
                else:
                    response = self._answer(call)
            connection.sendall(json.dumps(response).encode() + b"\n")

    def _answer(self, call: ToolCall) -> dict[str, Any]:
        """Make a call. Return its result and the news."""
        result = None if self._is_resting else self._make(call)
        texts = [] if result is None else [result.text]
        if self._is_resting:
            self._end(None)
            reason = self._interruption or (self._parking and self._parking.reason)
            texts.append(_OVER if self._is_over or reason is None else _RESTS.format(reason=reason))
            return {"text": "\n\n".join(texts), "failed": False}
        self._count_turn()
        return {"text": "\n\n".join([*texts, *self._news()]), "failed": not (result and result.ok)}

    @property
    def _is_resting(self) -> bool:
        return self._parking is not None or self._is_over or self._interruption is not None

    def _make(self, call: ToolCall) -> ToolResult | None:
        """Make one call under the lease of the step in focus. Return None if the call parks the task."""
        self.heard, earlier_count = True, len(self._results)
        focus = self._turn.focus if self._work is None else focus_on(self._work, reads=True)
        self._step = focus.step
        answer = self._talk.answer(self._thought("", call), step=self._step_id)

        def record(result: ToolResult) -> None:
            self._results.append(result)
            self._talk.result(result)
            self._active_at = time.monotonic()

        try:
            self._runner.lease.take(focus)
            context = replace(self._context, focus=focus)
            self._parking = make_calls(context, Thought(actions=answer.calls), MAX_RESULT_CHARS, record)
        except HivemindError as error:
            if isinstance(error, Parking):
                self._parking = error
            record(ToolResult.failure(answer.calls[0], str(for_mind(error, self._context.tools))))
        self._runner.reporter.called(call.tool)
        return self._results[-1] if len(self._results) > earlier_count else None

    def _tell_verdicts(self) -> None:
        while self._verdicts:
            self._talk.add_news(self._verdicts.pop(0), cause="permission")

    def _news(self) -> list[str]:
        """Append the news to the conversation, and return them."""
        if self._work is None:
            return []
        message_count = len(self._talk.messages)
        self._tell_verdicts()
        self._work.take_additions()
        self._runner.hear(self._work)
        self._runner.news.tell(self._context, self._window)
        return [message.text for message in self._talk.messages[message_count:] if message.role == "user"]


def _session_of(talk: Conversation, mind: AgentMind) -> str | None:
    """Return the id of the program's session that holds the conversation, or None if there is none to continue."""
    for message in reversed(talk.messages):
        provider_fields = message.provider or {}
        if provider_fields.get("agent") == mind.session_kind and provider_fields.get("session"):
            return str(provider_fields["session"])
    return None


def _unheard_messages(talk: Conversation) -> list[ChatMessage]:
    """Return the messages after the program's last answer: the program may not have received them."""
    last = max((at for at, message in enumerate(talk.messages) if message.role == "assistant"), default=-1)
    return talk.messages[last + 1 :]
