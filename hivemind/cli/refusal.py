"""What the rules of working together refuse: its line, JSON and exit status, and what is proposed as commands (spec 3)."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, boundary
from hivemind.cli.output import as_document, say
from hivemind.cli.text import one_line

if TYPE_CHECKING:
    from hivemind.coordination import CoordinationError

__all__ = ["as_command", "tell_refusal"]

_FAILED, _WRONG_USE = 1, 2
_LOOK_AT_LEASE, _READ_MAIL = "hive.leases.get(", "hive.mail.read("
_NOT_NOW = frozenset(
    {
        "STEP_LEASE_HELD", "STEP_LEASE_NOT_HELD", "STALE_GENERATION", "REVISION_MISMATCH", "CHECKPOINTS_NOT_CONFIRMED",
        "PROOF_REQUIRED", "WRONG_STATUS", "RESERVATION_HELD",
    }
)  # fmt: skip
"""What is refused because its moment is not right; the others can never be granted as they stand."""


def tell_refusal(error: CoordinationError, arguments: argparse.Namespace) -> tuple[str, int]:
    """(the line for standard error, the exit status); with --json the error goes to standard output as well.

    The status is 1 where the call was right but its moment was not (held, not held, stale, not confirmed), and 2 where
    it can never be granted as it stands.
    """
    if getattr(arguments, "json", False):
        say(as_document(error.as_dict()))
        sys.stdout.flush()
    return _line(error, arguments), _FAILED if error.code in _NOT_NOW else _WRONG_USE


def _line(error: CoordinationError, arguments: argparse.Namespace) -> str:
    """`CODE: where: what; mend; command, or command` on one line."""
    as_python = ", or ".join(str(one["call"]) for one in error.suggestions)
    asked = {"agent": getattr(arguments, "agent", None), "hive": getattr(arguments, "hive", None)}
    parts = [error.what if error.where is None else f"{error.where}: {error.what}"]
    if error.mend and error.mend != as_python:
        parts.append(error.mend)
    if error.suggestions:
        parts.append(", or ".join(as_command(one, **asked) for one in error.suggestions))
    return " ".join(f"{error.code}: {'; '.join(parts)}".split())


def as_command(call: Mapping[str, Any], *, agent: str | None, task: str | None = None, hive: str | None = None) -> str:
    """The command that does the same for `agent` in the hive at `hive`, its words quoted for a shell.

    What has no command, because only an agent can do it, is said in words: `its agent calls finish_step: step t.s1`.
    """
    words = _words(call, agent, task)
    if words is None:
        return _in_words(call, agent)
    return shlex.join(["hivemind", *([] if hive is None else ["--hive", hive]), *words])


def _in_words(call: Mapping[str, Any], agent: str | None) -> str:
    asked = dict(call.get("arguments") or {}).items()
    told = ", ".join(
        f"{name} {' and '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in asked
    )
    return one_line(f"{agent or 'its agent'} calls {call.get('tool')}{': ' if told else ''}{told}")


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
    if tool == "reply_mail":
        return ["mail", "reply", "human", str(asked["id"]), str(asked["body"])]
    if tool == "check_mailbox" and str(call.get("call", "")).startswith(_READ_MAIL):
        with suppress(Unreadable), boundary("call"):
            return ["mail", "read", *shlex.split(str(call["call"])[len(_READ_MAIL) : -1].replace(",", " "))]
    if tool == "check_mailbox":
        return ["mail", "list", *([] if agent is None else [agent])]
    if tool == "list_files" and asked == {"path": "tasks/inbox"}:
        return ["task", "list", "--state", "inbox"]
    if tool == "publish" and task is not None and agent is not None:
        return ["graph", "publish", task, str(asked["card"]), *_by(agent)]
    return None


def _by(agent: str | None) -> list[str]:
    return [] if agent is None else ["--agent", agent]
