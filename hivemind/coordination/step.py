"""Steps, the receipts that prove them, and the checks of a caller's arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from hivemind.boundary import Unreadable, as_dataclass, boundary
from hivemind.coordination.errors import CoordinationError
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.names import check_name
from hivemind.pattern import pattern

_PLACEHOLDER = pattern(r"<[^<>]*>|.*<fill\b.*|todo\b.*|\.{3}|…|", re.IGNORECASE | re.DOTALL)
_URL = pattern(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


@frozen
class Receipt:
    """A command that was run (`CMD`: its text) or a reference (`LINK`: a URL or a path within the hive)."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    kind: Literal["CMD", "LINK"]
    text: str
    exit_status: int | None = None
    output_digest: str | None = None
    ci: bool = False
    digest: str | None = None

    @property
    def is_proof(self) -> bool:
        """False for a placeholder, an invalid link or a failed command: these are not evidence."""
        if _PLACEHOLDER.fullmatch(self.text.strip()):
            return False
        if self.kind == "CMD":
            return self.exit_status in (None, 0)
        text = self.text.strip()
        if "://" in text:
            return _URL.fullmatch(text) is not None
        return text.isprintable() and not text.startswith("/") and ".." not in text.split("/")

    @property
    def is_counterevidence(self) -> bool:
        """True for a failed command."""
        return self.kind == "CMD" and self.exit_status not in (None, 0)

    def as_dict(self) -> dict[str, Any]:
        """Return the receipt as the log contains it: only the fields that are set."""
        values = {column.name: getattr(self, column.name) for column in fields(self)}
        return {name: value for name, value in values.items() if value is not None and value is not False}


Evidence = Receipt | Mapping[str, Any]


def receipts_of(evidence: Evidence | Iterable[Evidence]) -> tuple[Receipt, ...]:
    """Return `evidence`, one receipt or several, as Receipts. Raises CoordinationError (`INVALID_RECEIPT`)."""
    candidates = (evidence,) if isinstance(evidence, Receipt | Mapping) else tuple(evidence)
    receipts = []
    try:
        for candidate in candidates:
            with boundary("receipt"):
                values = dict(candidate.as_dict() if isinstance(candidate, Receipt) else candidate)
                receipts.append(as_dataclass(Receipt, {**values, "kind": values["kind"].upper()}, "receipt"))
    except Unreadable as error:
        remedy = "{kind: CMD, text, exit_status, output_digest, ci} or {kind: LINK, text, digest}"
        raise CoordinationError(error.message, code="INVALID_RECEIPT", remedy=remedy) from None
    return tuple(receipts)


def proof_gap(receipts: Iterable[Receipt]) -> Literal["PROOF_MISSING", "PROOF_WEAK"] | None:
    """Return PROOF_MISSING if no receipt is valid, PROOF_WEAK if there are only commands or only links, None if both
    are present.
    """
    kinds = {receipt.kind for receipt in receipts if receipt.is_proof}
    if not kinds:
        return "PROOF_MISSING"
    return "PROOF_WEAK" if len(kinds) == 1 else None


Proof = Literal["off", "warn", "require"]
StepStatus = Literal["open", "done", "blocked"]
PROOF_MODES = ("off", "warn", "require")
CHECKPOINTS = ("criteria", "tests", "security", "perf", "docs")
ALWAYS_NEEDED = ("criteria", "tests")
_NO_META: Mapping[str, Any] = MappingProxyType({})


@frozen
class Step:
    """One step of a task, computed from the journal.

    `position` counts from 1 and orders the task's steps. `revision` rises by one with each change. `confirmed` are the
    verified checkpoints, `linked` the checkpoints that a note or a receipt names. `warnings` are the proof gaps found
    when the step was closed (`PROOF_MISSING`, `PROOF_WEAK`). `meta` belongs to the caller that added the step.
    """

    id: str
    task: str
    position: int
    title: str
    success_criteria: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    proof: Proof = "off"
    status: StepStatus = "open"
    revision: int = 1
    confirmed: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    evidence: tuple[Receipt, ...] = ()
    warnings: tuple[str, ...] = ()
    blocked_reason: str | None = None
    meta: Mapping[str, Any] = field(default_factory=lambda: _NO_META, hash=False)

    @property
    def path(self) -> str:
        """The step's position in its task, as text."""
        return str(self.position)

    @property
    def command_receipts(self) -> tuple[Receipt, ...]:
        """The receipts of the commands that were run for the step, in order."""
        return tuple(receipt for receipt in self.evidence if receipt.kind == "CMD")

    @property
    def checkpoints(self) -> dict[str, bool]:
        """All checkpoints; True for the confirmed ones."""
        return {name: name in self.confirmed for name in CHECKPOINTS}

    def missing_checkpoints(self, requested: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the checkpoints that closing the step requires and that are not confirmed yet.

        Criteria and tests are always required; the others if a note, a receipt or the caller (`requested`) names them,
        or if the proof mode is `require`.
        """
        required = CHECKPOINTS if self.proof == "require" else (*ALWAYS_NEEDED, *self.linked, *requested)
        return tuple(name for name in CHECKPOINTS if name in required and name not in self.confirmed)


_FIELDS = ("title", "success_criteria", "tests", "proof", "meta")


def invalid_argument(message: str, remedy: str | None = None) -> CoordinationError:
    """Return the error for an invalid argument."""
    return CoordinationError(message, code="INVALID_ARGUMENT", remedy=remedy)


def check_task(task_id: object) -> str:
    """Return the task's id in normal form. Raises CoordinationError for an invalid id."""
    try:
        return check_name(task_id, "task id")
    except UserError as error:
        raise invalid_argument(error.message, error.remedy) from None


def check_checkpoints(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the checkpoints in their fixed order. Raises CoordinationError for an unknown one."""
    name_set = {names} if isinstance(names, str) else set(names)
    if unknown := sorted(str(name) for name in name_set if name not in CHECKPOINTS):
        raise invalid_argument(f"{unknown[0]!r} is not a checkpoint", f"use: {', '.join(CHECKPOINTS)}")
    return tuple(name for name in CHECKPOINTS if name in name_set)


def _check_lines(field_name: str, texts: object) -> list[str]:
    lines: list[Any] = [texts] if isinstance(texts, str) else list(texts) if isinstance(texts, Iterable) else [texts]
    if not all(isinstance(line, str) for line in lines):
        raise invalid_argument(f"{field_name} of a step must be a list of texts")
    return [line.strip() for line in lines if line.strip()]


def _check_meta(meta: object) -> dict[str, Any]:
    if not isinstance(meta, Mapping):
        raise invalid_argument("meta of a step must be a mapping")
    try:
        with boundary("meta"):
            plain_meta: dict[str, Any] = json.loads(json.dumps(dict(meta), allow_nan=False))
    except Unreadable as error:
        raise invalid_argument(f"meta of a step is not valid JSON ({error.__cause__})") from None
    return plain_meta


def check_definition(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked fields of a step's definition. Raises CoordinationError (`INVALID_ARGUMENT`)."""
    if unknown := [key for key in definition if key not in _FIELDS]:
        raise invalid_argument(f"a step has no field {unknown[0]!r}", f"it has: {', '.join(_FIELDS)}")
    checked_fields: dict[str, Any] = {}
    if "title" in definition:
        title = definition["title"]
        if not isinstance(title, str) or not title.strip():
            raise invalid_argument("a step must have a title")
        checked_fields["title"] = title.strip()
    for name in ("success_criteria", "tests"):
        if name in definition:
            checked_fields[name] = _check_lines(name, definition[name])
    if "proof" in definition:
        if definition["proof"] not in PROOF_MODES:
            raise invalid_argument(f"{definition['proof']!r} is not a proof mode", f"use: {', '.join(PROOF_MODES)}")
        checked_fields["proof"] = definition["proof"]
    if definition.get("meta"):
        checked_fields["meta"] = _check_meta(definition["meta"])
    return checked_fields
