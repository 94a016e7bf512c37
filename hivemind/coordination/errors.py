"""What can be refused, each with a code, a one-line message and calls that help (spec 3, *Step lease*)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hivemind.coordination.entries import StepLease
from hivemind.errors import UserError
from hivemind.layout import HUMAN

__all__ = [
    "Call",
    "CheckpointsNotConfirmed",
    "CoordinationError",
    "ProjectGuardMismatch",
    "ProofRequired",
    "ReservationHeld",
    "RevisionMismatch",
    "StaleGeneration",
    "StepLeaseHeld",
    "StepLeaseNotHeld",
    "UnknownStep",
    "WorkspaceLocked",
    "WrongStatus",
    "call",
    "claim_call",
    "look_call",
    "tool_call",
]

Call = dict[str, Any]
"""`{tool, arguments, call}`: the tool with its arguments for a mind, and the same as Python on an open hive."""


def call(tool: str, arguments: dict[str, Any], method: str, *positional: object, **named: object) -> Call:
    """One call in both of its forms; `method` is the attribute path on a hive (`leases.claim`)."""
    shown = [repr(value) for value in positional] + [f"{name}={value!r}" for name, value in named.items()]
    return {"tool": tool, "arguments": arguments, "call": f"hive.{method}({', '.join(shown)})"}


def tool_call(tool: str, arguments: dict[str, Any]) -> Call:
    """One call of a tool that only an agent can make: it works on what the agent has in focus."""
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return {"tool": tool, "arguments": arguments, "call": f"{tool}({shown})"}


def look_call(step_id: str) -> Call:
    """Look at a step and at who holds it, changing nothing."""
    return call("resume", {"step": step_id}, "leases.get", step_id)


def claim_call(step_id: str, agent_id: str | None, holder: str | None = None) -> Call:
    """Claim a step's lease. From another `holder` a person takes it by force; an agent asks for it."""
    who, arguments = agent_id or HUMAN, {"step": step_id}
    if holder in (None, who):
        return call("claim_step", arguments, "leases.claim", step_id, who)
    if who == HUMAN:
        return call("claim_step", {**arguments, "force": True}, "leases.claim", step_id, who, force=True)
    return tool_call("send_mail", {"to": [holder], "subject": f"When are you done with step {step_id}?"})


class CoordinationError(UserError):
    """Something that the rules of working together refuse. Nothing was written.

    `code` names the rule, `suggestions` are calls that can be made as they stand: the first looks, the next one acts.
    """

    code = "COORDINATION"

    def __init__(
        self,
        what: str,
        *,
        code: str | None = None,
        where: object = None,
        mend: str | None = None,
        suggestions: Iterable[Call] = (),
    ) -> None:
        self.code = code or type(self).code
        self.suggestions = tuple(suggestions)
        if mend is None and self.suggestions:
            mend = ", or ".join(str(one["call"]) for one in self.suggestions)
        super().__init__(what, where=where, mend=mend)

    def as_dict(self) -> dict[str, object]:
        """The error as JSON gives it: code, message, suggestions."""
        return {"code": self.code, "message": str(self), "suggestions": list(self.suggestions)}


def _lease_calls(step_id: str, agent_id: str | None, lease: StepLease | None) -> tuple[Call, Call]:
    """Look at a step's lease, then claim it."""
    return look_call(step_id), claim_call(step_id, agent_id, None if lease is None else lease.holder_agent_id)


def _step_call(step_id: str) -> Call:
    return call("resume", {"step": step_id}, "steps.get", step_id)


class StepLeaseHeld(CoordinationError):
    """Another agent holds the step. `lease` is its lease."""

    code = "STEP_LEASE_HELD"

    def __init__(self, lease: StepLease, agent_id: str | None) -> None:
        self.lease, self.holder = lease, lease.holder_agent_id
        asked = "a call without an agent_id" if agent_id is None else agent_id
        super().__init__(
            f"step {lease.step_id} is leased by {self.holder} to event {lease.expires_seq}, not by {asked}",
            suggestions=_lease_calls(lease.step_id, agent_id, lease),
        )


class StepLeaseNotHeld(CoordinationError):
    """A renewal or a release of a lease that the agent does not hold (any more)."""

    code = "STEP_LEASE_NOT_HELD"

    def __init__(self, step_id: str, agent_id: str, lease: StepLease | None) -> None:
        self.lease = lease
        held = "nobody holds it" if lease is None else f"{lease.holder_agent_id} holds it"
        super().__init__(
            f"{agent_id} holds no active lease of step {step_id}: {held}",
            suggestions=_lease_calls(step_id, agent_id, lease),
        )


class StaleGeneration(CoordinationError):
    """A write shows a generation of the lease that has passed: its sender was paused while the lease moved on."""

    code = "STALE_GENERATION"

    def __init__(self, step_id: str, agent_id: str | None, shown: int, lease: StepLease | None) -> None:
        self.shown = shown
        self.current = None if lease is None else lease.generation
        now = "has ended" if lease is None else f"is at generation {lease.generation} now"
        super().__init__(
            f"generation {shown} of the lease of step {step_id} has passed: the lease {now}",
            suggestions=_lease_calls(step_id, agent_id, lease),
        )


class RevisionMismatch(CoordinationError):
    """The step has changed since the caller last saw it."""

    code = "REVISION_MISMATCH"

    def __init__(self, step_id: str, expected: int, current: int) -> None:
        self.expected, self.current = expected, current
        super().__init__(
            f"step {step_id} is at revision {current}, not {expected}",
            suggestions=(_step_call(step_id),),
        )


class CheckpointsNotConfirmed(CoordinationError):
    """A step that still lacks confirmations cannot be closed. `missing` names the checkpoints."""

    code = "CHECKPOINTS_NOT_CONFIRMED"

    def __init__(self, step_id: str, missing: tuple[str, ...], agent_id: str | None) -> None:
        self.missing = missing
        named = {} if agent_id is None else {"agent_id": agent_id}
        super().__init__(
            f"step {step_id} is not confirmed for: {', '.join(missing)}",
            suggestions=(
                _step_call(step_id),
                call(
                    "verify_step",
                    {"step": step_id, "checkpoints": list(missing)},
                    "steps.verify",
                    step_id,
                    checkpoints=missing,
                    **named,
                ),
            ),
        )


class ProofRequired(CoordinationError):
    """The step's proof mode is `require` and no receipt counts as proof."""

    code = "PROOF_REQUIRED"

    def __init__(self, step_id: str, why: str) -> None:
        super().__init__(
            f"step {step_id} needs a proof: {why}",
            mend="run a command that shows it, quote a source, or write a file for the step",
            suggestions=(_step_call(step_id),),
        )


class UnknownStep(CoordinationError):
    """There is no such step (or it was deleted)."""

    code = "UNKNOWN_STEP"

    def __init__(self, step_id: object) -> None:
        super().__init__(f"there is no step {step_id!r}", suggestions=(call("resume", {}, "steps.list"),))


class WrongStatus(CoordinationError):
    """A call that does not fit the step's status: closing a closed step, unblocking one that is not blocked."""

    code = "WRONG_STATUS"

    def __init__(self, step_id: str, status: str, needs: str) -> None:
        self.status = status
        super().__init__(
            f"step {step_id} is {status}, this needs it {needs}",
            suggestions=(_step_call(step_id),),
        )


class ReservationHeld(CoordinationError):
    """A path that is asked for could also match what another agent has reserved."""

    code = "RESERVATION_HELD"

    def __init__(self, pattern: str, other: str, holder: str) -> None:
        self.pattern, self.other, self.holder = pattern, other, holder
        super().__init__(
            f"{pattern!r} meets {other!r}, which {holder} has reserved",
            mend=f"wait until {holder} releases it, write somewhere else, or ask {holder} by mail",
            suggestions=(tool_call("send_mail", {"to": [holder], "subject": f"When are you done with {other}?"}),),
        )


class ProjectGuardMismatch(CoordinationError):
    """This state belongs to another project."""

    code = "PROJECT_GUARD_MISMATCH"


class WorkspaceLocked(CoordinationError):
    """This state belongs to another workspace."""

    code = "WORKSPACE_LOCKED"
