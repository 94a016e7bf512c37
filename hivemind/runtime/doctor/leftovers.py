"""Temporary files of writes that a crash cut short: nobody reads them, and they take up room."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.fs.atomic import TEMPORARY_PREFIX
from hivemind.runtime.doctor.finding import Finding
from hivemind.runtime.doctor.patient import Patient

__all__ = ["check_leftovers"]

_WRITER = re.compile(re.escape(TEMPORARY_PREFIX) + r"(\d+)-\d+-\d+")
_OLD_S = 3600.0  # a write takes moments; an hour covers a machine that slept, and writers on other machines


def check_leftovers(patient: Patient) -> Iterator[Finding]:
    """Files `.tmp-*` that are an hour old, below the hive's own folders."""
    layout = patient.layout
    for top in (layout.agents, layout.rom, layout.mailboxes, layout.knowledge, layout.tasks, layout.state):
        for folder, folders, names in os.walk(top):
            if Path(folder) == layout.state:
                folders[:] = [name for name in folders if name != "aside"]
            for name in names:
                path = Path(folder, name)
                if _WRITER.fullmatch(name) and _old(path, patient.now):
                    yield Finding(
                        "leftovers",
                        layout.relative(path),
                        "is what a crash left of a file that was being written; the file itself is as it was before",
                        "hivemind doctor --fix sets it aside",
                        partial(patient.aside.take, path),
                    )


def _old(path: Path, now: float) -> bool:
    try:
        return now - path.lstat().st_mtime > _OLD_S
    except FileNotFoundError:  # its writer has just finished
        return False
