"""All scenarios, by name."""

from __future__ import annotations

from .letters import LETTERS
from .scenario import Scenario
from .tasks import TASKS

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in (TASKS, LETTERS)}
