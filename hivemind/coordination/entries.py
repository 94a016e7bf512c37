"""What the journal tells of leases, reservations, agents, tasks and branches: the rows of the state's tables (spec 3)."""

from __future__ import annotations

from hivemind.frozen import frozen

DEFAULT_TTL_SEQ = 200
MAX_TTL_SEQ = 10_000


@frozen
class StepLease:
    """Who holds a step. `acquired_seq` and `expires_seq` are numbers of journal events, never times.

    `generation` goes up by one each time the step gets a (new) holder and never comes down: a write that shows an older
    one comes from a holder that was paused while its lease passed on. What a lease does not promise: that its holder is
    alive, or that nobody takes it over by force. It only promises that a holder who lost it changes nothing.
    """

    step_id: str
    holder_agent_id: str
    acquired_seq: int
    expires_seq: int
    generation: int

    def active(self, now_seq: int) -> bool:
        """True while `now_seq < expires_seq`; `now_seq` is the seq of the newest event."""
        return now_seq < self.expires_seq


@frozen
class Reservation:
    """Paths within the hive that `agent_id` works on, as globs. Ends with its holder; `id` is the seq of its event."""

    id: int
    agent_id: str
    patterns: tuple[str, ...]
    shared: bool = False
    reason: str | None = None


@frozen
class AgentEntry:
    """An agent as its own events tell: `state` is started or exited, `incarnation` counts its lives."""

    agent_id: str
    incarnation: int
    state: str
    seq: int


@frozen
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
