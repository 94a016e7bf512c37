"""Rows of the state's tables: leases, reservations, agents and tasks."""

from __future__ import annotations

from hivemind.frozen import frozen

DEFAULT_TTL_SEQ = 200
MAX_TTL_SEQ = 10_000


@frozen
class StepLease:
    """The right to change a step. `acquired_seq` and `expires_seq` are numbers of journal events, never times.

    `generation` rises by one with each new holder and never falls. A write with an older generation comes from a holder
    that was paused while its lease got another holder. A lease does not promise that its holder is alive, or that no one takes it
    over by force. It only promises that writes of a former holder are refused.
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
    """The right to write to paths in the hive (globs). It ends by release or with its holder. `id` is its event's seq."""

    id: int
    agent_id: str
    patterns: tuple[str, ...]
    shared: bool = False
    reason: str | None = None


@frozen
class AgentEntry:
    """An agent's newest event. `state` is started or exited, `incarnation` counts the agent's processes."""

    agent_id: str
    incarnation: int
    state: str
    seq: int


@frozen
class TaskEntry:
    """A task's newest `task.*` event. `state` is the last word of the event's kind (claimed, done, failed…).

    `record_digests` are the two digests that the task's record may have: before and after its last write.
    `outcome_digest` is the digest of the result or error that was about to be written. `addition_count` counts the
    additions to the task's text.
    """

    task: str
    state: str
    agent_id: str | None
    seq: int
    title: str | None = None
    record_digests: tuple[str, ...] = ()
    outcome_digest: str | None = None
    addition_count: int = 0

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")
