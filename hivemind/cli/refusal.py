"""Report a CoordinationError: one line, JSON, the exit status, and its suggestions as commands to type."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hivemind.cli.output import as_json, print_line
from hivemind.cli.text import one_line
from hivemind.errors import FAILED, WRONG_USE

if TYPE_CHECKING:
    from hivemind.coordination import CoordinationError

_LEASE_LOOKUP = "hive.leases.get("
_TEMPORARY_CODES = frozenset(
    {
        "STEP_LEASE_HELD", "STEP_LEASE_NOT_HELD", "STALE_GENERATION", "REVISION_MISMATCH", "CHECKPOINTS_NOT_CONFIRMED",
        "PROOF_REQUIRED", "WRONG_STATUS", "RESERVATION_HELD",
    }
)  # fmt: skip
"""Error codes of calls that may succeed later. Calls refused with other codes must be changed first."""


def report_refusal(error: CoordinationError, arguments: argparse.Namespace) -> tuple[str, int]:
    """Return the error's line for standard error and its exit status. If the command has --json, also print the error
    to standard output as JSON.

    The status is 1 if the same call may succeed later (held, not held, stale, not confirmed), otherwise 2.
    """
    if getattr(arguments, "json", False):
        print_line(as_json(error.as_dict(), 1))
        sys.stdout.flush()
    return _line(error, arguments), FAILED if error.code in _TEMPORARY_CODES else WRONG_USE


def _line(error: CoordinationError, arguments: argparse.Namespace) -> str:
    """Return `CODE: location: message; remedy; command, or command` on one line."""
    as_python = ", or ".join(str(suggestion["call"]) for suggestion in error.suggestions)
    options = {"agent": getattr(arguments, "agent", None), "hive": getattr(arguments, "hive", None)}
    parts = [error.message if error.location is None else f"{error.location}: {error.message}"]
    if error.remedy and error.remedy != as_python:
        parts.append(error.remedy)
    if error.suggestions:
        parts.append(", or ".join(_as_command(suggestion, **options) for suggestion in error.suggestions))
    return " ".join(f"{error.code}: {'; '.join(parts)}".split())


def _as_command(call: Mapping[str, Any], *, agent: str | None, hive: str | None) -> str:
    """Return the equivalent shell command of a suggested call, for `agent` in the hive at `hive`.

    A call that only agents can make has no command and is described: `its agent calls finish_step: step t.s1`.
    """
    tool, arguments = call.get("tool"), dict(call.get("arguments") or {})
    agent_option = [] if agent is None else ["--agent", agent]
    if tool == "resume" and str(call.get("call", "")).startswith(_LEASE_LOOKUP):
        words = ["lease", "list"]
    elif tool == "resume":
        words = [
            "view",
            "resume",
            *(word for name, value in arguments.items() for word in (f"--{name}", str(value))),
            *agent_option,
        ]
    elif tool == "claim_step":
        force = ["--force"] if arguments.get("force") else []
        words = ["lease", "claim", str(arguments["step"]), *(agent_option or ["--agent", "human"]), *force]
    else:
        argument_texts = (
            f"{name} {' and '.join(map(str, argument)) if isinstance(argument, list) else argument}"
            for name, argument in arguments.items()
        )
        return one_line(f"{agent or 'its agent'} calls {tool}{': ' if arguments else ''}{', '.join(argument_texts)}")
    return shlex.join(["hivemind", *([] if hive is None else ["--hive", hive]), *words])
