"""What a step says of itself, checked before it is written (spec 3, *Steps*)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.coordination.errors import CoordinationError
from hivemind.coordination.step import CHECKPOINTS, PROOF_MODES
from hivemind.errors import UserError
from hivemind.names import check_name

__all__ = ["check_checkpoints", "check_task", "definition", "refused"]

_FIELDS = ("title", "success_criteria", "tests", "proof", "meta")


def refused(what: str, mend: str | None = None) -> CoordinationError:
    """The error for an argument that makes no sense."""
    return CoordinationError(what, code="INVALID_ARGUMENT", mend=mend)


def check_task(task_id: object) -> str:
    """The task's id, in the one form that names have."""
    try:
        return check_name(task_id, "task id")
    except UserError as error:
        raise refused(error.what, error.mend) from None


def check_checkpoints(names: str | Iterable[str]) -> tuple[str, ...]:
    """The checkpoints named, in their fixed order. Raises CoordinationError for one that there is not, or for none."""
    given = {names} if isinstance(names, str) else set(names)
    if unknown := sorted(str(name) for name in given if name not in CHECKPOINTS):
        raise refused(f"{unknown[0]!r} is no checkpoint", f"there are: {', '.join(CHECKPOINTS)}")
    return tuple(name for name in CHECKPOINTS if name in given)


def _title(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise refused("a step has a title")
    return value.strip()


def _lines(name: str, value: object) -> list[str]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Iterable):
        raise refused(f"{name} of a step is a list of texts")
    lines = [line for line in value if isinstance(line, str)]
    if len(lines) < len(list(value)):
        raise refused(f"{name} of a step is a list of texts")
    return [line.strip() for line in lines if line.strip()]


def _meta(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise refused("meta of a step is a mapping")
    try:
        with boundary("meta"):
            found: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except Unreadable as error:
        raise refused(f"meta of a step is no JSON ({error.__cause__})") from None
    return found


def definition(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a step that are given, as they stand in the log. Raises CoordinationError (`INVALID_ARGUMENT`)."""
    if unknown := [key for key in given if key not in _FIELDS]:
        raise refused(f"a step has no field {unknown[0]!r}", f"it has: {', '.join(_FIELDS)}")
    found: dict[str, Any] = {}
    if "title" in given:
        found["title"] = _title(given["title"])
    for name in ("success_criteria", "tests"):
        if name in given:
            found[name] = _lines(name, given[name])
    if "proof" in given:
        if given["proof"] not in PROOF_MODES:
            raise refused(f"{given['proof']!r} is no proof mode", f"there are: {', '.join(PROOF_MODES)}")
        found["proof"] = given["proof"]
    if given.get("meta"):
        found["meta"] = _meta(given["meta"])
    return found
