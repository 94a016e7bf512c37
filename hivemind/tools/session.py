"""What a tool works with: the identity that the runtime set, the hive, and what is in focus."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol

from pydantic import BaseModel

from hivemind.config import AgentConfig
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.mail import Message
from hivemind.presence.heartbeat import Heartbeat
from hivemind.presence.parts import Parts
from hivemind.taskrun.agent_git import Worktree
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.taskrun.task_run import TaskRun
from hivemind.tasks import TaskStep


class InHand(Protocol):
    """The tasks that a member of the hive has in hand, where it chooses them itself (MCP)."""

    def works(self) -> Collection[TaskRun]:
        """Those that it has."""
        ...

    def claim(self, task_id: str | None = None) -> TaskRun | None:
        """Claim the next one, or a certain one; None if there is nothing for it."""
        ...

    def turn_to(self, work: TaskRun) -> None:
        """The tools work on that one from now on."""
        ...


class SessionTool(Protocol):
    """A tool as its callers use it: `hivemind.tools.Tool`."""

    @property
    def reads(self) -> bool: ...
    def call(self, session: Session, arguments: Mapping[str, Any]) -> dict[str, Any]: ...
    def shown(self, result: Mapping[str, Any], limit_chars: int) -> str: ...
    def listed(self) -> dict[str, Any]: ...


@frozen
class Session:
    """One agent using tools on one focus. No argument of a tool can change who it is. `stopping` says whether its process was
    told to end. `call_id` names the call, `shows_pictures`
    says that its mind is shown those that it reads; `recall` finds what this agent knows about a question, in so many tokens."""

    hive: Parts
    agent: str
    config: AgentConfig
    focus: Focus
    pulse: Heartbeat
    stopping: Callable[[], bool]
    tools: Mapping[str, SessionTool]
    in_hand: InHand | None = None
    call_id: str | None = None
    shows_pictures: bool = False
    recall: Callable[[str, int], Mapping[str, Any]] | None = None

    def for_call(self, call_id: str | None) -> Session:
        """The same for one call: what it makes (mail, tasks) can be known by the call's id, and is made once."""
        return replace(self, call_id=call_id or None)

    def call_key(self, tool: str, arguments: BaseModel) -> str:
        """What names the call under way, the same when it is made again after a crash: its id in the conversation, or,
        where calls have none, what is asked."""
        if self.call_id is not None:
            return self.call_id
        return hashlib.sha256(f"{tool} {arguments.model_dump_json()}".encode()).hexdigest()[:16]

    @property
    def work(self) -> TaskRun:
        """The task in focus. Raises UserError if there is none."""
        if self.focus.work is None:
            what = "nothing is" if self.focus.message is None else "a message is"
            raise UserError(f"this needs a task in focus, and {what}")
        return self.focus.work

    @property
    def trees(self) -> tuple[Worktree, ...]:
        """The worktrees of the task in focus; its tools work in the first. Raises UserError if one cannot be made."""
        return () if self.focus.work is None else self.focus.work.worktrees.ready()

    @property
    def hand(self) -> InHand:
        """The tasks that this member chooses itself. Raises UserError for an agent whose tasks the runtime chooses."""
        if self.in_hand is None:
            raise UserError("the runtime claims this agent's tasks")
        return self.in_hand

    def shown(self, step: PlannedStep) -> dict[str, Any]:
        """What a change of a step has to show: who makes it, and the generation of the lease that it holds.

        The journal will rest on what was found: that is on the disk first.
        """
        if self.owns(step):
            self.work.trail.sync()
            return self.work.shown(step.id)
        lease = self.hive.leases.get(step.id)
        held = lease is not None and lease.holder_agent_id == self.agent
        return {"agent_id": self.agent, "generation": lease.generation if held and lease else None}

    def owns(self, step: PlannedStep) -> bool:
        """True for a step of the task in focus, False for one of another's task whose lease was claimed."""
        return self.focus.work is not None and self.focus.work.task.id == step.step.task

    @property
    def message(self) -> Message:
        """The message in focus. Raises UserError if a task is."""
        if self.focus.message is None:
            raise UserError("this needs a message in focus, and a task is")
        return self.focus.message

    def step(self, step_id: str | None) -> PlannedStep:
        """The step named, or the one in focus: of the task in focus, or one whose lease this agent holds.

        Raises UserError for any other.
        """
        wanted = step_id or (self.focus.step.id if self.focus.step else None)
        if wanted is not None and self.focus.work is not None and (step := self.focus.work.step(wanted)) is not None:
            return step
        lease = None if wanted is None else self.hive.leases.get(wanted)
        if lease is None or lease.holder_agent_id != self.agent:
            where = "whose lease you hold" if self.focus.work is None else f"of task {self.focus.work.task.id}"
            what = "no step is named, and none is in focus" if wanted is None else f"{wanted!r} is no step {where}"
            raise UserError(what, remedy="claim_step takes a step of another's task")
        found = self.hive.steps.get(lease.step_id)
        return PlannedStep(found, TaskStep(found.title, success_criteria=found.success_criteria, tests=found.tests))
