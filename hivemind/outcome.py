"""The outcome of a task: its state when work on it stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["done", "failed", "parked"]
"""A task that is done or failed is over; a parked one waits, and continues."""

ENDED: tuple[Outcome, ...] = ("done", "failed")
"""The outcomes of a task that is over, which are also the names of the folders in which these tasks are."""

OUTCOME_FILES: Mapping[str, str] = {"done": "result.md", "failed": "error.md", "parked": "task.md"}
"""The file in a task's folder that a person reads to learn more."""
