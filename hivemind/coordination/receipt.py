"""Receipts: what proves that a step is done (spec 3, *Steps*)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hivemind.coordination.errors import CoordinationError

__all__ = ["Evidence", "Receipt", "proof_gap", "receipts_of"]

_PLACEHOLDER = re.compile(r"<[^<>]*>|.*<fill\b.*|todo\b.*|\.{3}|…|", re.IGNORECASE | re.DOTALL)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


@dataclass(frozen=True, slots=True)
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


def _fault(given: Mapping[str, Any]) -> str | None:
    known = {"kind", "text", "exit_status", "output_digest", "digest", "ci"}
    if unknown := sorted(str(key) for key in given if key not in known):
        return f"has an unknown field {unknown[0]!r}"
    if str(given.get("kind", "")).upper() not in ("CMD", "LINK"):
        return f"has the kind {given.get('kind')!r}, it is CMD or LINK"
    if not isinstance(given.get("text"), str):
        return "has no text"
    status = given.get("exit_status")
    if status is not None and (not isinstance(status, int) or isinstance(status, bool)):
        return f"has the exit_status {status!r}, it is a whole number"
    for name in ("output_digest", "digest"):
        if given.get(name) is not None and not isinstance(given[name], str):
            return f"has a {name} that is no text"
    if not isinstance(given.get("ci", False), bool):
        return "has a `ci` that is neither true nor false"
    return None


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
