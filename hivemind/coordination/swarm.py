"""What else the journal says: agents, their focus, tasks and branches (spec 3, *Events*, *Coordinates*)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AgentEntry", "BranchEntry", "Focus", "TaskEntry"]


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """An agent as its own events tell: `state` is started or exited, `incarnation` counts its lives."""

    agent_id: str
    incarnation: int
    state: str
    seq: int


@dataclass(frozen=True, slots=True)
class Focus:
    """Where an agent last said it is working: a task, and a step of it if it named one."""

    agent_id: str
    task: str | None
    step: str | None
    seq: int


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """The newest `task.*` event of a task; `state` is that event's last word (added, claimed, done, failed…).

    `records` are the digests that the task's record may have, the one before the last write and that of the write; `end`
    is the digest of the result or error that was about to be written; `said` counts what people added to its text.
    """

    task: str
    state: str
    agent_id: str | None
    seq: int
    title: str | None = None
    records: tuple[str, ...] = ()
    end: str | None = None
    said: int = 0

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class BranchEntry:
    """A branch of a task's graph, as `branch.*` events tell; `base_seq` is a number of the task's own log."""

    task: str
    name: str
    base: str | None
    base_seq: int | None
    state: str
    agent_id: str | None
    seq: int
