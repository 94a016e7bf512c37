"""What can be refused, each with a code, a one-line message and calls that help (spec 3, *Step lease*)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hivemind.coordination.entries import StepLease
from hivemind.errors import UserError
from hivemind.layout import HUMAN

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


class _LeaseRefusal(CoordinationError):
    """Of one step's lease: look at it, then claim it."""

    def __init__(self, what: str, step_id: str, agent_id: str | None, lease: StepLease | None) -> None:
        claim = claim_call(step_id, agent_id, None if lease is None else lease.holder_agent_id)
        super().__init__(what, suggestions=(look_call(step_id), claim))


class StepLeaseHeld(_LeaseRefusal):
    """Another agent, the `holder`, holds the step. `lease` is its lease."""

    code = "STEP_LEASE_HELD"

    def __init__(self, lease: StepLease, agent_id: str | None) -> None:
        self.lease, self.holder = lease, lease.holder_agent_id
        asked = "a call without an agent_id" if agent_id is None else agent_id
        what = f"step {lease.step_id} is leased by {self.holder}, not by {asked}"
        super().__init__(what, lease.step_id, agent_id, lease)


class StepLeaseNotHeld(_LeaseRefusal):
    """A renewal or a release of a lease that the agent does not hold (any more)."""

    code = "STEP_LEASE_NOT_HELD"

    def __init__(self, step_id: str, agent_id: str, lease: StepLease | None) -> None:
        held = "nobody holds it" if lease is None else f"{lease.holder_agent_id} holds it"
        super().__init__(f"{agent_id} holds no active lease of step {step_id}: {held}", step_id, agent_id, lease)


class StaleGeneration(_LeaseRefusal):
    """A write shows a generation of the lease that has passed: its sender was paused while the lease moved on."""

    code = "STALE_GENERATION"

    def __init__(self, step_id: str, agent_id: str | None, shown: int, lease: StepLease | None) -> None:
        now = "has ended" if lease is None else f"is at generation {lease.generation} now"
        what = f"generation {shown} of the lease of step {step_id} has passed: the lease {now}"
        super().__init__(what, step_id, agent_id, lease)


class _StepRefusal(CoordinationError):
    """Of one step, said in words: look at it, then what else is proposed."""

    def __init__(self, step_id: str, what: str, *proposed: Call, mend: str | None = None) -> None:
        look = call("resume", {"step": step_id}, "steps.get", step_id)
        super().__init__(f"step {step_id} {what}", mend=mend, suggestions=(look, *proposed))


class RevisionMismatch(_StepRefusal):
    """The step has changed since the caller last saw it."""

    code = "REVISION_MISMATCH"


class CheckpointsNotConfirmed(_StepRefusal):
    """A step that still lacks confirmations cannot be closed."""

    code = "CHECKPOINTS_NOT_CONFIRMED"


class ProofRequired(_StepRefusal):
    """The step's proof mode is `require` and no receipt counts as proof."""

    code = "PROOF_REQUIRED"


class WrongStatus(_StepRefusal):
    """A call that does not fit the step's status: closing a closed step, unblocking one that is not blocked."""

    code = "WRONG_STATUS"


class UnknownStep(CoordinationError):
    """There is no such step (or it was deleted)."""

    code = "UNKNOWN_STEP"

    def __init__(self, step_id: object) -> None:
        super().__init__(f"there is no step {step_id!r}", suggestions=(call("resume", {}, "steps.list"),))


class ReservationHeld(CoordinationError):
    """A path that is asked for could also match what another agent, the `holder`, has reserved."""

    code = "RESERVATION_HELD"

    def __init__(self, pattern: str, other: str, holder: str) -> None:
        self.holder = holder
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
