"""The context in which a tool is called: the hive, the agent, set by the runtime, and the task or message in focus."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from hivemind.config import AgentConfig
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.mail import Message
from hivemind.outcome import ENDED
from hivemind.presence.heartbeat import Heartbeat
from hivemind.presence.parts import Parts
from hivemind.taskrun.agent_git import Worktree
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.taskrun.task_run import TaskRun
from hivemind.tasks import TaskStep

_MAKING_S = 600.0  # to fill a worktree; its set-up has the limits of a command


class MemberTasks(Protocol):
    """The tasks of a member (MCP). A member chooses its tasks itself."""

    def task_runs(self) -> Collection[TaskRun]:
        """Return the tasks that the member has claimed."""
        ...

    def claim(self, task_id: str | None = None) -> TaskRun | None:
        """Claim the next task for the member, or the task of that id. Return None if no task can be claimed."""
        ...

    def set_focus(self, work: TaskRun) -> None:
        """Put the task into focus."""
        ...


class ContextTool(Protocol):
    """A tool as a tool context uses it; `hivemind.tools.Tool` is one."""

    @property
    def is_read_only(self) -> bool: ...
    def call(self, context: ToolContext, arguments: Mapping[str, Any]) -> dict[str, Any]: ...
    def render(self, result: Mapping[str, Any], limit_chars: int) -> str: ...
    def mcp_entry(self) -> dict[str, Any]: ...


@frozen
class ToolContext:
    """The context of an agent's tool calls. No argument of a tool can change the agent. `stopping` returns True once the agent's
    process should end. `call_id` identifies the call. With `shows_pictures` the mind sees the pictures that it reads. `recall`
    takes a question and a number of tokens, and returns what the agent knows about the question."""

    hive: Parts
    agent: str
    config: AgentConfig
    focus: Focus
    pulse: Heartbeat
    stopping: Callable[[], bool]
    tools: Mapping[str, ContextTool]
    member_tasks: MemberTasks | None = None
    call_id: str | None = None
    shows_pictures: bool = False
    recall: Callable[[str, int], Mapping[str, Any]] | None = None

    def for_call(self, call_id: str | None) -> ToolContext:
        """Return the context of one call. The ids of new mail and tasks derive from `call_id`, so a repeated call creates nothing
        twice."""
        return replace(self, call_id=call_id or None)

    def call_key(self, tool: str, arguments: BaseModel) -> str:
        """Return a key that stays the same if the call is repeated after a crash: the call's id in the conversation. For a call
        without an id it is a digest of the arguments."""
        if self.call_id is not None:
            return self.call_id
        return hashlib.sha256(f"{tool} {arguments.model_dump_json()}".encode()).hexdigest()[:16]

    @property
    def work(self) -> TaskRun:
        """The task in focus. Raises UserError if no task is in focus."""
        if self.focus.work is None:
            focus_note = "there is none" if self.focus.message is None else "a message is in focus"
            raise UserError(f"this needs a task in focus, and {focus_note}{self._last_end()}")
        return self.focus.work

    def _last_end(self) -> str:
        """Return how a member's last task ended, for a client that lost the answer of finish_task. Return "" if there is no such
        task."""
        if self.member_tasks is None:
            return ""
        tasks = (task for state in ENDED for task in self.hive.tasks.list(state, limit=100))
        last = max((task for task in tasks if task.owner == self.agent), key=lambda task: task.since, default=None)
        relative = self.hive.layout.relative
        return "" if last is None else f"; your last task, {last.id}, is {last.state} ({relative(last.path)})"

    @property
    def traceparent(self) -> str | None:
        """The trace span of the task in focus (a W3C `traceparent`); None without a task."""
        return None if self.focus.work is None else self.focus.work.task.traceparent

    @property
    def worktrees(self) -> tuple[Worktree, ...]:
        """The worktrees of the task in focus, which may not exist yet; tools work in the first."""
        return () if self.focus.work is None else self.focus.work.worktrees.planned

    def enter(self, *roots: Path, work: TaskRun | None = None) -> tuple[Worktree, ...]:
        """Return the task's worktrees of these `roots`, by default of all, and make those that are missing. The task is
        `work`, by default the one in focus. Raises UserError."""
        worktrees = (work or self.work).worktrees
        if worktrees.is_ready(*roots):
            return worktrees.ready(*roots)
        with self.pulse.busy(_MAKING_S + self.config.limits.wall_s):
            return worktrees.ready(*roots)

    @property
    def own_tasks(self) -> MemberTasks:
        """The tasks that this member chooses itself. Raises UserError for an agent: the runtime chooses its tasks."""
        if self.member_tasks is None:
            raise UserError("the runtime claims this agent's tasks")
        return self.member_tasks

    def step_authority(self, step: PlannedStep) -> dict[str, Any]:
        """Return the arguments that authorise a change of a step: the agent, and the generation of the step's lease.

        Sync the graph first, because events of the journal must not refer to cards that are not on the disk.
        """
        if self.owns(step):
            self.work.trail.sync()
            return self.work.step_authority(step.id)
        lease = self.hive.leases.get(step.id)
        is_holder = lease is not None and lease.holder_agent_id == self.agent
        return {"agent_id": self.agent, "generation": lease.generation if is_holder and lease else None}

    def owns(self, step: PlannedStep) -> bool:
        """Return True if the step is part of the task in focus. False means that the agent has leased a step of another task."""
        return self.focus.work is not None and self.focus.work.task.id == step.step.task

    @property
    def message(self) -> Message:
        """The message in focus. Raises UserError if no message is in focus."""
        if self.focus.message is None:
            raise UserError("this needs a message in focus, and a task is in focus")
        return self.focus.message

    def step(self, step_id: str | None) -> PlannedStep:
        """Return the step of that id, by default the step in focus.

        Raises UserError for a step of another task, unless this agent has its lease.
        """
        target_id = step_id or (self.focus.step.id if self.focus.step else None)
        if (
            target_id is not None
            and self.focus.work is not None
            and (step := self.focus.work.step(target_id)) is not None
        ):
            return step
        lease = None if target_id is None else self.hive.leases.get(target_id)
        if lease is None or lease.holder_agent_id != self.agent:
            scope = "that you have leased" if self.focus.work is None else f"of task {self.focus.work.task.id}"
            message = (
                f"no step is named, and none is in focus{self._last_end()}"
                if target_id is None
                else f"{target_id!r} is no step {scope}"
            )
            raise UserError(message, remedy="claim_step leases a step of another task")
        leased_step = self.hive.steps.get(lease.step_id)
        return PlannedStep(
            leased_step,
            TaskStep(leased_step.title, success_criteria=leased_step.success_criteria, tests=leased_step.tests),
        )
