"""A step: the atom of attention (seed 002, invariant 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from hivemind.coordination.receipt import Receipt

__all__ = ["ALWAYS_NEEDED", "CHECKPOINTS", "PROOF_MODES", "Proof", "Step", "StepStatus"]

Proof = Literal["off", "warn", "require"]
StepStatus = Literal["open", "done", "blocked"]
PROOF_MODES = ("off", "warn", "require")
CHECKPOINTS = ("criteria", "tests", "security", "perf", "docs")
ALWAYS_NEEDED = ("criteria", "tests")
_NO_META: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a task, as the journal up to `changed_seq` has made it.

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
    added_seq: int = 0
    changed_seq: int = 0
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
