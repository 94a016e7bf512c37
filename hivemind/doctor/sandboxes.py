"""The sandbox that agents' files ask for: whether there can be one on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient
from hivemind.errors import UserError
from hivemind.tools.sandbox import check_sandbox

__all__ = ["check_sandboxes"]


def check_sandboxes(patient: Patient) -> Iterator[Finding]:
    """Whether bubblewrap runs here, if an agent's commands are to run in it: else each of them is refused."""
    asking = [
        name for name, config in (patient.agents.known if patient.agents else {}).items() if config.sandbox == "bwrap"
    ]
    if not asking:
        return
    try:
        check_sandbox()
    except UserError as error:
        whose = asking[0] if len(asking) == 1 else f"{asking[0]} and {len(asking) - 1} more"
        what = f"{error.what}: every command of {whose} is refused"
        yield Finding("sandbox", patient.layout.relative(patient.layout.agents), what, error.mend or "")
