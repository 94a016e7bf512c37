"""Coordination: the journal and what folds out of it: steps, leases, lanes, reservations (spec 3)."""

from __future__ import annotations

from hivemind.coordination.errors import (
    CheckpointsNotConfirmed,
    CoordinationError,
    JournalDamaged,
    ProjectGuardMismatch,
    ProofRequired,
    ReservationHeld,
    RevisionMismatch,
    StaleGeneration,
    StepLeaseHeld,
    StepLeaseNotHeld,
    UnknownStep,
    WorkspaceLocked,
    WrongStatus,
)
from hivemind.coordination.event import Event
from hivemind.coordination.journal import Journal
from hivemind.coordination.lease import StepLease
from hivemind.coordination.leases import StepLeases
from hivemind.coordination.receipt import Receipt
from hivemind.coordination.state import State
from hivemind.coordination.step import Step
from hivemind.coordination.steps import Steps

__all__ = [
    "CheckpointsNotConfirmed",
    "CoordinationError",
    "Event",
    "Journal",
    "JournalDamaged",
    "ProjectGuardMismatch",
    "ProofRequired",
    "Receipt",
    "ReservationHeld",
    "RevisionMismatch",
    "StaleGeneration",
    "State",
    "Step",
    "StepLease",
    "StepLeaseHeld",
    "StepLeaseNotHeld",
    "StepLeases",
    "Steps",
    "UnknownStep",
    "WorkspaceLocked",
    "WrongStatus",
]
