"""The doctor: checks a hive, says what it found and what it means, and mends what can be mended."""

from __future__ import annotations

from hivemind.doctor.checkup import CHECKS, Treated, examine, treat
from hivemind.doctor.patient import Patient
from hivemind.fs.check import Finding

__all__ = ["CHECKS", "Finding", "Patient", "Treated", "examine", "treat"]
