"""Calls that can be made as they stand: what an error suggests, what a capsule proposes (seed 002)."""

from __future__ import annotations

from typing import Any

from hivemind.layout import HUMAN

__all__ = ["Call", "call", "claim_call", "look_call", "tool_call"]

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
