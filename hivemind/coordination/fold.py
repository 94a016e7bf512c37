"""The fold: what each event does to the state. Deterministic, total, and reads no clock (spec 3, *Journal*)."""

from __future__ import annotations

from collections.abc import Iterable

from hivemind.coordination.fields import Apply
from hivemind.coordination.fold_leases import LEASE_FOLDS
from hivemind.coordination.fold_steps import STEP_FOLDS
from hivemind.coordination.fold_swarm import SWARM_FOLDS, fold_branch, fold_task
from hivemind.coordination.state import State
from hivemind.fs import Record

__all__ = ["FOLD_VERSION", "apply"]

FOLD_VERSION = 2
"""Goes up when the same log would fold to another state: snapshots of another version are not read."""

_FOLDS: dict[str, Apply] = {**LEASE_FOLDS, **STEP_FOLDS, **SWARM_FOLDS}
_FAMILIES = {"task": fold_task, "branch": fold_branch}


def apply(state: State, records: Iterable[Record]) -> None:
    """Bring the state up to the last of the records, which follow it without a gap.

    An event of a foreign kind counts as unknown; one of a known kind with unreadable fields counts as malformed. Both
    stay in the log and change nothing else, so that nothing anyone appends can make the log unreadable.
    """
    for record in records:
        kind: str = record["kind"]
        seq: int = record["seq"]
        fold = _FOLDS.get(kind)
        try:
            if fold is not None:
                fold(state, seq, record)
            elif (family := _FAMILIES.get(kind.partition(".")[0])) is not None:
                family(state, seq, kind, record)
            else:
                state.unknown += 1
        except Exception:  # the boundary of an event: whatever stands in its fields, it is counted and changes nothing
            state.malformed += 1
        state.seq = seq
