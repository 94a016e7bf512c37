"""The lease of one step: who works on it, and until when by the journal's own count (seed 002, *Step lease*)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_TTL_SEQ", "MAX_TTL_SEQ", "StepLease"]

DEFAULT_TTL_SEQ = 200
MAX_TTL_SEQ = 10_000


@dataclass(frozen=True, slots=True)
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
