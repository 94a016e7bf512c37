"""Coordination: the journal and what folds out of it: steps, leases, lanes, reservations (spec 3)."""

from __future__ import annotations

from hivemind.coordination.commits import Commits
from hivemind.coordination.coordinates import FOCUS, Coordinates, Place
from hivemind.coordination.entries import Reservation, StepLease
from hivemind.coordination.errors import (
    Call,
    CheckpointsNotConfirmed,
    CoordinationError,
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
    call,
    claim_call,
    look_call,
    tool_call,
)
from hivemind.coordination.journal import Event, Journal
from hivemind.coordination.lanes import SHARED, check_agent, check_lane, lane_of, lane_visible
from hivemind.coordination.leases import StepLeases
from hivemind.coordination.reservations import Reservations, escape, overlap
from hivemind.coordination.state import State
from hivemind.coordination.step import Receipt, Step, receipts_of
from hivemind.coordination.steps import Steps
from hivemind.coordination.workspace import check_workspace, fingerprint, load_workspace

__all__ = [
    "FOCUS",
    "SHARED",
    "Call",
    "CheckpointsNotConfirmed",
    "Commits",
    "Coordinates",
    "CoordinationError",
    "Event",
    "Journal",
    "Place",
    "ProjectGuardMismatch",
    "ProofRequired",
    "Receipt",
    "Reservation",
    "ReservationHeld",
    "Reservations",
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
    "call",
    "check_agent",
    "check_lane",
    "check_workspace",
    "claim_call",
    "escape",
    "fingerprint",
    "lane_of",
    "lane_visible",
    "load_workspace",
    "look_call",
    "overlap",
    "receipts_of",
    "tool_call",
]
