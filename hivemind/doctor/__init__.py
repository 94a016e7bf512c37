"""The doctor: checks a hive, explains each finding, and fixes what can be fixed automatically."""

from __future__ import annotations

from hivemind.doctor.checkup import CHECKS, FixReport, apply_fixes, examine
from hivemind.doctor.context import CheckContext
from hivemind.fs.check import CheckFinding

__all__ = ["CHECKS", "CheckContext", "CheckFinding", "FixReport", "apply_fixes", "examine"]
