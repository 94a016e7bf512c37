"""A healthy hive to make ill, and the doctor's visit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.doctor import DoctorContext, DoctorFinding, FixOutcome, apply_fixes, examine

Visit = Callable[[], list[DoctorFinding]]
Treatment = Callable[[], list[FixOutcome]]


@pytest.fixture
def hive(tmp_path: Path) -> Hive:
    """Two agents, everything in its place."""
    (tmp_path / "agents").mkdir()
    for name in ("researcher", "reviewer"):
        (tmp_path / "agents" / f"{name}.yaml").write_text(f"role: {name}\n")
    (tmp_path / "hive.yaml").write_text("version: 1\ndurability: relaxed\n")
    hive = Hive.open(tmp_path)
    for name in ("human", *hive.agents):
        hive.mail.ensure(name)
    return hive


@pytest.fixture
def visit(hive: Hive) -> Visit:
    """Return the findings to mend, without notes."""
    return lambda: [finding for finding in examine(DoctorContext(hive.layout)) if not finding.note]


@pytest.fixture
def treatment(hive: Hive) -> Treatment:
    """Mend all findings as far as possible."""

    def mend() -> list[FixOutcome]:
        patient = DoctorContext(hive.layout)
        return [fix for fix in apply_fixes(patient, examine(patient)) if not fix.finding.note]

    return mend


@pytest.fixture
def litter(hive: Hive) -> Visit:
    """Return the harmless findings that can be tidied away."""
    return lambda: [row for row in examine(DoctorContext(hive.layout)) if row.note and row.fix is not None]
