"""What the rules of working together refuse: its line, JSON and exit status, and what is proposed as commands (spec 3)."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hivemind.cli.output import as_document, say
from hivemind.cli.text import one_line
from hivemind.errors import FAILED, WRONG_USE

if TYPE_CHECKING:
    from hivemind.coordination import CoordinationError

_LOOK_AT_LEASE = "hive.leases.get("
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
    return _line(error, arguments), FAILED if error.code in _NOT_NOW else WRONG_USE


def _line(error: CoordinationError, arguments: argparse.Namespace) -> str:
    """`CODE: where: what; mend; command, or command` on one line."""
    as_python = ", or ".join(str(one["call"]) for one in error.suggestions)
    asked = {"agent": getattr(arguments, "agent", None), "hive": getattr(arguments, "hive", None)}
    parts = [error.what if error.where is None else f"{error.where}: {error.what}"]
    if error.mend and error.mend != as_python:
        parts.append(error.mend)
    if error.suggestions:
        parts.append(", or ".join(_as_command(one, **asked) for one in error.suggestions))
    return " ".join(f"{error.code}: {'; '.join(parts)}".split())


def _as_command(call: Mapping[str, Any], *, agent: str | None, hive: str | None) -> str:
    """The command that does the same for `agent` in the hive at `hive`, its words quoted for a shell.

    What has no command, because only an agent can do it, is said in words: `its agent calls finish_step: step t.s1`.
    """
    tool, given = call.get("tool"), dict(call.get("arguments") or {})
    by = [] if agent is None else ["--agent", agent]
    if tool == "resume" and str(call.get("call", "")).startswith(_LOOK_AT_LEASE):
        words = ["lease", "list"]
    elif tool == "resume":
        words = ["view", "resume", *(word for name, value in given.items() for word in (f"--{name}", str(value))), *by]
    elif tool == "claim_step":
        force = ["--force"] if given.get("force") else []
        words = ["lease", "claim", str(given["step"]), *(by or ["--agent", "human"]), *force]
    else:
        shown = (
            f"{name} {' and '.join(map(str, one)) if isinstance(one, list) else one}" for name, one in given.items()
        )
        return one_line(f"{agent or 'its agent'} calls {tool}{': ' if given else ''}{', '.join(shown)}")
    return shlex.join(["hivemind", *([] if hive is None else ["--hive", hive]), *words])
