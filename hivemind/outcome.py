"""The outcome of a task: its state when work on it stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["done", "failed", "parked"]
"""The outcome of a task. A done or failed task is over; a parked task waits, and continues later."""

ENDED: tuple[Outcome, ...] = ("done", "failed")
"""The outcomes of a task that is over. The folders of these tasks have the same names."""

OUTCOME_FILES: Mapping[str, str] = {"done": "result.md", "failed": "error.md", "parked": "task.md"}
"""The file in a task's folder that tells a person more about the outcome."""
