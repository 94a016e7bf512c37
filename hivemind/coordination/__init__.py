"""Coordination: the journal and the tables computed from it: steps, their leases, lanes (each agent's drafts), reserved paths."""

from __future__ import annotations

from hivemind.coordination.commits import Commits
from hivemind.coordination.coordinates import FOCUS, CoordinateResolver, Coordinates
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
from hivemind.coordination.lanes import SHARED_LANE, check_agent, check_lane, is_lane_visible, lane_of
from hivemind.coordination.leases import StepLeases
from hivemind.coordination.reservations import Reservations, escape, overlap
from hivemind.coordination.state import JournalState
from hivemind.coordination.step import Receipt, Step, receipts_of
from hivemind.coordination.steps import Steps
from hivemind.coordination.workspace import check_workspace, fingerprint, load_workspace

__all__ = [
    "FOCUS",
    "SHARED_LANE",
    "Call",
    "CheckpointsNotConfirmed",
    "Commits",
    "CoordinateResolver",
    "Coordinates",
    "CoordinationError",
    "Event",
    "Journal",
    "JournalState",
    "ProjectGuardMismatch",
    "ProofRequired",
    "Receipt",
    "Reservation",
    "ReservationHeld",
    "Reservations",
    "RevisionMismatch",
    "StaleGeneration",
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
    "is_lane_visible",
    "lane_of",
    "load_workspace",
    "look_call",
    "overlap",
    "receipts_of",
    "tool_call",
]
