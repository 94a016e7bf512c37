"""A step, the atom of attention (seed 002, invariant 3), the receipts that prove it, and what a caller may say of one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType, NoneType
from typing import Any, Literal

from hivemind.boundary import Unreadable, boundary
from hivemind.coordination.errors import CoordinationError
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.names import check_name

_PLACEHOLDER = re.compile(r"<[^<>]*>|.*<fill\b.*|todo\b.*|\.{3}|…|", re.IGNORECASE | re.DOTALL)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


@frozen
class Receipt:
    """A command that was run (`CMD`, its text) or a thing to look at (`LINK`, a URL or a path within the hive)."""

    kind: Literal["CMD", "LINK"]
    text: str
    exit_status: int | None = None
    output_digest: str | None = None
    ci: bool = False
    digest: str | None = None

    @property
    def counts(self) -> bool:
        """False for what proves nothing: a placeholder, a link that leads nowhere, a command that failed."""
        if _PLACEHOLDER.fullmatch(self.text.strip()):
            return False
        if self.kind == "CMD":
            return self.exit_status in (None, 0)
        return _leads_somewhere(self.text.strip())

    @property
    def against(self) -> bool:
        """True for a command that failed: evidence against."""
        return self.kind == "CMD" and self.exit_status not in (None, 0)

    def as_dict(self) -> dict[str, Any]:
        """The receipt as it stands in the log: only the fields that are set."""
        found: dict[str, Any] = {"kind": self.kind, "text": self.text}
        for name in ("exit_status", "output_digest", "digest"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if self.ci:
            found["ci"] = True
        return found


Evidence = Receipt | Mapping[str, Any]


def _leads_somewhere(text: str) -> bool:
    if "://" in text:
        return _URL.fullmatch(text) is not None
    return text.isprintable() and not text.startswith("/") and ".." not in text.split("/")


_RECEIPT_TYPES: dict[str, tuple[type, ...]] = {
    "kind": (str,), "text": (str,), "exit_status": (int, NoneType), "output_digest": (str, NoneType),
    "digest": (str, NoneType), "ci": (bool,),
}  # fmt: skip


def _fault(given: Mapping[str, Any]) -> str | None:
    for name in sorted({"kind", "text", *map(str, given)}):
        if name not in _RECEIPT_TYPES:
            return f"has an unknown field {name!r}"
        if type(given.get(name)) not in _RECEIPT_TYPES[name]:
            return f"has the {name} {given.get(name)!r}"
    return None if given["kind"].upper() in ("CMD", "LINK") else f"has the kind {given['kind']!r}, it is CMD or LINK"


def receipts_of(evidence: Evidence | Iterable[Evidence]) -> tuple[Receipt, ...]:
    """The receipts among what a caller gave, one or many. Raises CoordinationError (`INVALID_RECEIPT`)."""
    many = (evidence,) if isinstance(evidence, Receipt | Mapping) else tuple(evidence)
    found = []
    for given in many:
        if isinstance(given, Receipt):
            given = given.as_dict()
        fault = _fault(given) if isinstance(given, Mapping) else "is no mapping"
        if fault:
            raise CoordinationError(
                f"a receipt {fault}",
                code="INVALID_RECEIPT",
                mend="{kind: CMD, text, exit_status, output_digest, ci} or {kind: LINK, text, digest}",
            )
        found.append(Receipt(**{**given, "kind": str(given["kind"]).upper()}))
    return tuple(found)


def proof_gap(receipts: Iterable[Receipt]) -> Literal["PROOF_MISSING", "PROOF_WEAK"] | None:
    """What the proof lacks: everything, one of the two kinds, or nothing (None)."""
    kinds = {receipt.kind for receipt in receipts if receipt.counts}
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
    """One step of a task, as the journal has made it.

    `position` counts from 1 within the task and orders its steps; `revision` goes up by one with each change.
    `confirmed` are the checkpoints that were verified, `linked` those that a note or a receipt names; `warnings` are
    what closing it found wanting (`PROOF_MISSING`, `PROOF_WEAK`); `meta` is the maker's own.
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
        """Where the step stands in its task: its position, as text."""
        return str(self.position)

    @property
    def task_id(self) -> str:
        return self.task

    @property
    def commands(self) -> tuple[Receipt, ...]:
        """The receipts of the commands that were run for it, in order."""
        return tuple(one for one in self.evidence if one.kind == "CMD")

    @property
    def checkpoints(self) -> dict[str, bool]:
        """Every checkpoint, and whether it is confirmed."""
        return {name: name in self.confirmed for name in CHECKPOINTS}

    def needed(self, named: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The checkpoints that closing the step needs: criteria and tests always; the others once a note or a receipt
        names them, in proof mode `require`, or because the caller names them (spec 3, *Steps*)."""
        if self.proof == "require":
            return CHECKPOINTS
        return tuple(name for name in CHECKPOINTS if name in (*ALWAYS_NEEDED, *self.linked, *named))

    def lacking(self, named: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Those of them that are not confirmed yet."""
        return tuple(name for name in self.needed(named) if name not in self.confirmed)


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
    lines: list[Any] = [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [value]
    if not all(isinstance(line, str) for line in lines):
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
