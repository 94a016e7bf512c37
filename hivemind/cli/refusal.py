"""What the rules of working together refuse: the line, the JSON and the exit status that it makes (spec 3)."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hivemind.cli.call import as_command
from hivemind.cli.output import print_json

if TYPE_CHECKING:
    from hivemind.coordination import CoordinationError

__all__ = ["tell_refusal"]

_FAILED, _WRONG_USE = 1, 2


def tell_refusal(error: CoordinationError, arguments: argparse.Namespace) -> tuple[str, int]:
    """(the line for standard error, the exit status); with --json the error goes to standard output as well.

    The status is 1 where the call was right but its moment was not (held, not held, stale, not confirmed), and 2 where
    it can never be granted as it stands.
    """
    if getattr(arguments, "json", False):
        print_json(error.as_dict())
        sys.stdout.flush()
    return _line(error, arguments), _FAILED if _by_the_rules(error) else _WRONG_USE


def _by_the_rules(error: CoordinationError) -> bool:
    from hivemind import coordination as rules

    return isinstance(
        error,
        rules.StepLeaseHeld
        | rules.StepLeaseNotHeld
        | rules.StaleGeneration
        | rules.RevisionMismatch
        | rules.CheckpointsNotConfirmed
        | rules.ProofRequired
        | rules.WrongStatus
        | rules.ReservationHeld,
    )


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
