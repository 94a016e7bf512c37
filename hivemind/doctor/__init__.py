"""The doctor: checks a hive, explains each finding, and fixes what can be fixed automatically."""

from __future__ import annotations

from hivemind.doctor.checkup import CHECKS, FixOutcome, apply_fixes, examine
from hivemind.doctor.context import DoctorContext
from hivemind.fs.integrity import DoctorFinding

__all__ = ["CHECKS", "DoctorContext", "DoctorFinding", "FixOutcome", "apply_fixes", "examine"]
