"""The calls that errors and capsules propose, as a person can type them (spec 3, *Step lease*, *Capsule*)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

__all__ = ["as_command"]

_LOOK_AT_LEASE = "hive.leases.get("


def as_command(call: Mapping[str, Any], *, agent: str | None, task: str | None = None, hive: str | None = None) -> str:
    """The command that does the same for `agent` in the hive at `hive`; without one, the call as Python on an open hive.

    The words are quoted for a shell. A tool that only an agent has (`add_card(…)`) stays as it is.
    """
    words = _words(call, agent, task)
    if words is None:
        return str(call.get("call", call.get("tool", "")))
    return shlex.join(["hivemind", *([] if hive is None else ["--hive", hive]), *words])


def _words(call: Mapping[str, Any], agent: str | None, task: str | None) -> list[str] | None:
    tool, asked = call.get("tool"), dict(call.get("arguments") or {})
    if tool == "resume" and str(call.get("call", "")).startswith(_LOOK_AT_LEASE):
        return ["lease", "list"]
    if tool == "resume" and asked.keys() <= {"step", "view"}:
        options = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
        return ["view", "resume", *options, *_by(agent)]
    if tool == "signals":
        return ["view", "signals", *([] if task is None else [task]), *_by(agent)]
    if tool == "claim_step":
        force = ["--force"] if asked.get("force") else []
        return ["lease", "claim", str(asked["step"]), *_by(agent or "human"), *force]
    if tool == "check_mailbox":
        return ["mail", "list", *([] if agent is None else [agent])]
    if tool == "list_files" and asked == {"path": "tasks/inbox"}:
        return ["task", "list", "--state", "inbox"]
    if tool == "publish" and task is not None and agent is not None:
        return ["graph", "publish", task, str(asked["card"]), *_by(agent)]
    return None


def _by(agent: str | None) -> list[str]:
    return [] if agent is None else ["--agent", agent]
