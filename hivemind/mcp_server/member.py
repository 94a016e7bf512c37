"""A member of the hive whose mind sits in another program: its name, its mailbox, its tasks, its leases."""

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
from hivemind.fs import make_folder, time_tells
from hivemind.mail import Mail
from hivemind.masking import masked
from hivemind.minds import Thought, ToolCall, ToolResult
from hivemind.presence.agent_log import AgentLog
from hivemind.presence.heartbeat import Heartbeat
from hivemind.presence.identity import HiveGone, announce, announce_life, check_here, farewell, lease_step, take_name
from hivemind.presence.parts import Parts
from hivemind.presence.status import StatusFile
from hivemind.presence.watching import ring_all
from hivemind.swarm.absence import return_tasks
from hivemind.taskrun.conversation import INTERRUPTED
from hivemind.taskrun.focus import Focus, focus_on
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import Parking
from hivemind.tools import Session, Tool, ToolProblem, allowed_tools
from hivemind.tools.excerpt import LONGEST
from hivemind.tools.tool import for_mind

__all__ = ["Arrivals", "HiveGone", "Member"]

_log = logging.getLogger(__name__)
_BEAT_S = 1.0
_LOOK_S = 10.0
_ON_A_STEP = frozenset(
    {
        "add_card", "add_evidence", "ask_human", "block_step", "finish_step", "note_step", "run_command", "verify_step", "wait",
    }
)  # fmt: skip
"""Tools that change a step: its lease is taken first, as the runtime does for an agent."""
_OF_THE_MAILBOX = frozenset({"check_mailbox", "read_mail"})


class Arrivals:
    """The new messages of one mailbox, each told once. A look at an unchanged mailbox is one question to the file system."""

    def __init__(self, mail: Mail, name: str) -> None:
        self._box = mail.boxes.get(name)
        self._seen: set[str] = set()
        self._mark = 0

    def count(self) -> int:
        """How many have come since the last call, and are not read yet; at the first call, how many lie unread in new/."""
        try:
            changed = os.stat(self._box.new).st_mtime_ns
        except OSError:  # no mailbox yet, or none any more
            return 0
        if changed == self._mark:
            return 0
        self._mark = changed if time_tells(changed) else 0
        names = set(self._box.names(True))
        come = len(names - self._seen)
        self._seen = names
        return come


class Member:
    """One agent of the hive, used by a client. All its methods are for one thread, but `beat`.

    It holds the agent's name while it lives, and journals `agent.started … exited`: killed, it is buried by whoever meets it
    (README.md), and its leases and reservations are void from then on.
    """

    def __init__(self, hive: Parts, name: str, profile: str = "core") -> None:
        """Join the hive. Raises UserError if there is no such agent, HeldLock if a process has its name already."""
        self.hive, self.name = hive, name
        self.config = hive.agent_files.get(name, " --mind mcp")
        self.tools: dict[str, Tool] = allowed_tools(self.config, profile)
        self._lock = take_name(hive.layout, name)
        self.incarnation = announce(hive.journal, name, os.getpid())
        try:
            self._settle_in()
        except BaseException:
            farewell(hive.journal, name, self.incarnation, by="itself")
            self._lock.release()
            raise

    def _settle_in(self) -> None:
        hive, name = self.hive, self.name
        self.folder = hive.layout.agent_state(name)
        make_folder(self.folder, durable=hive.config.durable)
        hive.mail.ensure(name)
        self._status = StatusFile(self.folder, name)
        self._status.update(incarnation=self.incarnation, mind="mcp", state="idle")
        self._log = AgentLog(self.folder)
        self._arrivals = Arrivals(hive.mail, name)
        self._pulse = Heartbeat(self.beat, min(_BEAT_S, hive.config.hang_after / 4))
        self._scheduler = Scheduler(hive, name, self.incarnation)
        self._scheduler.active_tasks.resume()
        self._parked = {work.task.id for work in self.works() if work.task.parked is not None}
        self._heard: set[str] = set()
        self.task: str | None = next((work.task.id for work in self.works()), None)
        """The task that its tools work on."""
        self._stopping = False
        self.requests = 1
        """Requests of its client that are under way: over HTTP none, or some; on standard input it is there all the time."""
        self._heard_at = self._looked_at = time.monotonic()
        return_tasks(hive)

    # what its tools ask of it (InHand)

    def works(self) -> Collection[TaskRun]:
        return self._scheduler.active_tasks.runs

    def claim(self, task_id: str | None = None) -> TaskRun | None:
        return self._scheduler.active_tasks.claim(task_id)

    def turn_to(self, work: TaskRun) -> None:
        self.task = work.task.id

    # calls

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Use a tool, and log it. Raises what the tool refuses (HivemindError); that it must wait is an answer.

        Mail that has come since the last answer is counted in it, as `new_mail`. Raises HiveGone.
        """
        check_here(self._lock, self.hive.layout)
        self._listen()
        focus = self._focus(tool, arguments)
        if focus.work is not None and focus.id in self._parked:
            self.hive.tasks.unpark(focus.work.task)
            self._parked.discard(focus.id)
        call = ToolCall(tool, dict(arguments))
        outcome = ToolResult.failed(call, INTERRUPTED)
        began = time.monotonic()
        try:
            result = self._use(tool, arguments, focus)
            outcome = ToolResult(call, self.tools[tool].shown(result, LONGEST), small_values_of(result))
        except Parking as parking:
            result = self._waits(focus, parking)
            outcome = ToolResult(call, f"waiting: {parking.reason}", result)
        except Exception as error:
            problem = for_mind(error, self.tools) if isinstance(error, HivemindError) else f"the tool broke: {error!r}"
            outcome = ToolResult.failed(call, str(problem))
            raise
        finally:
            self._record(focus, replace(outcome, seconds=time.monotonic() - began))
            self._after(focus, tool)
        come = self._arrivals.count()
        return {**result, "new_mail": come} if come and tool not in _OF_THE_MAILBOX else result

    def _listen(self) -> None:
        """Let the tasks that wait hear the mail that has come: a verdict, an answer. It stays unread for the client."""
        if not self._parked:
            return
        mail = self.hive.mail
        for entry in list(mail.boxes.get(self.name).entries()):
            if entry.base in self._heard or not mail.reader.settled(entry):
                continue
            self._heard.add(entry.base)
            try:
                message = mail.read(self.name, entry.base, mark=False)
            except UserError as error:  # no message, or deleted this moment
                _log.warning("%s: %s", self.name, error)
            else:
                self._scheduler.deliver(message)

    def _use(self, name: str, arguments: Mapping[str, Any], focus: Focus) -> dict[str, Any]:
        tool = self.tools.get(name)
        if tool is None:
            if name in allowed_tools(self.config, "full"):
                raise ToolProblem(
                    f"there is no tool {name!r} in this profile", remedy="hivemind mcp --profile full has it"
                )
            raise ToolProblem(f"there is no tool {name!r}", remedy="tools/list names those that there are")
        work, step = focus.work, focus.step
        if name in _ON_A_STEP and work is not None and step is not None:
            work.lease = lease_step(self.hive, step.id, self.name)
        return tool.call(self._session(focus), arguments)

    def _session(self, focus: Focus) -> Session:
        return Session(
            hive=self.hive, agent=self.name, config=self.config, focus=focus, pulse=self._pulse,
            stopping=lambda: self._stopping, tools=self.tools, in_hand=self,
            recall=lambda *asked: answer(WorkingMemory(self.hive, self.name, read_only=True), focus, lambda _: False, *asked),
        )  # fmt: skip

    def _focus(self, tool: str, arguments: Mapping[str, Any]) -> Focus:
        """The task in hand at the step that a call names, else at its first open one; nothing, if none is in hand."""
        for known in list(self.works()):
            if not known.task.path.exists():  # a person has moved it away: it is not ours any more
                self._scheduler.active_tasks.drop(known)
        work = next((one for one in self.works() if one.task.id == self.task), None)
        if work is None:
            return Focus("claim_task")
        work.hear()
        own_name = self.tools[tool].arguments.own_name if tool in self.tools else str
        asked = next((value for name, value in arguments.items() if own_name(name) == "step"), None)
        named = work.step(asked) if isinstance(asked, str) else None
        return focus_on(work) if named is None else Focus("finish_step", work=work, step=named)

    def _waits(self, focus: Focus, parking: Parking) -> dict[str, Any]:
        """The task rests: said to the client, and to whoever asks for the hive's status."""
        until = None if parking.until is None else parking.until.isoformat()
        if focus.work is not None:
            self.hive.tasks.park(focus.work.task, parking.reason, parking.until)
            self._parked.add(focus.id)
        return {
            "waiting": parking.reason,
            "until": until,
            "next": "call again when it may be over; check_mailbox meanwhile",
        }

    def _record(self, focus: Focus, result: ToolResult) -> None:
        """The call for the task's conversation and trace, or for the agent's own log."""
        if focus.work is None:
            now = {"kind": "turn", "time": round(time.time(), 3), "agent": self.name, "by": "mcp"}
            self._log.note(masked({**now, "about": focus.target, "calls": [result.as_record()]}))
            return
        step = None if focus.step is None else focus.step.id
        focus.work.conversation.took(Thought(actions=(result.call,)), [result], step=step)
        lease = None if focus.step is None else self.hive.leases.get(focus.step.id)
        mine = lease is None or lease.holder_agent_id == self.name  # a step of another's is not written to
        focus.work.trace([result], focus.step if mine else None)

    def _after(self, focus: Focus, tool: str) -> None:
        work = focus.work
        if work is not None and not work.ended and tool in self.tools and not self.tools[tool].reads:
            work.commit()
        if work is not None and (work.ended or work.handed):
            self._scheduler.active_tasks.drop(work)
            self.task = next((one.task.id for one in self.works()), None)
        state = "idle" if self.task is None else "working"
        step = focus.step.step.path if focus.step is not None and self.task is not None else None
        self._status.update(state=state, task=self.task, step=step, last_action=tool)

    # life

    def beat(self) -> None:
        """A sign of life, once a second: what it holds is renewed before it ages. May be called from the pulse's thread.

        Raises HiveGone.
        """
        check_here(self._lock, self.hive.layout)
        self._status.beat()
        held = self.hive.leases.list(self.name)
        for lease in held:
            try:
                renew_lease(self.hive, self.name, lease.step_id, lease.generation)
            except (
                HivemindError
            ) as error:  # taken over this very moment: the write that follows is refused, and says so
                _log.warning("%s: %s", self.name, error)
        if held:
            announce_life(self.hive.journal, self.hive.layout, self.name)
        now, limit = time.monotonic(), self.hive.config.mcp.return_after
        if self.requests:
            self._heard_at = now
        elif limit is not None and now - self._heard_at >= limit:
            self._give_back()
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            return_tasks(self.hive)

    def _give_back(self) -> None:
        """Its client has left, and the server stays: what is in hand goes back to the inbox."""
        for work in list(self.works()):
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
        """End a command that runs, if one does. May be called from another thread."""
        self._stopping = True

    def close(self) -> None:
        """Leave the hive: leases and reservations are given back, tasks in hand stay this agent's for the next time."""
        if not self._lock.is_current():
            self._pulse.close()
            self._lock.release()
            return
        self._status.update(state="stopping")
        self._pulse.close()
        self._scheduler.close()
        self._status.update(state="exited", task=None, step=None)
        farewell(self.hive.journal, self.name, self.incarnation, by="itself")
        self._lock.release()
