"""A member: an agent of the hive with an external program, an MCP client, as its mind."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from hivemind.agent.act import small_values_of
from hivemind.agent.lease import renew_lease
from hivemind.agent.recall import answer
from hivemind.agent.scheduler import Scheduler
from hivemind.agent.working_memory import WorkingMemory
from hivemind.errors import HivemindError, UserError
from hivemind.fs import is_timestamp_reliable, make_folder
from hivemind.landing.early_warning import note_branches
from hivemind.lessons.record import make_lessons_folder
from hivemind.mail import Mail
from hivemind.masking import mask_values
from hivemind.minds import Thought, ToolCall, ToolResult
from hivemind.presence.agent_log import AgentLog
from hivemind.presence.heartbeat import Heartbeat
from hivemind.presence.identity import (
    check_hive_exists,
    journal_exit,
    journal_start,
    lease_step,
    lock_name,
    record_heartbeat,
)
from hivemind.presence.parts import Parts
from hivemind.presence.status import StatusFile
from hivemind.presence.watching import ring_all
from hivemind.swarm.task_return import return_tasks
from hivemind.taskrun.conversation import INTERRUPTED
from hivemind.taskrun.focus import Focus, focus_on
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import Parking
from hivemind.tools import Tool, ToolContext, ToolProblem, allowed_tools
from hivemind.tools.excerpt import MAX_RESULT_CHARS
from hivemind.tools.tool import for_mind

_log = logging.getLogger(__name__)
_BEAT_S = 1.0
_RETURN_CHECK_S = 10.0
_STEP_TOOLS = frozenset(
    {
        "add_card", "add_evidence", "ask_human", "block_step", "finish_step", "note_step", "run_command", "verify_step", "wait",
    }
)  # fmt: skip
"""Tools that change a step. The member takes the step's lease before it calls one of these tools."""
_MAIL_TOOLS = frozenset({"check_mailbox", "read_mail"})


class NewMailCounter:
    """Counts the new letters in a mailbox, each letter once. Checking an unchanged mailbox costs one system call."""

    def __init__(self, mail: Mail, name: str) -> None:
        self._mailbox = mail.mailboxes.get(name)
        self._listed_names: set[str] = set()
        self._mtime_ns = 0

    def count(self) -> int:
        """Return the number of letters that arrived in new/ since the last call; the first call counts all letters in new/."""
        try:
            mtime_ns = os.stat(self._mailbox.new).st_mtime_ns
        except OSError:  # the mailbox does not exist
            return 0
        if mtime_ns == self._mtime_ns:
            return 0
        self._mtime_ns = mtime_ns if is_timestamp_reliable(mtime_ns) else 0
        names = set(self._mailbox.file_names(True))
        arrived_count = len(names - self._listed_names)
        self._listed_names = names
        return arrived_count


class Member:
    """An agent of the hive through which a client works. Call all methods but `beat` and `stop` from one thread.

    A member holds the agent's name lock while it lives, and writes `agent.started` and `agent.exited` to the journal. If it
    is killed, another process writes `agent.exited` (README.md), which ends the agent's leases and reservations.
    """

    def __init__(self, hive: Parts, name: str, profile: str = "core") -> None:
        """Join the hive as the agent `name` with the tools of a `profile`. Raises UserError if the agent does not exist, LockBusy
        if another process runs it."""
        self.hive, self.name = hive, name
        self.config = hive.agent_files.get(name, " --mind mcp")
        self.tools: dict[str, Tool] = allowed_tools(self.config, profile)
        self._lock = lock_name(hive.layout, name)
        self.incarnation = journal_start(hive.journal, name, os.getpid())
        try:
            self._set_up()
        except BaseException:
            journal_exit(hive.journal, name, self.incarnation, by="itself")
            self._lock.release()
            raise

    def _set_up(self) -> None:
        hive, name = self.hive, self.name
        self.folder = hive.layout.agent_state(name)
        make_folder(self.folder)
        make_lessons_folder(hive.layout)
        hive.mail.ensure(name)
        self._status = StatusFile(self.folder, name)
        self._status.update(incarnation=self.incarnation, mind="mcp", state="idle")
        self._log = AgentLog(self.folder)
        self._arrivals = NewMailCounter(hive.mail, name)
        self._pulse = Heartbeat(self.beat, min(_BEAT_S, hive.config.hang_after / 4))
        self._scheduler = Scheduler(hive, name, self.incarnation)
        self._scheduler.active_tasks.resume()
        self._parked = {work.task.id for work in self.task_runs() if work.task.parked is not None}
        self._processed_letters: set[str] = set()
        self.task: str | None = next((work.task.id for work in self.task_runs()), None)
        """The id of the task that the tools work on."""
        self._stopping = False
        self.requests = 1
        """The number of running requests of the client over HTTP. On standard input it stays 1."""
        self._last_request_at = self._last_return_check = time.monotonic()
        return_tasks(hive)

    # for the tools (MemberTasks)

    def task_runs(self) -> Collection[TaskRun]:
        return self._scheduler.active_tasks.runs

    def claim(self, task_id: str | None = None) -> TaskRun | None:
        return self._scheduler.active_tasks.claim(task_id)

    def set_focus(self, work: TaskRun) -> None:
        self.task = work.task.id

    # calls

    def call(self, tool: str, arguments: Mapping[str, Any], traceparent: str | None = None) -> dict[str, Any]:
        """Call a tool, log the call and return the result. If the task must wait, park the task and return the reason.

        `traceparent` names the client's span. `new_mail` in the result is the number of letters that arrived since the last call.
        Raises HivemindError if the tool refuses, HiveGone.
        """
        check_hive_exists(self._lock, self.hive.layout)
        self._hear_new_mail()
        focus = self._focus(tool, arguments)
        if focus.work is not None and focus.id in self._parked:
            self.hive.tasks.active.unpark(focus.work.task)
            self._parked.discard(focus.id)
        call = ToolCall(tool, dict(arguments), traceparent=traceparent)
        outcome = ToolResult.failure(call, INTERRUPTED)
        started_at = time.monotonic()
        try:
            result = self._use_tool(tool, arguments, focus)
            outcome = ToolResult(call, self.tools[tool].render(result, MAX_RESULT_CHARS), small_values_of(result))
        except Parking as parking:
            result = self._park(focus, parking)
            outcome = ToolResult(call, f"waiting: {parking.reason}", result)
        except Exception as error:
            problem = for_mind(error, self.tools) if isinstance(error, HivemindError) else f"the tool broke: {error!r}"
            outcome = ToolResult.failure(call, str(problem))
            raise
        finally:
            self._record(focus, replace(outcome, seconds=time.monotonic() - started_at))
            self._finish_call(focus, tool)
        new_mail_count = self._arrivals.count()
        return {**result, "new_mail": new_mail_count} if new_mail_count and tool not in _MAIL_TOOLS else result

    def _hear_new_mail(self) -> None:
        """Pass new letters (verdicts, answers) to the waiting tasks. The letters stay unread for the client."""
        if not self._parked:
            return
        mail = self.hive.mail
        for mail_file in list(mail.mailboxes.get(self.name).mail_files()):
            if mail_file.base in self._processed_letters or not mail.reader.is_finished(mail_file):
                continue
            self._processed_letters.add(mail_file.base)
            try:
                message = mail.read(self.name, mail_file.base, mark=False)
            except UserError as error:  # not a letter, or deleted at this moment
                _log.warning("%s: %s", self.name, error)
            else:
                self._scheduler.deliver(message)

    def _use_tool(self, name: str, arguments: Mapping[str, Any], focus: Focus) -> dict[str, Any]:
        tool = self.tools.get(name)
        if tool is None:
            if name in allowed_tools(self.config, "full"):
                raise ToolProblem(
                    f"this profile does not include the tool {name!r}", remedy="hivemind mcp --profile full includes it"
                )
            raise ToolProblem(f"the tool {name!r} does not exist", remedy="tools/list lists the tools")
        work, step = focus.work, focus.step
        if name in _STEP_TOOLS and work is not None and step is not None:
            work.lease = lease_step(self.hive, step.id, self.name)
        return tool.call(self._context(focus), arguments)

    def _context(self, focus: Focus) -> ToolContext:
        return ToolContext(
            hive=self.hive, agent=self.name, config=self.config, focus=focus, pulse=self._pulse,
            stopping=lambda: self._stopping, tools=self.tools, member_tasks=self,
            recall=lambda *query: answer(WorkingMemory(self.hive, self.name, read_only=True), focus, lambda _: False, *query),
        )  # fmt: skip

    def _focus(self, tool: str, arguments: Mapping[str, Any]) -> Focus:
        """Return the member's current task with the step that the call's arguments name, else with its first open step."""
        for held_task in list(self.task_runs()):
            if not held_task.task.path.exists():  # a person has moved it away
                self._scheduler.active_tasks.drop(held_task)
        work = next((task_run for task_run in self.task_runs() if task_run.task.id == self.task), None)
        if work is None:
            return Focus("claim_task")
        work.take_additions()
        canonical_name = self.tools[tool].arguments.canonical_name if tool in self.tools else str
        step_argument = next((value for name, value in arguments.items() if canonical_name(name) == "step"), None)
        step = work.step(step_argument) if isinstance(step_argument, str) else None
        return focus_on(work) if step is None else Focus("finish_step", work=work, step=step)

    def _park(self, focus: Focus, parking: Parking) -> dict[str, Any]:
        """Park the task and return what the client gets: the reason, the end of the wait, and what to do next."""
        until = None if parking.until is None else parking.until.isoformat()
        if focus.work is not None:
            self.hive.tasks.active.park(focus.work.task, parking.reason, parking.until)
            self._parked.add(focus.id)
        return {
            "waiting": parking.reason,
            "until": until,
            "next": "call again when the wait may be over; check_mailbox meanwhile",
        }

    def _record(self, focus: Focus, result: ToolResult) -> None:
        """Add the call to the task's conversation and trace, or to the agent's log if no task is in focus."""
        if focus.work is None:
            fields = {"kind": "turn", "time": round(time.time(), 3), "agent": self.name, "by": "mcp"}
            self._log.note(mask_values({**fields, "about": focus.subject, "calls": [result.as_record()]}))
            return
        step = None if focus.step is None else focus.step.id
        focus.work.conversation.add_turn(Thought(actions=(result.call,)), [result], step=step)
        lease = None if focus.step is None else self.hive.leases.get(focus.step.id)
        is_own_step = lease is None or lease.holder_agent_id == self.name  # another agent's step is left alone
        focus.work.note_actions([result], focus.step if is_own_step else None)

    def _finish_call(self, focus: Focus, tool: str) -> None:
        work = focus.work
        if work is not None and not work.is_ended and tool in self.tools and not self.tools[tool].is_read_only:
            work.commit()
            note_branches(self.hive, work)
        if work is not None and (work.is_ended or work.handed_to):
            self._scheduler.active_tasks.drop(work)
            self.task = next((task_run.task.id for task_run in self.task_runs()), None)
        state = "idle" if self.task is None else "working"
        step = focus.step.step.path if focus.step is not None and self.task is not None else None
        self._status.update(state=state, task=self.task, step=step, last_action=tool)

    # life

    def beat(self) -> None:
        """Record a heartbeat and renew leases. Put tasks back into the inbox that a member has kept too long without a request.
        Called every second, from any thread. Raises HiveGone."""
        check_hive_exists(self._lock, self.hive.layout)
        self._status.beat()
        leases = self.hive.leases.list(self.name)
        for lease in leases:
            try:
                renew_lease(self.hive, self.name, lease.step_id, lease.generation)
            except HivemindError as error:  # another agent took the step; this member's next write is refused
                _log.warning("%s: %s", self.name, error)
        if leases:
            record_heartbeat(self.hive.journal, self.hive.layout, self.name)
        now, limit = time.monotonic(), self.hive.config.mcp.return_after
        if self.requests:
            self._last_request_at = now
        elif limit is not None and now - self._last_request_at >= limit:
            self._return_tasks()
        if now - self._last_return_check >= _RETURN_CHECK_S:
            self._last_return_check = now
            return_tasks(self.hive)

    def _return_tasks(self) -> None:
        """Put all tasks back into the inbox, because the client has left while the server runs on."""
        for work in list(self.task_runs()):
            self._scheduler.active_tasks.drop(work)
            self.hive.tasks.release(work.task)
            self.hive.journal.append(
                "task.returned", task_id=work.task.id, agent_id=self.name, reason=f"the client of {self.name} has left"
            )
        if self.task is not None:
            self.task = None
            self._status.update(state="idle", task=None, step=None)
            ring_all(self.hive)

    def stop(self) -> None:
        """Make a running command end. May be called from another thread."""
        self._stopping = True

    def close(self) -> None:
        """Leave the hive: release leases and reservations. The agent keeps its tasks for its next start."""
        if not self._lock.is_current():
            self._pulse.close()
            self._lock.release()
            return
        self._status.update(state="stopping")
        self._pulse.close()
        self._scheduler.close()
        self._status.update(state="exited", task=None, step=None)
        journal_exit(self.hive.journal, self.name, self.incarnation, by="itself")
        self._lock.release()
