"""All scenarios, by name."""

from __future__ import annotations

from .budgets import BUDGETS, HAND_OVER
from .coordination import LEASES, RESERVATIONS
from .hostile import HOSTILE
from .landing import LANDING
from .letters import LETTERS, POST
from .member import MEMBER
from .scenario import Scenario
from .stores import DOCUMENTS, MEMORY
from .tasks import TASKS
from .turn import TURN

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        TASKS,
        LETTERS,
        POST,
        LEASES,
        RESERVATIONS,
        MEMORY,
        DOCUMENTS,
        MEMBER,
        BUDGETS,
        HAND_OVER,
        TURN,
        HOSTILE,
        LANDING,
    )
}
