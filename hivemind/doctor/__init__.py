"""The doctor: checks a hive, says what it found and what it means, and mends what can be mended."""

from __future__ import annotations

from hivemind.doctor.checkup import CHECKS, FixReport, examine, treat
from hivemind.doctor.patient import CheckContext
from hivemind.fs.check import CheckFinding

__all__ = ["CHECKS", "CheckContext", "CheckFinding", "FixReport", "examine", "treat"]
