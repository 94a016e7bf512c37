"""Errors of coordination, each with a code, a one-line message and suggested calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hivemind.coordination.entries import StepLease
from hivemind.errors import UserError
from hivemind.layout import HUMAN

Call = dict[str, Any]
"""`{tool, arguments, call}`: a tool with its arguments for a mind, and the same call as Python on an open hive."""


def call(tool: str, arguments: dict[str, Any], method: str, *positional: object, **keywords: object) -> Call:
    """Return a call to suggest, both as the call of a tool and as Python. `method` is an attribute path on a hive
    (`leases.claim`).
    """
    argument_texts = [repr(value) for value in positional] + [f"{name}={value!r}" for name, value in keywords.items()]
    return {"tool": tool, "arguments": arguments, "call": f"hive.{method}({', '.join(argument_texts)})"}


def tool_call(tool: str, arguments: dict[str, Any]) -> Call:
    """Return a call to suggest that only an agent can make, because the tool works on the agent's focus."""
    argument_text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return {"tool": tool, "arguments": arguments, "call": f"{tool}({argument_text})"}


def look_call(step_id: str) -> Call:
    """Return the call that shows a step and its lease."""
    return call("resume", {"step": step_id}, "leases.get", step_id)


def claim_call(step_id: str, agent_id: str | None, holder: str | None = None) -> Call:
    """Return the call with which an agent, or the operator (None), gets the lease of a step.

    If another agent is the `holder`, the operator claims the step by force, and an agent asks the holder by mail.
    """
    agent, arguments = agent_id or HUMAN, {"step": step_id}
    if holder in (None, agent):
        return call("claim_step", arguments, "leases.claim", step_id, agent)
    if agent == HUMAN:
        return call("claim_step", {**arguments, "force": True}, "leases.claim", step_id, agent, force=True)
    return tool_call("send_mail", {"to": [holder], "subject": f"When are you done with step {step_id}?"})


class CoordinationError(UserError):
    """A rule of coordination refuses a call. No event was written.

    `code` names the rule. `suggestions` are complete calls: the first call shows the state, the next call changes it.
    """

    code = "COORDINATION"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        location: object = None,
        remedy: str | None = None,
        suggestions: Iterable[Call] = (),
    ) -> None:
        self.code = code or type(self).code
        self.suggestions = tuple(suggestions)
        if remedy is None and self.suggestions:
            remedy = ", or ".join(str(suggestion["call"]) for suggestion in self.suggestions)
        super().__init__(message, location=location, remedy=remedy)

    def as_dict(self) -> dict[str, object]:
        """Return code, message and suggestions, for JSON."""
        return {"code": self.code, "message": str(self), "suggestions": list(self.suggestions)}


class _LeaseRefusal(CoordinationError):
    """An error about a step's lease. Suggests looking at the lease, then claiming it."""

    def __init__(self, message: str, step_id: str, agent_id: str | None, lease: StepLease | None) -> None:
        claim = claim_call(step_id, agent_id, None if lease is None else lease.holder_agent_id)
        super().__init__(message, suggestions=(look_call(step_id), claim))


class StepLeaseHeld(_LeaseRefusal):
    """Another agent, `holder`, has the step's `lease`."""

    code = "STEP_LEASE_HELD"

    def __init__(self, lease: StepLease, agent_id: str | None) -> None:
        self.lease, self.holder = lease, lease.holder_agent_id
        caller = "the caller, which passed no agent_id" if agent_id is None else agent_id
        message = f"step {lease.step_id} is leased by {self.holder}, not by {caller}"
        super().__init__(message, lease.step_id, agent_id, lease)


class StepLeaseNotHeld(_LeaseRefusal):
    """An agent renews or releases a lease that it does not hold."""

    code = "STEP_LEASE_NOT_HELD"

    def __init__(self, step_id: str, agent_id: str, lease: StepLease | None) -> None:
        holder_text = "nobody holds it" if lease is None else f"{lease.holder_agent_id} holds it"
        super().__init__(f"{agent_id} holds no active lease of step {step_id}: {holder_text}", step_id, agent_id, lease)


class StaleGeneration(_LeaseRefusal):
    """The generation of a write is out of date: its sender was paused while the lease got another holder."""

    code = "STALE_GENERATION"

    def __init__(self, step_id: str, agent_id: str | None, generation: int, lease: StepLease | None) -> None:
        lease_text = "has ended" if lease is None else f"is at generation {lease.generation} now"
        message = f"generation {generation} of the lease of step {step_id} is out of date: the lease {lease_text}"
        super().__init__(message, step_id, agent_id, lease)


class _StepRefusal(CoordinationError):
    """An error about a step. Suggests looking at the step, then `next_calls`."""

    def __init__(self, step_id: str, problem: str, *next_calls: Call, remedy: str | None = None) -> None:
        look_step = call("resume", {"step": step_id}, "steps.get", step_id)
        super().__init__(f"step {step_id} {problem}", remedy=remedy, suggestions=(look_step, *next_calls))


class RevisionMismatch(_StepRefusal):
    """The step has changed since the caller last saw it."""

    code = "REVISION_MISMATCH"


class CheckpointsNotConfirmed(_StepRefusal):
    """The step cannot be closed yet: some checkpoints are not confirmed."""

    code = "CHECKPOINTS_NOT_CONFIRMED"


class ProofRequired(_StepRefusal):
    """The step's proof mode is `require`, and the step has no valid receipt."""

    code = "PROOF_REQUIRED"


class WrongStatus(_StepRefusal):
    """The call does not fit the step's status: it closes a closed step, or unblocks an open one."""

    code = "WRONG_STATUS"


class UnknownStep(CoordinationError):
    """The step does not exist, or was deleted."""

    code = "UNKNOWN_STEP"

    def __init__(self, step_id: object) -> None:
        super().__init__(f"step {step_id!r} does not exist", suggestions=(call("resume", {}, "steps.list"),))


class ReservationHeld(CoordinationError):
    """A requested path overlaps a path that another agent, `holder`, has reserved."""

    code = "RESERVATION_HELD"

    def __init__(self, requested_pattern: str, reserved_pattern: str, holder: str) -> None:
        self.holder = holder
        super().__init__(
            f"{requested_pattern!r} overlaps {reserved_pattern!r}, which {holder} has reserved",
            remedy=f"wait until {holder} releases it, write somewhere else, or ask {holder} by mail",
            suggestions=(
                tool_call("send_mail", {"to": [holder], "subject": f"When are you done with {reserved_pattern}?"}),
            ),
        )


class ProjectGuardMismatch(CoordinationError):
    """The state folder belongs to another project."""

    code = "PROJECT_GUARD_MISMATCH"


class WorkspaceLocked(CoordinationError):
    """The state folder belongs to another workspace."""

    code = "WORKSPACE_LOCKED"
